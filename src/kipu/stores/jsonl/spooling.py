"""What a fallback needs of its spool beyond the contract: whole batches with their patches, seeded leases, and forgetting."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import NamedTuple

from kipu.errors import SessionNotFoundError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Record
from kipu.stores.jsonl.lease import LeaseState
from kipu.stores.jsonl.line import Line, pieces
from kipu.stores.jsonl.medium import remove_file
from kipu.stores.jsonl.segment import SegmentReader
from kipu.stores.jsonl.shelf import WAIT_S, OpenLog, Shelf


class Batch(NamedTuple):
    """One append as it stands in the log."""

    first_seq: int
    records: tuple[Record, ...]
    head: HeadPatch
    idempotency_key: str | None
    bound_key: str | None

    @property
    def last_seq(self) -> int:
        """Return the seq of the last record."""
        return self.first_seq + len(self.records) - 1


def read_batches(shelf: Shelf, session_id: str) -> list[Batch]:
    """Return every batch of a session in order. Raises: SessionNotFoundError."""
    with shelf.locked(session_id, wait_s=WAIT_S, shared=True) as opened:
        view = opened.log.known
        lines: list[Line] = []
        for number in view.segments:
            with SegmentReader(opened.log.path(number)) as reader:
                end = view.size if number == view.segment else reader.size()
                for raw in reader.forwards(0, end):
                    lines += [piece.line for piece in pieces(raw.data) if piece.line is not None]
    batches: list[Batch] = []
    gathered: list[Line] = []
    for line in lines:
        gathered.append(line)
        if line.place[0] == line.place[1]:
            batches.append(_batch(session_id, gathered))
            gathered = []
    return batches


def _batch(session_id: str, lines: list[Line]) -> Batch:
    last = lines[-1].meta
    bound = last.get("bind")
    return Batch(
        lines[0].seq,
        tuple(line.event(session_id).record for line in lines),
        HeadPatch.from_json(last.get("head") or {}),
        last.get("retry"),
        bound[0] if bound else None,
    )


def seed_lease(shelf: Shelf, session_id: str, *, owner: str | None, token: int, until: str | None) -> None:
    """Give a session that does not exist yet the lease it has elsewhere, so that its holder can go on."""
    with shelf.indexing(wait_s=WAIT_S):
        shelf.open_log(session_id).log.create(sync=shelf.settings.syncs)
        with shelf.locked(session_id, wait_s=WAIT_S) as opened:
            if opened.log.known.last_seq == 0:
                opened.lease.write(LeaseState(owner, token, until))


def lease_state(shelf: Shelf, session_id: str) -> LeaseState:
    """Return the lease of a session. Raises: SessionNotFoundError."""
    with shelf.locked(session_id, wait_s=WAIT_S, shared=True) as opened:
        return opened.lease.read(now_us=shelf.now_us())


def forget_session(shelf: Shelf, session_id: str, *, last_seq: int) -> bool:
    """Remove a session whose every event is elsewhere now, without a tombstone; False when it has grown meanwhile."""
    with shelf.indexing(wait_s=WAIT_S) as index, shelf.bindings.lock.held(wait_s=WAIT_S):
        shelf.bindings.refresh(shelf.settle)
        try:
            with shelf.locked(session_id, wait_s=WAIT_S) as opened:
                if opened.log.known.last_seq != last_seq:
                    return False
                shelf.bindings.forget(session_id)
                with index.transaction():
                    index.remove(session_id)
                _remove_folder(shelf, opened)
        except SessionNotFoundError:
            return True
    return True


def _remove_folder(shelf: Shelf, opened: OpenLog) -> None:
    folder = opened.log.folder
    # Segments first, newest last seen: what is left after a kill is a log whose every event is merged.
    for name in sorted(os.listdir(folder), reverse=True):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif name != "lock":
            remove_file(path)
    remove_file(os.path.join(folder, "lock"))
    os.rmdir(folder)
    shelf.drop_log(opened.session_id)
    shelf.backlog.discard(opened.session_id)


def spooled_ids(shelf: Shelf) -> Mapping[str, int]:
    """Return the sessions there are and when each folder was made, oldest first."""
    found = {session_id: _made_ns(shelf, session_id) for session_id in shelf.session_ids()}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _made_ns(shelf: Shelf, session_id: str) -> int:
    try:
        return os.stat(os.path.join(shelf.root, session_id, "lock")).st_ctime_ns
    except FileNotFoundError:
        return 0
