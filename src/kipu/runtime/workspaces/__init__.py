"""A session's directory: what may be reached in it, what kinds there are, and checkpoints of its files."""
