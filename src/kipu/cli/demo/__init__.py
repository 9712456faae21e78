"""`kipu demo`: a guided tour in which everything that is shown really happens."""
