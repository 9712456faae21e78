"""The head: one small row per session, so that listing, sweeping and opening never read a log.

A head changes only by a `HeadPatch`, computed by pure code from the events of one append and applied by the store in the
same transaction. Patches are plain data (a store on another machine can apply them), and they commute where events from
two writers may (arrivals beside a running turn), which is why they say add, max or insert, and not only set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

JsonObject = dict[str, Any]

_NOTHING: Mapping[str, Any] = {}


class HeadPatch(NamedTuple):
    """How one append changes the head. Field names are those of `Head`.

    `at`, `insert_at` take indexes of records in the batch, which become their `seq`, since nobody knows it before the store.
    """

    set: Mapping[str, Any] = _NOTHING
    default: Mapping[str, Any] = _NOTHING  # set where the field is still empty
    add: Mapping[str, int] = _NOTHING
    max: Mapping[str, Any] = _NOTHING
    min: Mapping[str, Any] = _NOTHING
    merge: Mapping[str, Mapping[str, Any]] = _NOTHING  # objects: None removes a name
    at: Mapping[str, int] = _NOTHING
    insert_at: Mapping[str, Sequence[int]] = _NOTHING
    insert: Mapping[str, Sequence[int]] = _NOTHING
    discard: Mapping[str, Sequence[int]] = _NOTHING
    previews: Sequence[tuple[int, str, str]] = ()  # (index, event type, text) of the newest events worth a line

    def to_json(self) -> JsonObject:
        """Return the operations that are not empty, as JSON."""
        return {name: value for name, value in zip(self._fields, self, strict=True) if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HeadPatch:
        """Return the patch that `to_json` gave; operations of a newer version are refused by their unknown name."""
        return cls(**data)


EMPTY_PATCH = HeadPatch()


@dataclass(frozen=True, slots=True)
class Preview:
    """One line about one of the last events."""

    seq: int
    event_type: str
    text: str


@dataclass(frozen=True)
class Head:
    """A session's row. Times are ISO 8601 UTC text with microseconds and `Z`, so that they sort as text."""

    session_id: str
    tenant: str = ""
    owner: str = ""
    members: JsonObject | None = None  # principal id → role: with whom the owner shares it
    key: str | None = None
    title: str | None = None
    first_text: str | None = None  # start of the first user message, shown where there is no title
    status: str = "active"
    tags: tuple[str, ...] = ()
    pinned: bool = False  # the session, in lists and sweeps; `pins` are its events
    metadata: JsonObject = field(default_factory=dict)
    workspace: JsonObject | None = None
    origin: JsonObject | None = None  # where an imported session came from
    forked_from: str | None = None
    base_seq: int = 0  # own events start after it (a fork's shared prefix)
    created_at: str = ""
    last_event_at: str = ""
    last_activity_at: str = ""  # messages and turns, not metadata
    last_seq: int = 0
    event_count: int = 0
    token_count: int = 0
    previews: tuple[Preview, ...] = ()
    instruction_seq: int = 0
    compaction_seq: int = 0
    window_seq: int = 0  # first seq that the window needs
    consolidated_seq: int = 0
    indexed_seq: int = 0
    offloaded_seq: int = 0  # own events up to it are in the archive, not in the store; 0: all are in the store
    archive: JsonObject | None = None  # where an archive file of the session is: place, name, checksum, counts
    rewind_seq: int = 0  # newest rewind event
    pins: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()  # messages that no turn has consumed
    open_turn: str | None = None
    open_turn_seq: int = 0
    parked: bool = False
    decided: bool = False
    stop: str | None = None  # the turn that somebody asked to end
    not_before: str | None = None
    quiet_until: str | None = None  # set by each arrival: while no turn is open, the waiting messages are due then
    denied_count: int = 0  # refusals on record, and when the newest was: so that a stranger does not fill the log
    denied_at: str = ""
    undelivered: tuple[int, ...] = ()  # messages whose answer still has to go out through their channel
    due_at: str | None = None  # derived: None = no work, "" = at once
    lease_owner: str | None = None
    lease_token: int = 0  # grows with every claim, kept after release
    lease_until: str | None = None
    format: int = 1

    @property
    def display_title(self) -> str:
        """Return the title, or the start of the first message, or the id."""
        return self.title or self.first_text or self.session_id


_TUPLES = ("tags", "pins", "waiting", "undelivered")
_NAMES = tuple(f.name for f in fields(Head))


_SET = object.__setattr__  # heads are frozen, but for whoever makes them


