"""`kipu run`: one task for a script, from its message to its exit code."""
