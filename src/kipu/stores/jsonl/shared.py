"""The events that a fork took over from its parents: a log of its own in the session's folder, before the first segment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kipu.errors import LeaseLostError, SessionNotFoundError, StoreCorruptError
from kipu.ports.head import EMPTY_PATCH, HeadPatch, apply_patch
from kipu.ports.store import Damage, Lease, Record, StoredEvent
from kipu.stores.admission import check_adopted
from kipu.stores.jsonl.floor import NUMBER as FLOOR
from kipu.stores.jsonl.line import encode_batch
from kipu.stores.jsonl.log import LogView, SessionLog
from kipu.stores.jsonl.reader import PageReader
from kipu.stores.jsonl.scan import Place
from kipu.stores.leasing import holds

if TYPE_CHECKING:
    from kipu.stores.jsonl.shelf import OpenLog, Shelf

FOLDER = "shared"
RETURNED = "returned"  # what came back from an archive stands in a log like it
RETURNED_SEQ = "returned_seq"  # the same for what came back
SHARED_SEQ = "shared_seq"  # in the head row of this store alone: up to here events stand in the folder


class Taken(NamedTuple):
    """How much of its parents' events a session has taken in."""

    last_seq: int
    tokens: int


class SharedLog:
    """Shared events as lines of their own segments. Whoever adds to them holds the session's lock."""

    def __init__(self, folder: str, session_id: str, *, name: str = FOLDER) -> None:
        self._name = name
        self.log = SessionLog("", session_id, folder=os.path.join(folder, name))
        self._pages = PageReader(self.log)

    def _view(self) -> LogView | None:
        try:
            return self.log.refresh()
        except SessionNotFoundError:
            return None

    def taken(self) -> Taken:
        """Return where the events that were taken in end, and what they cost in a window."""
        view = self._view()
        return Taken(view.last_seq, view.row.get("token_count", 0)) if view is not None else Taken(0, 0)

    def add(self, records: Sequence[Record], *, first_seq: int, shelf: Shelf, head: HeadPatch = EMPTY_PATCH) -> None:
        """Put records behind those there, on the medium when this returns."""
        log, settings = self.log, shelf.settings
        log.create(sync=settings.syncs)
        log.refresh()
        log.prepare(at=shelf.now, segment_bytes=settings.segment_bytes, sync=settings.syncs)
        lines = encode_batch(log.session_id, records, first_seq=first_seq, head=head, key=None, bound=None)
        log.write(b"".join(lines))
        if settings.syncs:
            log.sync()
        view = log.known
        places, offset = [], view.size
        for line in lines:
            places.append(Place(view.segment, offset, len(line) - 1))
            offset += len(line)
        times, tokens = [record.timestamp for record in records], sum(record.tokens for record in records)
        row = apply_patch(view.row, head, first_seq=first_seq, timestamps=times, tokens=tokens)
        log.keep(row, written=offset - view.size, places=places, first_seq=first_seq)

    def page(self, *, after: int, until: int, limit: int, backwards: bool) -> list[StoredEvent]:
        """Return at most `limit` of its events. Raises: StoreCorruptError, also where its folder is gone."""
        try:
            view = self.log.refresh()
        except SessionNotFoundError:
            raise StoreCorruptError(store=self.log.folder, reason="its lines are gone") from None
        return self._pages.page(view, after=after, until=until, limit=limit, backwards=backwards)

    def damages(self, *, until: int) -> list[Damage]:
        """Return what is damaged of the events up to `until`, which are the session's own."""
        session_id = self.log.session_id
        if self._view() is None:
            return [Damage(session_id, "gap", f"{session_id}/{self._name}", seq=1, length=until)] if until else []
        where = f"{session_id}/{self._name}"
        end = self.log.known.last_seq
        return self.log.damages() + (
            [Damage(session_id, "gap", where, seq=end + 1, length=until - end)] if end < until else []
        )

    def close(self) -> None:
        """Close every file."""
        self.log.close()


def read_page(
    opened: OpenLog, view: LogView, *, after: int, until: int, limit: int, backwards: bool
) -> list[StoredEvent]:
    """Return a page of a session's own events: those that it took over, those that came back, those in its segments."""
    opened.stand_on(view.row.get(FLOOR, 0))
    shared: int = view.row.get(SHARED_SEQ, 0)
    border: int = max(shared, view.row.get(RETURNED_SEQ, 0))
    parts: list[tuple[int, int, Callable[..., list[StoredEvent]]]] = [
        (0, shared, opened.shared.page),
        (shared, border, opened.returned.page),
        (border, until, partial(opened.pages.page, view)),
    ]
    found: list[StoredEvent] = []
    for start, end, page in reversed(parts) if backwards else parts:
        low, high, room = max(after, start), min(until, end), limit - len(found)
        if room and high > low:
            found += page(after=low, until=high, limit=room, backwards=backwards)
    return found


def adopt_records(
    shelf: Shelf, session_id: str, *, records: Sequence[Record], after: int, lease: Lease, wait_s: float
) -> int:
    """Take in shared events, out of sight. Raises: SessionNotFoundError, LeaseLostError, ConflictError."""
    with shelf.locked(session_id, wait_s=wait_s) as opened:
        row = {"session_id": session_id, **opened.log.known.row}
        held = opened.lease.read(now_us=shelf.now_us()).onto(row)
        if lease.session_id != session_id or not holds(held, lease):
            raise LeaseLostError(session_id=session_id, token=lease.token, current=held["lease_token"])
        end = opened.shared.taken().last_seq if row.get("base_seq", 0) else 0
        if not records:
            return end
        check_adopted(row, len(records), after=after, end=end)
        new = records[end - after :]
        if new:
            opened.shared.add(new, first_seq=end + 1, shelf=shelf)
        return end + len(new)
