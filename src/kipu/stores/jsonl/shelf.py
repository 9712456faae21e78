"""All the logs of a store and the index over them: which are open, which the index knows, which it must look at again."""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import apsw

from kipu.errors import SessionNotFoundError, StoreCorruptError, StoreFullError, StoreUnavailableError
from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import StoreMark, Tombstone
from kipu.stores.jsonl.backlog import Backlog
from kipu.stores.jsonl.bindings import UNBOUND, Bindings, Intent, KeyState
from kipu.stores.jsonl.blobs import get_blob
from kipu.stores.jsonl.changes import ChangeNotes
from kipu.stores.jsonl.entry import LogEntry
from kipu.stores.jsonl.hints import Hints
from kipu.stores.jsonl.index import Index
from kipu.stores.jsonl.layout import refuse_when_away
from kipu.stores.jsonl.lease import LeaseFile, LeaseState
from kipu.stores.jsonl.line import Bound
from kipu.stores.jsonl.lock import FileLock
from kipu.stores.jsonl.log import LogView, SessionLog
from kipu.stores.jsonl.marking import TOMBSTONES, MarkFile, leave_tombstone
from kipu.stores.jsonl.reader import PageReader
from kipu.stores.jsonl.segment import segment_name
from kipu.stores.jsonl.settings import Settings
from kipu.stores.jsonl.shared import RETURNED, SharedLog
from kipu.stores.store_mark import check_expected, own_move
from kipu.stores.times import iso_from_us

OPEN_LOGS = 128
# How long a thread waits for another process before it says that the store cannot be used.
WAIT_S = 30.0
_SESSION_ID = re.compile(r"[a-z0-9_-]{1,64}")


class OpenLog:
    """A session's log, its lease and the reader of its pages."""

    def __init__(self, root: str, session_id: str) -> None:
        self.session_id = session_id
        self.log = SessionLog(root, session_id)
        self.lease = LeaseFile(self.log.folder)
        self.pages = PageReader(self.log)
        self.shared = SharedLog(self.log.folder, session_id)
        self.returned = SharedLog(self.log.folder, session_id, name=RETURNED)
        self._floor = 0

    def stand_on(self, floor: int) -> None:
        """Forget where pages were found when the log has got another floor since."""
        if floor != self._floor:
            self._floor = floor
            self.shared.close()
            self.returned.close()
            self.pages = PageReader(self.log)
            self.shared = SharedLog(self.log.folder, self.session_id)
            self.returned = SharedLog(self.log.folder, self.session_id, name=RETURNED)

    def close(self) -> None:
        """Close every file."""
        self.log.close()
        self.shared.close()
        self.returned.close()
        self.lease.close()


