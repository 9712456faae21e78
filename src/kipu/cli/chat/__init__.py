"""`kipu chat`: one person, one model, many sessions."""
