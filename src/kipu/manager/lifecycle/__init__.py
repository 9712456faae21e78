"""What happens to sessions when nobody looks: expiry, archives, trash and what is erased in the end (docs/concepts/lifecycle.md)."""
