"""What a fallback needs of its spool beyond the contract: whole batches with their patches, seeded leases, and forgetting."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from kipu.errors import SessionNotFoundError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Record
from kipu.stores.jsonl.lease import LeaseState
from kipu.stores.jsonl.line import Line, parse
from kipu.stores.jsonl.medium import remove_file
from kipu.stores.jsonl.quarantine import FOLDER, ROOT_FOLDER, keep_aside, move_aside
from kipu.stores.jsonl.scan import Place
from kipu.stores.jsonl.segment import SegmentReader
from kipu.stores.jsonl.shelf import WAIT_S, OpenLog, Shelf


class Batch(NamedTuple):
    """One append as it stands in the log, without the records that were damaged there."""

    seqs: tuple[int, ...]
    records: tuple[Record, ...]
    head: HeadPatch
    idempotency_key: str | None
    bound_key: str | None

    @property
    def first_seq(self) -> int:
        """Return the seq of the first record."""
        return self.seqs[0]

    @property
    def last_seq(self) -> int:
        """Return the seq of the last record."""
        return self.seqs[-1]


def read_batches(shelf: Shelf, session_id: str) -> tuple[list[Batch], int]:
    """Return every batch of a session in the order of their seqs, and its last seq. Raises: SessionNotFoundError.

    What exists is what every reader of the log sees, however it is damaged: an index may say otherwise of a line that rotted.
    """
    with shelf.locked(session_id, wait_s=WAIT_S, shared=True) as opened:
        view = opened.log.rescan()
        places = opened.log.scan.sorted_places() if opened.log.scan is not None else []
        lines = list(_lines_at(opened, [place for _, place in places]))
    return [_batch(session_id, gathered) for gathered in _gathered(lines)], view.last_seq


def _lines_at(opened: OpenLog, places: Sequence[Place]) -> Iterator[Line]:
    with ExitStack() as readers:
        open_ones: dict[int, SegmentReader] = {}
        for place in places:
            if place.segment not in open_ones:
                open_ones[place.segment] = readers.enter_context(SegmentReader(opened.log.path(place.segment)))
            line = parse(open_ones[place.segment].bytes_at(place.offset, place.size))
            if line is not None:
                yield line


def _gathered(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield the lines of one append after the other; a damaged one is missing in its own batch and nowhere else."""
    batch: list[Line] = []
    for line in lines:
        if batch and _begins(line) != _begins(batch[-1]):
            yield batch
            batch = []
        batch.append(line)
    if batch:
        yield batch


def _begins(line: Line) -> int:
    """Return the seq with which the batch of a line began."""
    return line.seq - line.place[0] + 1


def _batch(session_id: str, lines: Sequence[Line]) -> Batch:
    last = lines[-1].meta if lines[-1].place[0] == lines[-1].place[1] else {}
    bound = last.get("bind")
    begin = _begins(lines[-1])
    standing = {line.seq - begin: index for index, line in enumerate(lines)}
    return Batch(
        tuple(line.seq for line in lines),
        tuple(line.event(session_id).record for line in lines),
        _among(standing, HeadPatch.from_json(last.get("head") or {})),
        last.get("retry"),
        bound[0] if bound else None,
    )


def _among(standing: Mapping[int, int], patch: HeadPatch) -> HeadPatch:
    """Return the patch with the places of those records that are left."""
    return patch._replace(
        at={name: standing[index] for name, index in patch.at.items() if index in standing},
        insert_at={
            name: [standing[index] for index in indexes if index in standing]
            for name, indexes in patch.insert_at.items()
        },
        previews=[(standing[index], kind, text) for index, kind, text in patch.previews if index in standing],
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
    """Remove a session whose every event is elsewhere now, without a tombstone; False when it has grown meanwhile.

    What could not be read is elsewhere nowhere: it stays in the store's quarantine, under the session's id.
    """
    with shelf.indexing(wait_s=WAIT_S) as index, shelf.bindings.lock.held(wait_s=WAIT_S):
        shelf.bindings.refresh(shelf.settle)
        try:
            with shelf.locked(session_id, wait_s=WAIT_S) as opened:
                if opened.log.known.last_seq != last_seq:
                    return False
                shelf.bindings.forget(session_id)
                _keep_damaged(shelf, opened)
                with index.transaction():
                    index.remove(session_id)
                _remove_folder(shelf, opened)
        except SessionNotFoundError:
            return True
    return True


def _keep_damaged(shelf: Shelf, opened: OpenLog) -> None:
    sync, session_id = shelf.settings.syncs, opened.session_id
    for damage in opened.log.damages():
        if damage.reason == "order" or not damage.length:
            continue
        name = os.path.basename(damage.where)
        with SegmentReader(os.path.join(opened.log.folder, name)) as reader:
            data = reader.bytes_at(damage.offset or 0, damage.length)
        source, at = _aside(session_id, name), shelf.now()
        keep_aside(
            shelf.root,
            source,
            offset=damage.offset or 0,
            data=data,
            reason=damage.reason,
            at=at,
            sync=sync,
            into=ROOT_FOLDER,
        )
    kept = os.path.join(opened.log.folder, FOLDER)
    for name in sorted(os.listdir(kept)) if os.path.isdir(kept) else ():
        move_aside(os.path.join(kept, name), shelf.root, stem=_aside(session_id, name), sync=sync)


def _aside(session_id: str, name: str) -> str:
    """Return the name under which bytes of a session are in the store's quarantine: no id has a dot."""
    return f"{session_id}.{name}"


def discard_damaged(shelf: Shelf, session_id: str) -> None:
    """Remove what the store's quarantine has of a session that was erased."""
    place = os.path.join(shelf.root, ROOT_FOLDER)
    for name in os.listdir(place) if os.path.isdir(place) else ():
        if name.startswith(_aside(session_id, "")):
            remove_file(os.path.join(place, name))


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
