"""Encrypted stores as a whole: opening them, their keys made and rotated, stores converted in place, what is wrong with a key."""
