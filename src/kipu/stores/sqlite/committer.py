"""The one writer of a process: it commits whatever waits as one transaction, and tells everyone how theirs went."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Literal, TypeVar, cast

import apsw

from kipu.errors import KipuError, StoreClosedError, StoreUnavailableError
from kipu.ports.store import StoreMark
from kipu.stores.postponed import cancel_again, cancellations
from kipu.stores.sqlite import mark_table
from kipu.stores.sqlite.connection import BUSY_TIMEOUT_S, wait_fairly
from kipu.stores.store_mark import refusal
from kipu.stores.tables.driver_errors import translate
from kipu.stores.tables.heads import Heads

T = TypeVar("T")
Change = Literal["claim", "content"]

# A commit in place costs no thread hop (0.2 ms), but holds up the event loop for as long as the disk takes.
IN_PLACE_BELOW_S = 0.002
# Whoever was alone in the queue is likely to be so again, and need not go through it; now and then it looks for company.
ALONE_STREAK = 7
BUFFERED_EVENTS = 10
BUFFERED_S = 1.0
_NORMAL, _FULL = 1, 2
_QUEUED, _RUNNING, _DONE, _WITHDRAWN = range(4)


class Job(Generic[T]):
    """Something to be done inside a transaction. It raises KipuErrors only before it has written anything."""

    __slots__ = (
        "change",
        "error",
        "events",
        "future",
        "heavy",
        "outside",
        "result",
        "run",
        "state",
        "synced",
        "types",
        "urgent",
    )

    def __init__(
        self,
        run: Callable[[Heads], T],
        *,
        synced: bool = False,
        urgent: bool = False,
        heavy: bool = False,
        outside: bool = False,
        events: int = 0,
        types: AbstractSet[str] | None = None,
        change: Change | None = None,
    ) -> None:
        self.run = run
        self.change = change  # what a mark of the store may forbid
        self.synced = synced
        self.urgent = urgent
        self.heavy = heavy or outside  # takes long: not in the event loop
        self.outside = outside  # has transactions of its own
        self.events = events
        self.types = types  # of the events that it appends; None where followers had better look
        self.state = _QUEUED
        self.result: T | None = None
        self.error: Exception | None = None
        self.future: asyncio.Future[None] | None = None


class Committer:
    """Queue jobs, commit them together, and keep the stated durability."""

    def __init__(
        self,
        heads: Heads,
        *,
        store: str,
        durability: str,
        wal: bool,
        committed: Callable[[AbstractSet[str] | None], None],
    ) -> None:
        self._heads = heads
        self._connection = heads.connection
        self._path = heads.connection.filename
        self._inode = os.stat(self._path).st_ino
        self._store = store
        self._durability = durability
        self._wal = wal
        self._committed = committed
        self._queue: list[Job[Any]] = []
        self._scheduled = False
        self._busy = False
        self._closing = False
        self._suspect = False
        self._commit_s = 0.0
        self._alone = 0
        self._level = 0
        self._unsynced = 0
        self._timer: asyncio.TimerHandle | None = None
        self._wal_handle = -1
        self._syncing: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kipu-writer")
        self._mark: StoreMark | None = None
        self._mark_is_known = False
        self.own_move: str | None = None  # the move that this process may write for

    async def submit(self, job: Job[T]) -> T:
        """Return the job's result once it is committed. When cancelled, it has happened whole or not at all."""
        if self._closing:
            raise StoreClosedError(store=self._store)
        if self._alone > 0 and self._may_skip_queue(job):
            self._alone -= 1
            if self._in_place([job]):
                self._finish([job])
                return self._outcome(job)
        standing = await cancellations()
        loop = asyncio.get_running_loop()
        job.future = loop.create_future()
        self._queue.append(job)
        if not self._scheduled and not self._busy:
            self._scheduled = True
            loop.call_soon(self._flush)
        try:
            await job.future
        except asyncio.CancelledError:
            if not await self._outlast(job, loop):
                raise
            cancel_again(standing)
        return self._outcome(job)

    def _outcome(self, job: Job[T]) -> T:
        if job.error is not None:
            raise job.error
        return cast("T", job.result)

    def _may_skip_queue(self, job: Job[Any]) -> bool:
        waiting = self._queue or self._scheduled or self._busy
        return not (waiting or job.heavy or self._suspect) and self._wal and self._commit_s < IN_PLACE_BELOW_S

    async def _outlast(self, job: Job[Any], loop: asyncio.AbstractEventLoop) -> bool:
        """Withdraw a cancelled job that still waits; else see it through, and return whether it happened."""
        if job.state == _QUEUED:
            self._queue.remove(job)
            job.state = _WITHDRAWN
        while job.state == _RUNNING:
            job.future = loop.create_future()
            try:
                await job.future
            except asyncio.CancelledError:
                continue
        return job.state != _WITHDRAWN and job.error is None

    async def close(self) -> None:
        """Commit what waits, sync what is not synced, and end the thread. The connection stays open."""
        self._closing = True
        while self._queue or self._busy or self._scheduled:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unsynced:
            self._sync_log()
        if self._wal_handle >= 0:
            os.close(self._wal_handle)
            self._wal_handle = -1
        self._thread.shutdown(wait=True)

    def _flush(self) -> None:
        self._scheduled = False
        if self._busy:
            return
        batch = self._take()
        if not batch:
            self._rest()
            return
        self._alone = ALONE_STREAK if len(batch) == 1 else 0
        in_place = self._wal and self._commit_s < IN_PLACE_BELOW_S and not any(job.heavy for job in batch)
        if in_place and not self._suspect and self._in_place(batch):
            self._finish(batch)
            return
        self._busy = True
        loop = asyncio.get_running_loop()
        ending = loop.run_in_executor(self._thread, self._run_waiting, batch)
        ending.add_done_callback(lambda _: self._thread_ended(batch))

    def _in_place(self, batch: list[Job[Any]]) -> bool:
        """Commit here and now; return False, with nothing done, where another process has the lock."""
        try:
            if not self._begin(batch, wait_s=0):
                return False
        except Exception as error:  # noqa: BLE001 - whatever it is, every caller must hear of it
            self._fail(batch, error)
            return True
        self._run(batch)
        return True

    def _take(self) -> list[Job[Any]]:
        batch = []
        for job in self._queue:
            if job.future is not None and job.future.cancelled():
                job.state = _WITHDRAWN
            else:
                job.state = _RUNNING
                batch.append(job)
        self._queue.clear()
        return batch

    def _thread_ended(self, batch: list[Job[Any]]) -> None:
        self._busy = False
        self._finish(batch)
        if self._queue and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _finish(self, batch: list[Job[Any]]) -> None:
        happened: list[Job[Any]] = []
        for job in batch:
            job.state = _DONE
            if job.error is None:
                happened.append(job)
            if job.future is not None and not job.future.done():
                job.future.set_result(None)
        self._tell(happened)
        self._sync_by_clock()
        self._rest()

    def _tell(self, happened: list[Job[Any]]) -> None:
        types: set[str] = set()
        for job in happened:
            if job.types is None:
                self._committed(None)
                return
            types |= job.types
        if types:
            self._committed(types)

    def _rest(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _run_waiting(self, batch: list[Job[Any]]) -> None:
        """Commit in the writer thread, where waiting for other processes holds up nobody."""
        inside = [job for job in batch if not job.outside]
        if inside:
            self._run_when_free(inside)
        for job in batch:
            if job.outside:
                try:
                    job.result = job.run(self._heads)
                except Exception as error:  # noqa: BLE001 - as above
                    self._roll_back()
                    self._fail([job], error)

    def _run_when_free(self, batch: list[Job[Any]]) -> None:
        try:
            if self._suspect:
                self._renew_log()
            if not self._begin(batch, wait_s=BUSY_TIMEOUT_S):
                raise StoreUnavailableError(store=self._store, reason="another process holds it locked")
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(batch, error)
            return
        self._run(batch)

    def _begin(self, batch: list[Job[Any]], *, wait_s: float) -> bool:
        """Begin a transaction with the sync that the batch needs; return False where another process has one."""
        if not self._is_in_its_place():
            reason = "its file was moved, replaced or removed while it was open; open it again where it is"
            raise StoreUnavailableError(store=self._store, reason=reason)
        level = self._needed_level(batch)
        if level != self._level:
            self._connection.execute(f"PRAGMA synchronous = {level}")
            self._level = level
        if wait_s:
            wait_fairly(self._connection, limit_s=wait_s)
        else:
            self._connection.set_busy_timeout(0)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        return True

    def _is_in_its_place(self) -> bool:
        """Return False where the path leads to another file: its log and ours would have one name, and ruin each other."""
        try:
            return os.stat(self._path).st_ino == self._inode
        except OSError:
            return False

    def _needed_level(self, batch: list[Job[Any]]) -> int:
        if self._durability == "fsync":
            return _FULL if any(job.synced for job in batch) else _NORMAL
        if self._durability == "buffered" and (
            any(job.urgent for job in batch) or self._unsynced + sum([job.events for job in batch]) >= BUFFERED_EVENTS
        ):
            return _FULL
        return _NORMAL

    def _run(self, batch: list[Job[Any]]) -> None:
        """Do every job and commit; the transaction has begun."""
        heads = self._heads
        try:
            if heads.begin():
                self._mark_is_known = False
            for job in batch:
                job.error = self._forbidden(job)
                if job.error is not None:
                    continue
                try:
                    job.result = job.run(heads)
                except KipuError as refused:
                    job.error = refused
            start_s = time.perf_counter()
            self._connection.execute("COMMIT")
            heads.committed()
        except BaseException as error:
            self._roll_back()
            if not isinstance(error, Exception):
                self._fail(batch, StoreUnavailableError(store=self._store, reason="the process was interrupted"))
                raise
            if len(batch) > 1 and not isinstance(error, (apsw.FullError, apsw.IOError)):
                self._run_singly(batch)
            else:
                self._fail(batch, error)
            return
        self._commit_s += 0.2 * (time.perf_counter() - start_s - self._commit_s)
        self._unsynced = 0 if self._level == _FULL else self._unsynced + sum([job.events for job in batch])

    def _forbidden(self, job: Job[Any]) -> KipuError | None:
        """Return why the store's mark forbids the job. It is read where another process, or a job here, may have changed it."""
        if not self._mark_is_known:
            self._mark, self._mark_is_known = mark_table.load(self._connection), True
        if self._mark is None or job.change is None:
            return None
        return refusal(self._mark, own=self.own_move, store=self._store, claims=job.change == "claim")

    def forget_mark(self) -> None:
        """Read the mark anew before the next job: one changes it, inside its transaction."""
        self._mark_is_known = False

    def _run_singly(self, batch: list[Job[Any]]) -> None:
        """Commit each job by itself, so that the one that cannot be stored hurts no other."""
        for job in batch:
            job.error = None
            self._run_when_free([job])

    def _fail(self, batch: list[Job[Any]], error: Exception) -> None:
        if isinstance(error, apsw.IOError):
            self._suspect = True
        for job in batch:
            # A refusal stands whatever became of the others.
            if not isinstance(job.error, KipuError):
                ours = translate(error, store=self._store)
                if ours is not None:
                    ours.__cause__ = error
                job.error = ours or error

    def _roll_back(self) -> None:
        self._heads.forget()
        self._mark_is_known = False
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            self._suspect = True

    def _renew_log(self) -> None:
        """Begin a new write-ahead log after a failed write or sync.

        The kernel may have marked pages clean that never reached the disk; a later sync would succeed over them. Moving
        everything into the database writes it once more.
        """
        row = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if self._wal and (row is None or row[0] != 0):
            raise StoreUnavailableError(store=self._store, reason="a write failed, and readers keep its log in use")
        self._suspect = False

    def _sync_soon(self) -> None:
        self._timer = None
        if self._unsynced and not self._closing:
            self._syncing = asyncio.get_running_loop().run_in_executor(self._thread, self._sync_log)
            self._syncing.add_done_callback(lambda _: self._sync_by_clock())

    def _sync_by_clock(self) -> None:
        if self._unsynced and self._durability == "buffered" and self._timer is None and not self._closing:
            self._timer = asyncio.get_running_loop().call_later(BUFFERED_S, self._sync_soon)

    def _sync_log(self) -> None:
        """Sync what was handed to the operating system; where that failed before, by a new log, and until it is done."""
        waiting, self._unsynced = self._unsynced, 0
        try:
            if self._suspect:
                self._renew_log()
                return
            if self._wal_handle < 0:
                # Unlike the database's, the log's handles carry no locks that closing one would drop.
                self._wal_handle = os.open(self._connection.filename_wal, os.O_RDWR | os.O_CLOEXEC)
            os.fdatasync(self._wal_handle)
        except (OSError, apsw.Error, StoreUnavailableError):
            self._suspect = True
            self._unsynced += waiting
