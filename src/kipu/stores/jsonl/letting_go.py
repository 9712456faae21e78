"""A session's lines out of its folder and back into it: one file decides which of the two it is (JL-28 to JL-30)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from kipu.errors import StoreCorruptError
from kipu.ports.head import HeadPatch, JsonObject
from kipu.ports.store import Lease, StoredEvent
from kipu.stores.jsonl.blobs import FOLDER as BLOBS
from kipu.stores.jsonl.floor import NUMBER, Floor, write_floor
from kipu.stores.jsonl.index import NOT_OF_THE_LOG, Index
from kipu.stores.jsonl.medium import remove_file, sync_folder
from kipu.stores.jsonl.scan import KeyPlace
from kipu.stores.jsonl.segment import segment_number
from kipu.stores.jsonl.shared import FOLDER as SHARED
from kipu.stores.jsonl.shared import RETURNED, RETURNED_SEQ, SHARED_SEQ
from kipu.stores.jsonl.shelf import WAIT_S, OpenLog, Shelf
from kipu.stores.offloading import check_reload, let_go, taken_back


def offload_lines(
    shelf: Shelf, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
) -> None:
    """Remove the session's lines and these blobs. Raises: SessionNotFoundError, LeaseLostError, ConflictError."""
    with _held(shelf, session_id) as (index, opened, row):
        after = let_go(row, lease, until=until, archive=archive)
        if not row.get("offloaded_seq"):
            if not opened.log.known.healthy:
                reason = f"the log of {session_id} is damaged, and what cannot be read would be lost"
                raise StoreCorruptError(store=shelf.settings.url, reason=reason)
            keys = index.key_places(session_id)
            _lay_floor(shelf, opened, {**after, SHARED_SEQ: 0, RETURNED_SEQ: 0}, keys=keys)
        _remove_void(opened, blobs)
        _show(shelf, index, opened)


def reload_lines(
    shelf: Shelf,
    session_id: str,
    *,
    events: Sequence[StoredEvent],
    lease: Lease,
    complete: bool,
    archive: Mapping[str, Any] | None,
) -> None:
    """Take lines in, beside the log, and with `complete` make them part of it. Raises as `offload_lines` does."""
    with _held(shelf, session_id) as (index, opened, row):
        check_reload(row, lease, events=events)
        _add(shelf, opened, events)
        if not complete:
            return
        gone: int = row.get("offloaded_seq", 0)
        after = taken_back(row, archive=archive)
        if gone:
            after[RETURNED_SEQ] = gone
        if opened.log.floor is None:  # it never let go of anything
            return
        _lay_floor(shelf, opened, after, keys=None)
        _show(shelf, index, opened)


def _add(shelf: Shelf, opened: OpenLog, events: Sequence[StoredEvent]) -> None:
    known = opened.returned.taken().last_seq
    new = [event for event in events if event.seq > known]
    for _, run in groupby(enumerate(new), lambda entry: entry[1].seq - entry[0]):
        batch = [event for _, event in run]
        first = batch[0].seq
        # The first line says behind which event it begins; the others go on from it.
        head = HeadPatch() if known else HeadPatch(set={"base_seq": first - 1})
        opened.returned.add([event.record for event in batch], first_seq=first, shelf=shelf, head=head)
        known = batch[-1].seq


@contextmanager
def _held(shelf: Shelf, session_id: str) -> Iterator[tuple[Index, OpenLog, JsonObject]]:
    """Hold the index, the bindings and the session; give its head row with the lease."""
    shelf.backlog.write(wait_s=WAIT_S)
    with shelf.indexing(wait_s=WAIT_S) as index, shelf.bindings.lock.held(wait_s=WAIT_S):
        # What an unfinished binding asks the log for must be answered while the log can: durably, before lines go.
        shelf.bindings.refresh(shelf.settle)
        shelf.bindings.sync()
        shelf.heal(session_id)
        with shelf.locked(session_id, wait_s=WAIT_S) as opened:
            row = {"session_id": session_id, "base_seq": 0, **opened.log.known.row}
            yield index, opened, opened.lease.read(now_us=shelf.now_us()).onto(row)


def _lay_floor(shelf: Shelf, opened: OpenLog, row: JsonObject, *, keys: Sequence[KeyPlace] | None) -> None:
    """Write the log's new floor: with `keys` at its end as it is now, else in the place of the old one.

    A new segment comes first: whoever knows the log in another process sees by it that there is something to look at, and
    cannot look before the lock is free.
    """
    log = opened.log
    before = log.floor
    log.prepare(at=shelf.now, segment_bytes=shelf.settings.segment_bytes, sync=True)  # a torn tail is kept aside
    log.begin_segment()
    clean = {name: value for name, value in row.items() if name not in NOT_OF_THE_LOG}
    clean[NUMBER] = (before.number if before else 0) + 1
    if before is None or keys is not None:
        floor = Floor(log.known.segment, clean, tuple(keys or ()))
    else:  # the lines above it stay, and say what they changed
        changed = {name: clean.get(name) for name in ("offloaded_seq", "archive", RETURNED_SEQ, NUMBER)}
        floor = before._replace(row={**before.row, **changed})
    write_floor(log.folder, floor)


def _remove_void(opened: OpenLog, blobs: Sequence[str]) -> None:
    """Remove what is none of the log any more."""
    log = opened.log
    view = log.look_anew()
    opened.stand_on(view.row.get(NUMBER, 0))
    for name in (SHARED, RETURNED):
        shutil.rmtree(os.path.join(log.folder, name), ignore_errors=True)
    for name in os.listdir(log.folder):
        number = segment_number(name)
        if number is not None and log.floor is not None and number < log.floor.segment:
            remove_file(os.path.join(log.folder, name))
    for digest in blobs:
        remove_file(os.path.join(log.folder, BLOBS, digest))
    sync_folder(log.folder)


def _show(shelf: Shelf, index: Index, opened: OpenLog) -> None:
    opened.log.look_anew()
    with index.transaction():
        shelf.put(opened)
    shelf.notes.write([opened.session_id])