def head_from_json(data: Mapping[str, Any]) -> Head:
    """Return the head of a stored row; names that a newer version added are no fields here, and kept by `apply_patch`."""
    return head_of_row(dict(data))


def head_of_row(known: JsonObject) -> Head:
    """Return what `head_from_json` returns, made of a row that nobody else has: it becomes the head's own.

    A list reads a hundred of these: fields are put in place at once (1 µs; the constructor takes 7), and those that a row
    does not have are found in the class, where a dataclass keeps its defaults.
    """
    if "session_id" not in known:
        raise KeyError("session_id")
    head = Head.__new__(Head)
    _SET(head, "__dict__", known)
    if "metadata" not in known:
        known["metadata"] = {}
    for name in _TUPLES:
        if name in known:
            known[name] = tuple(known[name])
    if "previews" in known:
        known["previews"] = tuple([Preview(*entry) for entry in known["previews"]])
    return head


def head_to_json(head: Head) -> JsonObject:
    """Return every field of `head` as JSON."""
    data: JsonObject = {name: getattr(head, name) for name in _NAMES}
    for name in _TUPLES:
        data[name] = list(data[name])
    data["previews"] = [[p.seq, p.event_type, p.text] for p in head.previews]
    return data


PREVIEWS_KEPT = 3


def apply_patch(
    data: Mapping[str, Any], patch: HeadPatch, *, first_seq: int, timestamps: Sequence[str], tokens: int
) -> JsonObject:
    """Return the head row after one append of `len(timestamps)` records whose first got `first_seq`.

    Counts and times that every append moves are moved here, so that patches need not carry them. Pure: all stores use it,
    and a rebuilt index is the same as the one that was lost.
    """
    row = dict(data)
    count = len(timestamps)
    row["last_seq"] = first_seq + count - 1
    row["event_count"] = row.get("event_count", 0) + count
    row["token_count"] = row.get("token_count", 0) + tokens
    row["last_event_at"] = max(row.get("last_event_at", ""), *timestamps)
    _assign(row, patch, first_seq)
    _combine(row, patch)
    _collect(row, patch, first_seq)
    row["due_at"] = due_at(row)
    return row


def _assign(row: JsonObject, patch: HeadPatch, first_seq: int) -> None:
    row.update(patch.set)
    for name, value in patch.default.items():
        if not row.get(name):
            row[name] = value
    for name, index in patch.at.items():
        row[name] = first_seq + index


def _combine(row: JsonObject, patch: HeadPatch) -> None:
    for name, value in patch.add.items():
        row[name] = row.get(name, 0) + value
    for name, value in patch.max.items():
        row[name] = max(row.get(name) or type(value)(), value)
    for name, value in patch.min.items():
        if name in row:  # what was never set is at its least already
            row[name] = min(row[name], value)
    for name, changes in patch.merge.items():
        merged = {**(row.get(name) or {}), **changes}
        row[name] = {key: value for key, value in merged.items() if value is not None}


def _collect(row: JsonObject, patch: HeadPatch, first_seq: int) -> None:
    for name, indexes in patch.insert_at.items():
        _put(row, name, [first_seq + index for index in indexes])
    for name, seqs in patch.insert.items():
        _put(row, name, list(seqs))
    for name, seqs in patch.discard.items():
        gone = set(seqs)
        row[name] = [seq for seq in row.get(name, ()) if seq not in gone]
    if patch.previews:
        fresh = [[first_seq + index, kind, text] for index, kind, text in patch.previews]
        row["previews"] = [*row.get("previews", ()), *fresh][-PREVIEWS_KEPT:]


def _put(row: JsonObject, name: str, seqs: list[int]) -> None:
    row[name] = sorted({*row.get(name, ()), *seqs})


def due_at(row: Mapping[str, Any]) -> str | None:
    """Return when the session wants a worker: None for never, "" for at once, else the time it becomes due.

    There is work when a message waits and no turn is open, when a turn is open and not parked (its worker died), when a
    parked turn has a decision or an expiry, and when somebody asked an open turn to stop (flows.md). Quiet time delays only
    messages that wait: what arrives while a turn is open changes nothing about when that turn is due.
    """
    not_before: str | None = row.get("not_before")
    if row.get("open_turn"):
        if row.get("stop") == row["open_turn"]:
            return ""
        if row.get("parked"):
            return "" if row.get("decided") else not_before
        return not_before or ""
    return max(not_before or "", row.get("quiet_until") or "") if row.get("waiting") else None
