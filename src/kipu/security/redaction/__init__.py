"""Secrets taken out of values before anything keeps them."""
