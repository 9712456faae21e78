"""What was learned about how to work: proposed with its evidence, tried, decided by a person, versioned, taken back (C26)."""
