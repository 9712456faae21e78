"""Keys, ciphers, redaction and access: who may read what is stored, and what is never stored."""
