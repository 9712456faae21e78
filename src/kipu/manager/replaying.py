"""The head of a session whose events are put down once more, elsewhere: by copy and by import."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kipu.events.event import SessionEvent
from kipu.manager.head_limits import RESERVED
from kipu.ports.head import HeadPatch
from kipu.session.fold import fold_event

# The place's own business, not the history's: leases, the index, what is in archives, and what is derived.
OWN_FIELDS = frozenset(
    {
        "session_id",
        "last_seq",
        "indexed_seq",
        "offloaded_seq",
        "archive",
        "lease_owner",
        "lease_token",
        "lease_until",
        "due_at",
        "format",
    }
)
COUNTED_FIELDS = frozenset({"event_count", "token_count", "last_event_at"})  # moved by every append
_NOTHING = object()
# What a session is at that has nothing to do and nowhere to do it.
IDLE: Mapping[str, Any] = MappingProxyType(
    {
        "open_turn": None,
        "open_turn_seq": 0,
        "parked": False,
        "decided": False,
        "stop": None,
        "not_before": None,
        "quiet_until": None,
        "waiting": [],
        "undelivered": [],
        "workspace": None,
    }
)


class HeadReplay:
    """Fold events one at a time and say, for any batch of them, how the head changes.

    The patch sets what differs, so that it makes no difference how the events were batched before and are batched now. It
    holds only while nobody else appends, which `expected_seq` ensures.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = dict(row)
        self._told = dict(row)

    def put(self, **values: Any) -> None:
        """Set fields that no event carries."""
        self._row.update(values)

    def take(self, event: SessionEvent, *, tokens: int) -> None:
        """Take in the next event."""
        self._row = fold_event(self._row, event, tokens=tokens)

    def disarm(self) -> None:
        """Let nothing of what was taken in act here: no open turn, no message to answer, no right, no member, no directory.

        It is on record all the same. Only a place that somebody trusts says what is to be done in another.
        """
        metadata = self._row.get("metadata") or {}
        kept = {name: value for name, value in metadata.items() if name != "env" and not name.startswith(RESERVED)}
        self.put(**IDLE, metadata=kept, members=None, denied_count=0, denied_at="")

    def patch(self) -> HeadPatch:
        """Return the change since the last call."""
        change = self._changed(OWN_FIELDS | COUNTED_FIELDS)
        self._told = dict(self._row)
        return HeadPatch(set=change)

    def patch_to(self, head: Mapping[str, Any], *, counted: bool = True) -> HeadPatch:
        """Return the change since the last call, after which the head is as `head` says; counts too, if `counted`."""
        for name in COUNTED_FIELDS:
            self._told[name] = self._row.get(name)
        self.put(**{name: head[name] for name in head if name not in OWN_FIELDS and (counted or not _is_count(name))})
        change = self._changed(OWN_FIELDS)
        self._told = dict(self._row)
        return HeadPatch(set=change)

    def _changed(self, leave: frozenset[str]) -> dict[str, Any]:
        told = self._told
        return {n: value for n, value in self._row.items() if n not in leave and value != told.get(n, _NOTHING)}


def _is_count(name: str) -> bool:
    return name in COUNTED_FIELDS


def difference(left: Mapping[str, Any], right: Mapping[str, Any], *, counted: bool = True) -> str | None:
    """Return the first field in which two heads differ, but for what is a place's own; counts too, if `counted`."""
    leave = OWN_FIELDS if counted else OWN_FIELDS | COUNTED_FIELDS
    return next((name for name in sorted({*left, *right} - leave) if left.get(name) != right.get(name)), None)
