"""The PostgreSQL store: the same sessions for any number of machines."""
