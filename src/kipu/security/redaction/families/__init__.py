"""What tokens look like: one file for each kind of house that gives them out."""
