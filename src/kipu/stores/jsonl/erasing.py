"""Removing every byte of a session, step by step, so that a killed erasure goes on where it was."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable

from kipu.errors import LeaseLostError, SessionNotFoundError
from kipu.ports.store import ErasureReceipt, Lease, Tombstone
from kipu.stores.jsonl.blobs import FOLDER as BLOBS
from kipu.stores.jsonl.log import ERASING
from kipu.stores.jsonl.marking import TOMBSTONES, leave_tombstone
from kipu.stores.jsonl.medium import remove_file, replace_file, sync_folder
from kipu.stores.jsonl.quarantine import FOLDER as QUARANTINE
from kipu.stores.jsonl.shelf import WAIT_S, OpenLog, Shelf
from kipu.stores.leasing import holds


def erase_session(shelf: Shelf, session_id: str, *, lease: Lease) -> ErasureReceipt:
    """Remove the session and leave a tombstone: a file without content, so that a rebuilt index knows it too.

    Writers of other processes are held off by the session's lock and find, when they get it, that it guards nothing.
    """
    removed = _erase(shelf, session_id, check=lambda opened: _check_lease(shelf, opened, lease))
    return ErasureReceipt(session_id, shelf.now(), removed)


def _erase(shelf: Shelf, session_id: str, *, check: Callable[[OpenLog], None]) -> dict[str, int]:
    with shelf.indexing(wait_s=WAIT_S) as index, shelf.bindings.lock.held(wait_s=WAIT_S):
        shelf.bindings.refresh(shelf.settle)
        with shelf.locked_raw(session_id, wait_s=WAIT_S) as opened:
            check(opened)
            erasure = _Erasure(shelf, opened)
            # First of all: from here on the id is not used again, and whoever opens the store finishes what a kill left.
            erasure.leave_tombstone()
            erasure.remove_content()
            with index.transaction():
                erasure.removed.update(index.remove(session_id))
            index.empty_wal()
            erasure.remove_folder()
            return erasure.removed


def _check_lease(shelf: Shelf, opened: OpenLog, lease: Lease) -> None:
    shelf.mark.check()
    row = opened.lease.read(now_us=shelf.now_us()).onto({})
    if lease.session_id != opened.session_id or not holds(row, lease):
        raise LeaseLostError(session_id=opened.session_id, token=lease.token, current=row["lease_token"])


class _Erasure:
    def __init__(self, shelf: Shelf, opened: OpenLog) -> None:
        self._shelf = shelf
        self._opened = opened
        self._folder = opened.log.folder
        self._sync = shelf.settings.syncs
        self.removed: dict[str, int] = {}

    def remove_content(self) -> None:
        marker = os.path.join(self._folder, ERASING)
        replace_file(marker, b"", sync=self._sync)
        self.removed["bindings"] = self._shelf.bindings.forget(self._opened.session_id)
        self.removed["blobs"] = self._remove_tree(BLOBS)
        self.removed["quarantine"] = self._remove_tree(QUARANTINE)
        segments = [name for name in os.listdir(self._folder) if name not in {"lock", "lease", ERASING}]
        size = 0
        for name in sorted(segments):
            path = os.path.join(self._folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
                continue
            size += os.lstat(path).st_size
            remove_file(path)
        self.removed["log_bytes"] = size
        self._opened.log.close_handle()
        if self._sync:
            sync_folder(self._folder)

    def _remove_tree(self, name: str) -> int:
        path = os.path.join(self._folder, name)
        try:
            count = len(os.listdir(path))
        except FileNotFoundError:
            return 0
        shutil.rmtree(path)
        return count

    def leave_tombstone(self) -> None:
        tombstone = Tombstone(self._opened.session_id, self._shelf.now())
        leave_tombstone(self._shelf.root, tombstone, sync=self._sync)

    def remove_folder(self) -> None:
        # The lock's name goes last but one: whoever waits for it sees then that it guards nothing.
        for name in ("lease", ERASING, "lock"):
            remove_file(os.path.join(self._folder, name))
        os.rmdir(self._folder)
        if self._sync:
            sync_folder(self._shelf.root)
        self._shelf.drop_log(self._opened.session_id)
        self._shelf.backlog.discard(self._opened.session_id)


def finish_erasures(shelf: Shelf) -> None:
    """Finish what kills left: folders whose session has its tombstone."""
    if shelf.settings.read_only:
        return
    try:
        tombstones = set(os.listdir(os.path.join(shelf.root, TOMBSTONES)))
    except FileNotFoundError:
        return
    for session_id in tombstones.intersection(shelf.session_ids()):
        with contextlib.suppress(SessionNotFoundError):
            _erase(shelf, session_id, check=lambda _: None)
