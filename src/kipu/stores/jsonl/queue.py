"""Group commit without hops: what is enqueued in one turn of the event loop is committed together, in place while that is quick."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor

from kipu.ports.store import Appended
from kipu.stores.admission import AppendRequest
from kipu.stores.jsonl.commit import SYNC_LANES, Commit
from kipu.stores.jsonl.failure import translating
from kipu.stores.jsonl.shelf import WAIT_S, Shelf
from kipu.stores.postponed import cancel_again, cancellations

# A commit that takes longer than this on average goes to a thread: the loop has other work.
QUICK_S = 0.002
_SMOOTHING = 0.2
# One commit in so many is tried in place although they are slow, to see whether the disk is quick again.
_TRY_EVERY = 64
# Whoever was alone in the queue is likely to be so again, and need not go through it; now and then it looks for company.
_ALONE_STREAK = 7


_NO_OUTCOME = "a commit left a request without an outcome"


class _Waiting:
    """A request and whoever waits for its outcome."""

    __slots__ = ("future", "outcome", "request")

    def __init__(self, request: AppendRequest, future: asyncio.Future[None]) -> None:
        self.request = request
        self.future = future
        self.outcome: Appended | Exception | None = None


class CommitQueue:
    """Collect appends and commit them. `committed` is called in the loop after each commit, with the types of what it wrote."""

    def __init__(self, shelf: Shelf, *, committed: Callable[[AbstractSet[str]], None]) -> None:
        self._shelf = shelf
        self._committed = committed
        self._waiting: list[_Waiting] = []
        self._scheduled = False
        self._busy: asyncio.Task[None] | None = None
        self._average_s = 0.0
        self._slow = 0
        self._alone = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kipu-jsonl")
        self._pool = ThreadPoolExecutor(SYNC_LANES, thread_name_prefix="kipu-jsonl-sync")

    async def append(self, request: AppendRequest) -> Appended:
        """Return where the batch stands once it is as durable as the store promises.

        A cancelled caller whose batch is being committed gets the outcome, and the cancellation at its next await.
        """
        if self._alone > 0 and self._may_skip_queue():
            self._alone -= 1
            outcome = self._alone_outcome(request)
            if outcome is not None:
                return outcome
        standing = await cancellations()
        loop = asyncio.get_running_loop()
        entry = _Waiting(request, loop.create_future())
        self._waiting.append(entry)
        if not self._scheduled and self._busy is None:
            self._scheduled = True
            loop.call_soon(self._flush)
        cancelled: asyncio.CancelledError | None = None
        while entry.outcome is None:
            try:
                await entry.future
            except asyncio.CancelledError as error:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                    raise
                cancelled = error
                entry.future = loop.create_future()
        if cancelled is not None:
            if not isinstance(entry.outcome, Appended):
                raise cancelled
            cancel_again(standing)
        if isinstance(entry.outcome, Appended):
            return entry.outcome
        raise entry.outcome

    def _may_skip_queue(self) -> bool:
        return not (self._waiting or self._scheduled or self._busy is not None) and self._average_s < QUICK_S

    def _alone_outcome(self, request: AppendRequest) -> Appended | None:
        """Commit one request here and now; return None, with nothing done, where somebody holds a lock."""
        commit = Commit(self._shelf, [request], pool=self._pool)
        try:
            self._timed(commit, 0)
        except BlockingIOError:
            return None
        outcome = commit.outcomes[0]
        if isinstance(outcome, Appended):
            self._committed(_types([request]))
            return outcome
        raise outcome or RuntimeError(_NO_OUTCOME)

    def _flush(self) -> None:
        self._scheduled = False
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        self._alone = _ALONE_STREAK if len(batch) == 1 else 0
        commit = Commit(self._shelf, [entry.request for entry in batch], pool=self._pool)
        self._slow += 1
        if self._average_s < QUICK_S or self._slow % _TRY_EVERY == 0:
            try:
                self._timed(commit, 0)
            except BlockingIOError:
                pass
            except Exception as error:  # noqa: BLE001 - it belongs to those who wait
                self._resolve(batch, commit, error)
                return
            else:
                self._resolve(batch, commit, None)
                return
        self._busy = asyncio.get_running_loop().create_task(self._flush_in_thread(batch, commit))

    async def _flush_in_thread(self, batch: list[_Waiting], commit: Commit) -> None:
        failure: Exception | None = None
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._timed, commit, WAIT_S)
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait
            failure = error
        self._busy = None
        self._resolve(batch, commit, failure)
        if self._waiting and not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._flush)

    def _timed(self, commit: Commit, wait_s: float) -> None:
        began = time.perf_counter()
        with translating(self._shelf.settings.url):
            commit.run(wait_s=wait_s)
        self._average_s += _SMOOTHING * (time.perf_counter() - began - self._average_s)

    def _resolve(self, batch: list[_Waiting], commit: Commit, failure: Exception | None) -> None:
        written: list[AppendRequest] = []
        for entry, outcome in zip(batch, commit.outcomes, strict=True):
            if isinstance(outcome, Appended):
                written.append(entry.request)
            # What was decided before a commit failed was not written: nobody may take it for done.
            entry.outcome = failure or outcome or RuntimeError(_NO_OUTCOME)
            if not entry.future.done():
                entry.future.set_result(None)
        if written:
            self._committed(_types(written))

    async def drain(self) -> None:
        """Return when everything that waits has been committed."""
        while self._waiting or self._busy is not None:
            if self._busy is not None:
                await asyncio.wait([self._busy])
            else:
                await asyncio.sleep(0)

    def close(self) -> None:
        """End the threads."""
        self._thread.shutdown(wait=True)
        self._pool.shutdown(wait=True)


def _types(requests: Iterable[AppendRequest]) -> set[str]:
    return {record.event_type for request in requests for record in request.records}
