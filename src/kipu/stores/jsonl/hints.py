"""What the index remembers of a log, for whoever finds the index in use."""

from __future__ import annotations

import threading

import apsw

from kipu.errors import StoreCorruptError
from kipu.stores.jsonl.entry import LogEntry
from kipu.stores.jsonl.index import Index
from kipu.stores.jsonl.settings import Settings


class Hints:
    """Read the index over a connection of their own, which is opened when it is needed first. They never wait for the index."""

    def __init__(self, settings: Settings) -> None:
        self._index = None if settings.read_only else Index(settings.index_folder, url=settings.url)
        self._mutex = threading.Lock()

    def entry(self, session_id: str) -> LogEntry | None:
        """Return what is remembered of a log, or None when nothing is: the log is read as a whole then."""
        if self._index is None:
            return None  # a store that is only read keeps its index in memory, for one user at a time
        with self._mutex:
            try:
                if not self._index.is_current() and not self._index.open():
                    return None
                return self._index.entry(session_id)
            except (apsw.Error, StoreCorruptError):
                return None

    def close(self) -> None:
        """Close the connection."""
        if self._index is not None:
            self._index.close()
