"""Sessions as files that people can read: docs/formats/jsonl.md and docs/formats/lease.md say what is in them."""

from kipu.stores.jsonl.store import JsonlStore

__all__ = ["JsonlStore"]
