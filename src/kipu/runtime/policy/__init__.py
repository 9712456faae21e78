"""What a call may do: rules in layers, grants that people gave, and the hash that binds an approval to its arguments."""