class Shelf:
    """Open logs as they are needed and keep the index true to them. Calls come from the event loop and from threads."""

    def __init__(self, settings: Settings, *, clock: Clock, liveness: Liveness, owner: str) -> None:
        self.settings = settings
        self.root = settings.root
        self.clock = clock
        self.liveness = liveness
        self.owner = owner
        self.index = Index(settings.index_folder, url=settings.url, in_memory=settings.read_only)
        self.index_lock = FileLock(os.path.join(settings.index_folder, "index.lock"))
        self.hints = Hints(settings)
        self.bindings = Bindings(
            self.root,
            sync=settings.syncs,
            in_logs=self._bound_in_logs,
            may_make=lambda: not settings.read_only and self.mark.refusal() is None,
            writable=not settings.read_only,
        )
        self.notes = ChangeNotes(self.root)
        self.mark = MarkFile(settings)
        self.stale: set[str] = set()  # sessions whose index row could not be written
        self.backlog = Backlog(self)  # sessions whose index row need not be written yet
        self.noting = False  # somebody of this process follows every session
        self.broken = False  # the index said that it is damaged
        self._logs: OrderedDict[str, OpenLog] = OrderedDict()
        self._mutex = threading.Lock()

    def now_us(self) -> int:
        """Return the time of the store's clock."""
        return self.clock.now_us()

    def now(self) -> str:
        """Return the time of the store's clock as text."""
        return iso_from_us(self.clock.now_us())

    # -- open logs -------------------------------------------------------------------------------------------------------

    def open_log(self, session_id: str) -> OpenLog:
        """Return the session's open log, which need not exist on disk. Raises SessionNotFoundError for a name that is no id."""
        with self._mutex:
            found = self._logs.get(session_id)
            if found is None:
                if not _SESSION_ID.fullmatch(session_id):
                    raise SessionNotFoundError(session_id=session_id)
                found = self._logs[session_id] = OpenLog(self.root, session_id)
                self._shrink()
            else:
                self._logs.move_to_end(session_id)
            return found

    def _shrink(self) -> None:
        if len(self._logs) <= OPEN_LOGS:
            return
        for session_id, candidate in list(self._logs.items())[: len(self._logs) - OPEN_LOGS]:
            if candidate.log.unsynced == 0 and candidate.log.lock.close_idle():
                candidate.close()
                del self._logs[session_id]

    def drop_log(self, session_id: str) -> None:
        """Forget an open log: its folder is gone, or is another one now. The caller holds its lock."""
        with self._mutex:
            found = self._logs.pop(session_id, None)
        if found is not None:
            found.log.close_handle()
            found.shared.close()
            found.returned.close()
            found.lease.close()
            found.log.view = None

    def dirty_logs(self) -> list[OpenLog]:
        """Return the logs with something that is not on the medium yet."""
        with self._mutex:
            return [candidate for candidate in self._logs.values() if candidate.log.unsynced]

    @contextmanager
    def locked(self, session_id: str, *, wait_s: float, shared: bool = False) -> Iterator[OpenLog]:
        """Hold a session's lock and its log as it is now.

        Raises:
            SessionNotFoundError: there is no such session.
            BlockingIOError: `wait_s` is 0 and somebody holds the lock.
        """
        with self.locked_raw(session_id, wait_s=wait_s, shared=shared) as opened:
            self.refresh(opened)
            yield opened

    @contextmanager
    def locked_raw(self, session_id: str, *, wait_s: float, shared: bool = False) -> Iterator[OpenLog]:
        """Hold a session's lock; what its log holds is not looked at. Raises as `locked` does."""
        opened = self.take(session_id, wait_s=wait_s, shared=shared)
        try:
            yield opened
        finally:
            opened.log.lock.release()

    def take(self, session_id: str, *, wait_s: float, shared: bool = False) -> OpenLog:
        """Take a session's lock; the caller releases it. Raises as `locked` does."""
        while True:
            opened = self.open_log(session_id)
            lock = opened.log.lock
            try:
                lock.acquire(wait_s=wait_s, shared=shared)
            except FileNotFoundError:
                refuse_when_away(self.root)
                self._forget_gone(session_id)
                raise SessionNotFoundError(session_id=session_id) from None
            if not lock.unlinked:
                return opened
            # Erased, and maybe made again, while we waited: the file that we hold guards nothing.
            lock.release()
            lock.close()
            self.drop_log(session_id)

    def _forget_gone(self, session_id: str) -> None:
        with self._mutex:
            gone = self._logs.pop(session_id, None)
        if gone is not None:
            gone.close()

    def refresh(self, opened: OpenLog) -> LogView:
        """Bring a log's view up to date, under its lock; what others appended goes to the index."""
        log = opened.log
        if log.view is not None and log.is_current_locked():
            return log.view
        hint = self.entry(opened.session_id) if log.view is None else None
        known = log.view or hint
        if known is not None:
            log.given_seq = max(log.given_seq, known.row.get("last_seq", 0))
        view = log.refresh(hint)
        if log.scan is not None:
            log.scan = None
            if not self.settings.read_only:
                self.stale.add(opened.session_id)
        return view

    def entry(self, session_id: str) -> LogEntry | None:
        """Return what the index remembers of a log, or None when it cannot be asked now.

        The index's connection belongs to whoever holds its lock: a look from beside would break what they are in the middle of.
        """
        try:
            if self.index_lock.is_mine:
                return self.index.entry(session_id)
            with self.index_lock.held(wait_s=0, shared=True):
                return self.index.entry(session_id)
        except BlockingIOError:
            return self.hints.entry(session_id)
        except (apsw.Error, StoreCorruptError):
            return None

    def folder_exists(self, session_id: str) -> bool:
        """Return True when there is a folder of this name; a name that is no id has none."""
        return bool(_SESSION_ID.fullmatch(session_id)) and os.path.isdir(os.path.join(self.root, session_id))

    def blob(self, session_id: str, digest: str) -> bytes | None:
        """Return the bytes, or None where there are none. Raises: FileNotFoundError where the store is away."""
        there = self.folder_exists(session_id)
        data = get_blob(os.path.join(self.root, session_id), digest) if there else None
        if data is None:
            refuse_when_away(self.root)
        return data

    def session_ids(self) -> list[str]:
        """Return the names of all folders that can be sessions. Raises: FileNotFoundError where the store is away."""
        refuse_when_away(self.root)
        with os.scandir(self.root) as found:
            return [entry.name for entry in found if _SESSION_ID.fullmatch(entry.name) and entry.is_dir()]

    def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None) -> None:
        """Replace the mark once nobody is in the middle of a change, on this machine or another. Raises: ConflictError."""
        with self.index_lock.held(wait_s=WAIT_S), self.bindings.lock.held(wait_s=WAIT_S):
            check_expected(self.mark.read(), expected, store=self.settings.url)
            self.mark.write(mark)
            self.mark.own_move = own_move(mark)
            if mark is not None:
                # The index's lock is this machine's, and blobs are kept without it: whoever had a session has let go of it.
                for session_id in self.session_ids():
                    with suppress(SessionNotFoundError), self.locked_raw(session_id, wait_s=WAIT_S):
                        pass

    def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Make ids taken for ever, but for those that there are sessions of."""
        with self.index_lock.held(wait_s=WAIT_S):
            self.mark.check()
            for tombstone in tombstones:
                if not (self.folder_exists(tombstone.session_id) or self.is_erased(tombstone.session_id)):
                    leave_tombstone(self.root, tombstone, sync=self.settings.syncs)

    def is_erased(self, session_id: str) -> bool:
        """Return True when a session of this id was erased."""
        return os.path.exists(os.path.join(self.root, TOMBSTONES, session_id))

    # -- the index -------------------------------------------------------------------------------------------------------

    @contextmanager
    def indexing(self, *, wait_s: float) -> Iterator[Index]:
        """Hold the index open and current, and keep others from building it anew meanwhile."""
        self.enter_index(wait_s)
        try:
            yield self.index
        except apsw.Error as error:
            raise self.index_failure(error) from error
        finally:
            self.index_lock.release()

    def enter_index(self, wait_s: float) -> None:
        """Take the index's lock, with the index open and current; the caller releases it."""
        while True:
            self.index_lock.acquire(wait_s=wait_s, shared=True)
            if self.index.is_current() and not self.broken:
                return
            self.index_lock.release()
            if wait_s <= 0:
                raise BlockingIOError
            self.rebuild()

    def index_failure(self, error: apsw.Error) -> StoreUnavailableError:
        """Return what to raise for an error of the index, which is made anew next time when it is damaged."""
        if isinstance(error, (apsw.CorruptError, apsw.NotADBError, apsw.SQLError)):
            self.broken = True
        if isinstance(error, apsw.FullError):
            return StoreFullError(store=self.settings.url, reason=f"its index: {error}")
        return StoreUnavailableError(store=self.settings.url, reason=f"its index: {error}")

    def rebuild(self) -> None:
        """Open the index; where it is missing, damaged or of another version, make it from the logs."""
        try:
            self._open_or_build()
        except apsw.Error as error:
            raise self.index_failure(error) from error

    def _open_or_build(self) -> None:
        with self.index_lock.held(wait_s=WAIT_S):
            if not self.broken and (self.index.is_current() or self.index.open()):
                self._register()
                return
            refuse_when_away(self.root)
            self.index.build()
            with self.index.transaction():  # nobody else is in the middle of anything: the index's lock is held alone
                for session_id in self.session_ids():
                    self._heal(session_id, nullcontext)
            self.index.complete()
            self.broken = False
            self._register()

    def _register(self) -> None:
        if not self.settings.read_only:
            self.index.register(self.owner)

    def heal(self, session_id: str) -> None:
        """Make the index say what a session's log says. What cannot be read is listed as such.

        The session's lock comes before the transaction, as in every commit: the other way round, the two wait for each other.
        """
        self._heal(session_id, self.index.transaction)

    def _heal(self, session_id: str, together: Callable[[], AbstractContextManager[None]]) -> None:
        try:
            with self.locked(session_id, wait_s=WAIT_S, shared=True) as opened, together():
                self.put(opened)
        except SessionNotFoundError:
            if not self._is_being_erased(session_id):
                with together():
                    self.index.remove(session_id)
        except (OSError, StoreCorruptError) as error:
            reason = error.reason if isinstance(error, StoreCorruptError) else str(error.strerror)
            with together():
                self._put_unreadable(session_id, reason)
        self._is_written(session_id)

    def put(self, opened: OpenLog) -> None:
        """Write a log's head, place and keys to the index, inside a transaction and under the log's lock."""
        log = opened.log
        now_us = self.now_us()
        self.index.put(log.entry(), opened.lease.read(now_us=now_us))
        self.index.remember(opened.session_id, log.found_keys, now_us=now_us)
        log.found_keys.clear()
        self._is_written(opened.session_id)

    def _is_written(self, session_id: str) -> None:
        self.stale.discard(session_id)
        self.backlog.discard(session_id)

    def _put_unreadable(self, session_id: str, reason: str) -> None:
        row = {"session_id": session_id, "status": "unreadable", "title": f"(unreadable: {reason})", "last_seq": 0}
        self.index.remove(session_id)
        self.index.put(LogEntry(session_id, 0, -1, 0, 0, False, (), row), LeaseState())

    def _is_being_erased(self, session_id: str) -> bool:
        return os.path.isdir(os.path.join(self.root, session_id))

    def behind(self, session_ids: set[str]) -> list[str]:
        """Return those sessions whose index row does not say yet, or could not, what their log says."""
        return [*self.stale.intersection(session_ids), *self.backlog.intersection(session_ids)]

    def dead_writers(self) -> list[str]:
        """Return writers that died without having finished."""
        return [owner for owner in self.index.writers() if owner != self.owner and self.liveness.is_dead(owner)]

    def refresh_all(self) -> None:
        """Compare every log with the index, by size, time and inode, and heal what differs. Takes the index's lock."""
        with self.indexing(wait_s=WAIT_S) as index:
            dead = self.dead_writers()
            differing = self._differing()
            for session_id in differing:
                self.heal(session_id)
            for owner in dead:
                index.unregister(owner)
            if differing and not self.settings.read_only:
                self.notes.write(differing)

    def _differing(self) -> list[str]:
        known = self.index.places()
        there = self.session_ids()
        gone = set(known).difference(there)
        return [*gone, *(session_id for session_id in there if not self._is_known(session_id, known.get(session_id)))]

    def _is_known(self, session_id: str, known: tuple[int, int, int, int] | None) -> bool:
        if known is None or session_id in self.stale:
            return False
        segment, size, mtime_ns, inode = known
        folder = f"{self.root}/{session_id}"
        if os.access(f"{folder}/{segment_name(segment + 1)}", os.F_OK):
            return False
        if segment == 0:
            return size == 0
        try:
            now = os.stat(f"{folder}/{segment_name(segment)}")
        except OSError:
            return False
        return (now.st_size, now.st_mtime_ns, now.st_ino) == (size, mtime_ns, inode)

    # -- bindings --------------------------------------------------------------------------------------------------------

    def settle(self, intent: Intent) -> bool:
        """Return whether the batch that was to bind a key is in its session's log. The caller holds the bindings' lock."""
        bounds = self._bounds(intent.session_id)
        return any((bound.key, bound.generation) == (intent.key, intent.generation) for bound in bounds)

    def _bounds(self, session_id: str) -> list[Bound]:
        log = SessionLog(self.root, session_id)
        try:
            log.refresh()
        except SessionNotFoundError:
            return []
        return [bound for bound, _ in log.scan.bounds] if log.scan is not None else []

    def _bound_in_logs(self) -> dict[str, KeyState]:
        """Return where keys lead by the newest batch that bound each, in all the logs that can be read."""
        found: dict[str, KeyState] = {}
        for session_id in self.session_ids():
            with suppress(OSError, StoreCorruptError):
                for bound in self._bounds(session_id):
                    if bound.generation > found.get(bound.key, UNBOUND).generation:
                        found[bound.key] = KeyState(session_id, bound.generation)
        return found

    def close(self) -> None:
        """Close every file. Whoever calls lets nobody use the shelf any more."""
        with self._mutex:
            for opened in self._logs.values():
                opened.close()
            self._logs.clear()
        self.hints.close()
        self.index.close()
        self.notes.close()
        for lock in (self.index_lock, self.bindings.lock):
            lock.close()
