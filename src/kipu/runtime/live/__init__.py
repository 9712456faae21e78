"""What streams, for whoever watches, in this process and in others. Nothing here is kept: the log has the whole."""
