"""Short work on the shelf: done in place while nobody holds a lock, else in a thread that may wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import apsw

from kipu.errors import StoreCorruptError, StoreUnavailableError
from kipu.ports.head import Head
from kipu.ports.store import Hit, IndexEntry, Outcome, Page, SearchQuery
from kipu.stores.jsonl.failure import translating
from kipu.stores.jsonl.index import Index
from kipu.stores.jsonl.lease import LeaseState
from kipu.stores.jsonl.log import LogView
from kipu.stores.jsonl.shelf import WAIT_S, OpenLog, Shelf
from kipu.stores.tables import head_table, patience, search_table

T = TypeVar("T")
_OPENINGS = 8
LeaseChange = Callable[[dict[str, object], int], tuple[LeaseState | None, T]]


class Desk:
    """Answer questions and change leases for the store.

    It reads the index over a connection of its own, but where the index is in memory: there all take turns under its lock.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._reader = None if shelf.settings.read_only else Index(shelf.settings.index_folder, url=shelf.settings.url)
        self._mutex = threading.Lock()
        self._compared = False
        self._searches = patience.Pace()
        self._seen_changes = shelf.notes.stamp()

    async def run(self, work: Callable[[float], T]) -> T:
        """Run `work(wait_s)` in place, or in a thread when it would have to wait."""
        try:
            return work(0)
        except BlockingIOError:
            return await asyncio.to_thread(work, WAIT_S)

    # -- logs and leases -------------------------------------------------------------------------------------------------

    def refreshed(self, session_id: str, *, wait_s: float) -> tuple[OpenLog, LogView]:
        """Return a session's log as it is now."""
        with self._shelf.locked(session_id, wait_s=wait_s, shared=True) as opened:
            return opened, opened.log.known

    def looked_at_anew(self, session_id: str) -> LogView:
        """Return a session's log after every line of it was read: some line was not where it should be."""
        with self._shelf.locked_raw(session_id, wait_s=WAIT_S) as opened:
            self._shelf.stale.add(session_id)
            return opened.log.rescan()

    async def lease(self, session_id: str, change: LeaseChange[T]) -> T:
        """Change a lease under the session's lock and show it in the index. Raises: SessionNotFoundError."""
        return await self.run(lambda wait_s: self._leased(session_id, change, wait_s=wait_s))

    def _leased(self, session_id: str, change: LeaseChange[T], *, wait_s: float) -> T:
        shelf = self._shelf
        with shelf.indexing(wait_s=wait_s) as index, shelf.locked_raw(session_id, wait_s=wait_s) as opened:
            now_us = shelf.now_us()
            state = opened.lease.read(now_us=now_us)
            last_seq = 0 if opened.log.is_being_erased() else shelf.refresh(opened).last_seq
            after, answer = change(state.onto({"session_id": session_id, "last_seq": last_seq}), now_us)
            if after is not None:
                opened.lease.write(after)
                if not (shelf.backlog.intersection({session_id}) and shelf.backlog.takes([session_id])):
                    with index.transaction():
                        index.put_lease(session_id, after)
            return answer

    # -- the index -------------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Make the index true before it is listed: once per process against every log, and after a process has died."""
        shelf = self._shelf
        await self.run(lambda wait_s: shelf.backlog.write(wait_s=wait_s))
        if not self._compared or shelf.settings.remote:
            await asyncio.to_thread(shelf.refresh_all)
            self._compared = True
        elif shelf.stale or self._others_died(await self.ask(Index.writers)):
            await asyncio.to_thread(shelf.refresh_all)

    def catch_up_now(self) -> None:
        """Make the index true where nothing can be awaited; every log is compared only beside other writers.

        From now on notes are written, for whoever asks is about to follow them.
        """
        shelf = self._shelf
        shelf.noting = True
        shelf.backlog.write(wait_s=WAIT_S)
        with translating(shelf.settings.url):
            if not self._compared and not self.ask_now(lambda index: index.is_alone(shelf.owner)):
                shelf.refresh_all()
                self._compared = True

    def last_seqs(self) -> dict[str, int]:
        """Return the last seq of every session."""
        self._shelf.backlog.write(wait_s=WAIT_S)
        with translating(self._shelf.settings.url):
            return self.ask_now(Index.last_seqs)

    def _others_died(self, writers: Sequence[str]) -> bool:
        shelf = self._shelf
        return any(owner != shelf.owner and shelf.liveness.is_dead(owner) for owner in writers)

    async def ask(self, question: Callable[[Index], T]) -> T:
        """Ask the index, in place where it is open and the answer takes few steps."""
        reader = self._reader
        if reader is None:
            return await self.run(lambda wait_s: self._ask_in_turn(question, wait_s=wait_s))
        if self._mutex.acquire(blocking=False):
            try:
                if reader.is_current():
                    return patience.answer_soon(reader.connection, lambda _: question(reader))
            except apsw.InterruptError:
                pass  # it takes many
            except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, StoreCorruptError):
                self._shelf.broken = True
            except apsw.Error as error:
                raise StoreUnavailableError(store=self._shelf.settings.url, reason=f"its index: {error}") from error
            finally:
                self._mutex.release()
        return await asyncio.to_thread(self.ask_now, question)

    async def runnable(self, *, now: str, limit: int) -> list[Head]:
        """Return sessions with work that is due and without a live lease, once the index is true."""
        alive = self._shelf.liveness
        with translating(self._shelf.settings.url):
            await self.catch_up()
            return await self.ask(lambda index: head_table.runnable(index.connection, alive, now=now, limit=limit))

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Search in place while searches are quick, else in a thread."""

        def find(index: Index) -> Page[Hit]:
            return search_table.find(index.connection, query)

        with self._searches.timed():
            return await (self.ask(find) if self._searches.are_quick else asyncio.to_thread(self.ask_now, find))

    def ask_now(self, question: Callable[[Index], T]) -> T:
        """Ask the index, which is made anew first where it is missing or damaged."""
        reader = self._reader
        if reader is None:
            return self._ask_in_turn(question, wait_s=WAIT_S)
        with self._mutex:
            for attempt in range(3):
                try:
                    self._open(reader)
                    return question(reader)
                except (apsw.CorruptError, apsw.NotADBError, StoreCorruptError) as error:
                    self._shelf.broken = True
                    if attempt == 2:
                        raise StoreUnavailableError(
                            store=self._shelf.settings.url, reason=f"its index is damaged: {error}"
                        ) from error
                except apsw.Error as error:
                    raise StoreUnavailableError(store=self._shelf.settings.url, reason=f"its index: {error}") from error
            raise AssertionError

    def _ask_in_turn(self, question: Callable[[Index], T], *, wait_s: float) -> T:
        """Ask over the one connection there is. Raises: BlockingIOError where `wait_s` is 0 and it takes a while."""
        with self._shelf.indexing(wait_s=wait_s) as index:
            if wait_s > 0:
                return question(index)
            try:
                return patience.answer_soon(index.connection, lambda _: question(index))
            except apsw.InterruptError as error:
                raise BlockingIOError from error

    def _open(self, reader: Index) -> None:
        if reader.is_current() and not self._shelf.broken:
            return
        for _ in range(_OPENINGS):  # somebody may build it anew between the two
            with self._shelf.indexing(wait_s=WAIT_S):
                pass
            if reader.open():
                return
        raise StoreUnavailableError(store=self._shelf.settings.url, reason="its index cannot be opened a second time")

    async def indexed_seq(self, session_id: str) -> int:
        """Return how far a session is indexed."""

        def look(index: Index) -> int:
            row = head_table.load(index.connection, session_id, store=self._shelf.settings.url)
            seq: int = row.data.get("indexed_seq", 0) if row else 0
            return seq

        try:
            # Over the connection that is open anyway: whoever opens one session needs no second one.
            with self._shelf.indexing(wait_s=0) as index:
                return look(index)
        except BlockingIOError:
            return await self.ask(look)

    def outcomes(self, session_id: str) -> list[Outcome]:
        """Return a session's batches that have a key, after the index was made to say what the log says."""
        shelf = self._shelf
        with shelf.indexing(wait_s=WAIT_S) as index:
            shelf.heal(session_id)
            return index.outcomes(session_id, now_us=shelf.now_us())

    def keys_of(self, session_id: str, *, wait_s: float) -> list[str]:
        """Return the keys that lead to a session."""
        bindings = self._shelf.bindings
        with bindings.lock.held(wait_s=wait_s):
            bindings.refresh(self._shelf.settle)
            return bindings.of_session(session_id)

    def take_terms(self, entries: Sequence[IndexEntry], indexed: Mapping[str, int]) -> None:
        """Take in terms and move `indexed_seq`, together."""
        with translating(self._shelf.settings.url), self._shelf.indexing(wait_s=WAIT_S) as index:
            behind = self._shelf.behind({*indexed, *(entry.session_id for entry in entries)})
            for session_id in behind:
                self._shelf.heal(session_id)
            with index.transaction():
                numbers = {session_id: index.put_indexed(session_id, seq) for session_id, seq in indexed.items()}
                for entry in entries:
                    if entry.session_id not in numbers:
                        numbers[entry.session_id] = index.put_indexed(entry.session_id, 0)
                    number = numbers[entry.session_id]
                    if number is not None:
                        search_table.add(index.connection, number, seq=entry.seq, terms=entry.terms)

    def drop_terms(self) -> None:
        """Forget every term."""
        shelf = self._shelf
        with translating(shelf.settings.url), shelf.indexing(wait_s=WAIT_S) as index, index.transaction():
            search_table.clear(index.connection)
            index.heads.forget_indexed()

    def changed(self) -> bool:
        """Return True when somebody has appended since this was asked last."""
        before, self._seen_changes = self._seen_changes, self._shelf.notes.stamp()
        return self._seen_changes != before

    def close(self) -> None:
        """Say that this process has finished, and close every file."""
        shelf = self._shelf
        try:
            shelf.backlog.write(wait_s=WAIT_S)
            if not shelf.stale and not shelf.settings.read_only and shelf.index.is_current():
                shelf.index.unregister(shelf.owner)
        except (apsw.Error, StoreCorruptError):
            pass
        finally:
            if self._reader is not None:
                self._reader.close()
            shelf.close()
