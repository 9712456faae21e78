"""The SQLite store: one database file, written by one connection per process, read beside it."""

from __future__ import annotations

from kipu.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
