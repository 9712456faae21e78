"""The head of a session whose events are put down once more, elsewhere: by copy and by import."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kipu.events.event import SessionEvent
from kipu.ports.head import HeadPatch
from kipu.session.fold import fold_event

# Moved by every append, or the place's own business: leases and the index are not part of a history.
OWN_FIELDS = frozenset(
    {"session_id", "last_seq", "indexed_seq", "lease_owner", "lease_token", "lease_until", "due_at", "format"}
)
COUNTED_FIELDS = frozenset({"event_count", "token_count", "last_event_at"})


class HeadReplay:
    """Fold events one at a time and say, for any batch of them, how the head changes.

    The patch sets what differs. How events were batched before, and how they are now, makes no difference then; it holds
    only while nobody else appends, which `expected_seq` ensures.
    """

    def __init__(self, row: dict[str, Any]) -> None:
        self._row = dict(row)
        self._told = dict(row)

    @property
    def row(self) -> dict[str, Any]:
        """Return the head row after the events so far."""
        return self._row

    def take(self, event: SessionEvent, *, tokens: int) -> None:
        """Take in the next event."""
        self._row = fold_event(self._row, event, tokens=tokens)

    def patch(self, *, become: dict[str, Any] | None = None, leave: Collection[str] = OWN_FIELDS) -> HeadPatch:
        """Return the change since the last call; with `become`, the change to that row, but for the fields to `leave`."""
        if become is not None:
            self._row = {**self._row, **{name: value for name, value in become.items() if name not in leave}}
        own = OWN_FIELDS if become is not None else OWN_FIELDS | COUNTED_FIELDS
        change = {
            name: value for name, value in self._row.items() if name not in own and value != self._told.get(name, _NONE)
        }
        self._told = dict(self._row)
        return HeadPatch(set=change)


_NONE = object()


def differences(left: dict[str, Any], right: dict[str, Any], *, leave: Collection[str] = OWN_FIELDS) -> list[str]:
    """Return the names of the fields in which two head rows differ, but for those to `leave`."""
    return sorted(name for name in {*left, *right} - {*leave} if left.get(name) != right.get(name))
