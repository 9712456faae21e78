"""What a model can do: read, change and find files, run commands, look into sessions and results."""
