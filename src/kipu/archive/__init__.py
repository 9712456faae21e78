"""Sessions that were moved out of their store: one compressed file each, in a folder or an object store (docs/formats/archive.md)."""
