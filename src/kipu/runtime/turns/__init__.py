"""A turn from its first event to its last: the loop, its steps, what bounds and ends it."""
