"""The names of a store's keys. All have one hash tag: a cluster keeps a store in one slot, where one script may touch all of it."""

from __future__ import annotations

from typing import NamedTuple


class KeyNames:
    """Name the keys of one store."""

    def __init__(self, prefix: str) -> None:
        self.root = f"{{{prefix}}}:"
        self.meta = f"{self.root}meta"
        self.mark = f"{self.root}mark"
        self.counter = f"{self.root}commits"
        self.changed = f"{self.root}changed"
        self.due = f"{self.root}due"
        self.held = f"{self.root}held"
        self.tombstones = f"{self.root}tombstones"
        self.erasing = f"{self.root}erasing"
        self.probe = f"{self.root}probe"
        self.channel = f"{self.root}news"
        self.heads = f"{self.root}head:"
        self.lists = f"{self.root}list:"

    def of(self, session_id: str) -> SessionKeys:
        """Return the keys of one session."""
        root = self.root
        return SessionKeys(
            f"{self.heads}{session_id}",
            f"{root}events:{session_id}",
            f"{root}returned:{session_id}",
            f"{root}adopted:{session_id}",
            f"{root}blobs:{session_id}",
            f"{root}keys:{session_id}",
            f"{root}outcomes:{session_id}",
        )

    def binding(self, key: str) -> str:
        """Return where a session key says which session it leads to."""
        return f"{self.root}binding:{key}"

    def outcome(self, key: str) -> str:
        """Return where an idempotency key says which batch stands under it."""
        return f"{self.root}once:{key}"

    def listed(self, order: str, facet: str) -> str:
        """Return the sorted set of the sessions of a facet in an order."""
        return f"{self.lists}{order}:{facet}"


class SessionKeys(NamedTuple):
    """The keys of one session."""

    head: str
    events: str
    returned: str
    adopted: str
    blobs: str
    bindings: str
    outcomes: str
