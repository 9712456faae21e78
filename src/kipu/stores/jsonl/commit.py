"""One commit of whatever waits: checked one by one, written once per session, put on the medium, then indexed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw

from kipu.errors import KipuError, SessionNotFoundError, StoreUnavailableError
from kipu.ports.head import HeadPatch, apply_patch
from kipu.ports.store import LEASE_FREE_TYPES, Appended
from kipu.stores.admission import AppendRequest, admit, ends_sharing
from kipu.stores.jsonl.bindings import Intent
from kipu.stores.jsonl.failure import translated
from kipu.stores.jsonl.index import NOT_OF_THE_LOG
from kipu.stores.jsonl.lease import LeaseState
from kipu.stores.jsonl.line import Bound, encode_batch
from kipu.stores.jsonl.lock import FileLock
from kipu.stores.jsonl.log import SessionLog
from kipu.stores.jsonl.scan import KeyPlace, Place
from kipu.stores.jsonl.settings import BUFFER_EVENTS
from kipu.stores.jsonl.shared import SHARED_SEQ, Taken
from kipu.stores.jsonl.shelf import WAIT_S, OpenLog, Shelf
from kipu.stores.tables.driver_errors import UNSTORABLE, unstorable

# So many threads sync the files of one commit: more cost more in handing over than the medium does side by side.
SYNC_LANES = 4
Outcome = Appended | Exception
Row = Mapping[str, Any]


class _Draft:
    """What is about to be written to one session."""

    __slots__ = (
        "error", "first_seq", "intents", "keys", "lines", "opened", "requests", "row", "session_id",
        "takes_over", "token", "urgent",
    )  # fmt: skip

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.opened: OpenLog | None = None
        self.row: Row | None = None
        self.first_seq = 0
        self.lines: list[bytes] = []
        self.requests: list[int] = []
        self.keys: list[KeyPlace] = []
        self.intents: list[Intent] = []
        self.urgent = self.takes_over = False
        self.token = 0  # that the next lease is to be above
        self.error: Exception | None = None


class Commit:
    """Run one commit. `outcomes` has, for every request, what became of it."""

    def __init__(self, shelf: Shelf, requests: Sequence[AppendRequest], *, pool: ThreadPoolExecutor) -> None:
        self._shelf = shelf
        self._requests = requests
        self._pool = pool
        self.outcomes: list[Outcome | None] = [None] * len(requests)
        self._drafts: dict[str, _Draft] = {}
        self._by_key: dict[str, int] = {}
        self._bound: dict[str, str] = {}
        self._leased = {request.session_id for request in requests if _needs_lease(request)}
        self._held: list[FileLock] = []

    def run(self, *, wait_s: float) -> None:
        """Do it. Raises: BlockingIOError, with nothing done, when `wait_s` is 0 and somebody holds a lock."""
        for _ in range(len(self._requests) + 3):
            unsettled = self._run_once(wait_s)
            if unsettled is None:
                return
            if wait_s <= 0:
                raise BlockingIOError
            self._settle(unsettled)
        self._fail_all(
            StoreUnavailableError(store=self._shelf.settings.url, reason="its idempotency keys do not settle")
        )

    def _run_once(self, wait_s: float) -> str | None:
        """Do it, or return the session whose log says whether somebody has appended under one of the keys."""
        self._drafts.clear()
        self._by_key.clear()
        self._bound.clear()
        shelf, requests = self._shelf, self._requests
        shelf.enter_index(wait_s)
        try:
            if any(request.bind is not None for request in requests):
                shelf.bindings.lock.acquire(wait_s=wait_s)
                self._held.append(shelf.bindings.lock)
                shelf.bindings.refresh(shelf.settle)
            for session_id in sorted({request.session_id for request in requests}):
                self._drafts[session_id] = self._take(session_id, wait_s)
            refused = shelf.mark.refusal()
            if refused is not None:
                self._fail_all(refused)
                return None
            unsettled = self._expect_keys()
            if unsettled is not None:
                return unsettled
            for number, request in enumerate(requests):
                self._decide(number, request)
            self._write()
            self._record()
        except apsw.Error as error:
            raise shelf.index_failure(error) from error
        finally:
            while self._held:
                self._held.pop().release()
            shelf.index_lock.release()
        return None

    def _fail_all(self, error: Exception) -> None:
        self.outcomes = [outcome if isinstance(outcome, Appended) else error for outcome in self.outcomes]

    def _take(self, session_id: str, wait_s: float) -> _Draft:
        draft = _Draft(session_id)
        try:
            self._lock(draft, wait_s)
        except SessionNotFoundError:
            # What the index remembers of a folder that is gone is nothing of the next one of that name.
            if self._shelf.index.entry(session_id) is not None:
                self._shelf.heal(session_id)
        except BlockingIOError:
            raise
        except OSError as error:
            draft.error = translated(error, self._shelf.settings.url)
        except KipuError as error:
            draft.error = error
        return draft

    def _lock(self, draft: _Draft, wait_s: float) -> None:
        opened = self._shelf.take(draft.session_id, wait_s=wait_s)
        self._held.append(opened.log.lock)
        draft.opened = opened
        view = self._shelf.refresh(opened)
        if view.last_seq == 0 and (view.size == 0 or not opened.log.damages()):
            return  # blank lines are no event either; where all is damaged there was one, and what comes goes on
        row = {"base_seq": 0, "last_seq": 0, **view.row}
        if draft.session_id in self._leased:
            row = opened.lease.read(now_us=self._shelf.now_us()).onto(row)
        draft.row = row

    # -- idempotency -----------------------------------------------------------------------------------------------------

    def _expect_keys(self) -> str | None:
        """Find what was appended under the requests' keys before, and say which keys are on their way now."""
        numbered = [(n, r) for n, r in enumerate(self._requests) if r.idempotency_key is not None]
        if not numbered:
            return None
        index = self._shelf.index
        with index.transaction():
            for draft in self._drafts.values():
                if draft.opened is not None and draft.opened.log.found_keys:
                    self._shelf.put(draft.opened)
            for number, request in numbered:
                unsettled = self._expect(number, request)
                if unsettled is not None:
                    return unsettled
        return None

    def _expect(self, number: int, request: AppendRequest) -> str | None:
        key, index = request.idempotency_key, self._shelf.index
        if key is None or key in self._by_key:
            return None
        try:
            known = index.outcome(key, now_us=self._shelf.now_us())
        except UNSTORABLE as error:
            self.outcomes[number] = unstorable(error)
            return None
        if known is not None:
            self.outcomes[number] = known
            return None
        other = index.pending(key)
        if other is not None and other not in self._drafts:
            return other
        self._by_key[key] = number
        index.expect(key, request.session_id)
        return None

    def _settle(self, session_id: str) -> None:
        """Read a session's log to its end, so that the index knows every key that is in it."""
        shelf = self._shelf
        with shelf.indexing(wait_s=WAIT_S) as index:
            try:
                with shelf.locked(session_id, wait_s=WAIT_S) as opened, index.transaction():
                    shelf.put(opened)
                    index.settle(session_id)
            except SessionNotFoundError:
                with index.transaction():
                    index.settle(session_id)

    # -- deciding --------------------------------------------------------------------------------------------------------

    def _decide(self, number: int, request: AppendRequest) -> None:
        known = self.outcomes[number]
        draft = self._drafts[request.session_id]
        try:
            if isinstance(known, Appended):
                self._confirm(known)
            elif known is not None:
                return  # its key is none that can be asked for
            elif (twin := self._by_key.get(request.idempotency_key or "")) is not None and twin != number:
                first = self.outcomes[twin]
                self.outcomes[number] = first._replace(duplicate=True) if isinstance(first, Appended) else first
            elif draft.error is not None:
                self.outcomes[number] = draft.error
            else:
                self._draw(number, request, draft)
        except KipuError as error:
            self.outcomes[number] = error
        except UNSTORABLE as error:  # here, or it would take down those that are committed with it
            self.outcomes[number] = unstorable(error)
        except OSError as error:
            self.outcomes[number] = translated(error, self._shelf.settings.url)

    def _confirm(self, known: Appended) -> None:
        """Make sure that what another process wrote is on the medium before it is acknowledged again."""
        draft = self._drafts.get(known.session_id)
        if draft is not None and draft.opened is not None and draft.opened.log.foreign and self._shelf.settings.syncs:
            draft.opened.log.ensure_handle()
            draft.opened.log.sync()

    def _draw(self, number: int, request: AppendRequest, draft: _Draft) -> None:
        shelf = self._shelf
        taken = draft.opened.shared.taken() if draft.opened is not None and ends_sharing(request) else Taken(0, 0)
        row = admit(
            request,
            draft.row,
            erased=draft.row is None and shelf.is_erased(request.session_id),
            bound_to=self._bound_to(request),
            adopted_seq=taken.last_seq if _shares(draft.row) else 0,
            now_us=shelf.now_us(),
            liveness=shelf.liveness,
        )
        if taken.last_seq and _shares(draft.row):
            request = request._replace(head=_taking_over(request.head, taken))
            draft.takes_over = True
        bound = self._binding(request)
        first_seq = row["last_seq"] + 1
        lines = encode_batch(
            request.session_id,
            request.records,
            first_seq=first_seq,
            head=request.head,
            key=request.idempotency_key,
            bound=bound,
        )
        if draft.opened is None:
            self._begin(draft)
        if bound is not None:
            draft.intents.append(shelf.bindings.intend(bound.key, request.session_id))
            self._bound[bound.key] = request.session_id
        self._add(number, request, draft, row, lines)

    def _bound_to(self, request: AppendRequest) -> str | None:
        if request.bind is None:
            return None
        key = request.bind.key
        return self._bound.get(key) or self._shelf.bindings.get(key).session_id

    def _binding(self, request: AppendRequest) -> Bound | None:
        if request.bind is None:
            return None
        generation = self._shelf.bindings.next_generation(request.bind.key)
        return Bound(request.bind.key, request.bind.expected, generation)

    def _begin(self, draft: _Draft) -> None:
        opened = self._shelf.open_log(draft.session_id)
        opened.log.create(sync=self._shelf.settings.syncs)
        draft.opened = opened = self._shelf.take(draft.session_id, wait_s=WAIT_S)
        self._held.append(opened.log.lock)
        self._shelf.refresh(opened)

    def _add(self, number: int, request: AppendRequest, draft: _Draft, row: Row, lines: Iterable[bytes]) -> None:
        first_seq = row["last_seq"] + 1
        records = request.records
        draft.row = apply_patch(
            row,
            request.head,
            first_seq=first_seq,
            timestamps=[record.timestamp for record in records],
            tokens=sum(record.tokens for record in records),
        )
        if not draft.lines:
            draft.first_seq = first_seq
        draft.lines.extend(lines)
        draft.requests.append(number)
        draft.token = request.head.set.get("lease_token", draft.token)
        draft.urgent = draft.urgent or any(record.urgent for record in records)
        last_seq = first_seq + len(records) - 1
        if request.idempotency_key is not None:
            draft.keys.append(KeyPlace(request.idempotency_key, first_seq, last_seq, self._shelf.now()))
        self.outcomes[number] = Appended(request.session_id, first_seq, last_seq)

    # -- writing ---------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        drafts = [draft for draft in self._drafts.values() if draft.lines]
        for draft in drafts:
            self._guard(draft, self._hand_over)
        fine = [draft for draft in drafts if draft.error is None and self._syncs_now(draft)]
        if len(fine) > 1:
            for draft in fine:
                _log(draft).begin_sync(sum(map(len, draft.lines)))
        lanes = [fine[lane::SYNC_LANES] for lane in range(min(SYNC_LANES, len(fine)))]
        others = [self._pool.submit(self._sync_all, lane) for lane in lanes[1:]]
        for lane in lanes[:1]:
            self._sync_all(lane)
        for other in others:
            other.result()
        for draft in drafts:
            if draft.error is None:
                self._keep(draft)
            else:
                self._give_up(draft)

    def _guard(self, draft: _Draft, step: Callable[[_Draft], None]) -> None:
        try:
            step(draft)
        except OSError as error:
            draft.error = translated(error, self._shelf.settings.url)

    def _hand_over(self, draft: _Draft) -> None:
        settings = self._shelf.settings
        log = _log(draft)
        if log.view is not None and log.view.last_seq + 1 != draft.first_seq and log.view.last_seq:
            raise OSError(116, "the log moved while its lock was held")
        log.prepare(at=self._shelf.now, segment_bytes=settings.segment_bytes, sync=settings.syncs)
        log.write(b"".join(draft.lines))

    def _sync_all(self, drafts: Sequence[_Draft]) -> None:
        for draft in drafts:
            self._guard(draft, lambda draft: _log(draft).sync())

    def _syncs_now(self, draft: _Draft) -> bool:
        durability = self._shelf.settings.durability
        if durability != "buffered":
            return durability == "fsync"
        log = _log(draft)
        log.unsynced += len(draft.lines)
        waiting = sum(opened.log.unsynced for opened in self._shelf.dirty_logs())
        return draft.urgent or waiting >= BUFFER_EVENTS

    def _keep(self, draft: _Draft) -> None:
        log = _log(draft)
        view = log.known
        places, offset = [], view.size
        for line in draft.lines:
            places.append(Place(view.segment, offset, len(line) - 1))
            offset += len(line)
        row = dict(draft.row or {})
        for name in NOT_OF_THE_LOG:
            row.pop(name, None)
        log.keep(row, written=offset - view.size, places=places, first_seq=draft.first_seq)
        if draft.token:
            lease = _opened(draft).lease
            known = lease.read(now_us=self._shelf.now_us())
            lease.write(LeaseState(None, max(draft.token, known.token), None))
        for intent in draft.intents:
            self._finish(intent, happened=True)

    def _finish(self, intent: Intent, *, happened: bool) -> None:
        try:
            self._shelf.bindings.finish(intent, happened=happened)
        except OSError:
            # The intent stands, and whoever looks next settles it by the session's log.
            self._shelf.bindings.reload()

    def _give_up(self, draft: _Draft) -> None:
        for intent in draft.intents:
            self._finish(intent, happened=False)
        for number in draft.requests:
            self.outcomes[number] = draft.error
        log = _log(draft)
        # After a failed sync the log must be looked at anew: what it holds, its folder says.
        if (log.view is None or not log.view.last_seq) and log.remove_untouched():
            self._shelf.drop_log(draft.session_id)

    # -- indexing --------------------------------------------------------------------------------------------------------

    def _record(self) -> None:
        """Write what was appended to the index, or put it off. The logs have it already: what fails here is healed later."""
        shelf, index = self._shelf, self._shelf.index
        written = [draft for draft in self._drafts.values() if draft.lines and draft.error is None]
        refused = [key for key, number in self._by_key.items() if not isinstance(self.outcomes[number], Appended)]
        if not written and not refused:
            return
        session_ids = [draft.session_id for draft in written]
        try:
            at_once = self._by_key or any(draft.takes_over for draft in written)
            if not at_once and shelf.backlog.takes(session_ids):
                if shelf.noting:
                    shelf.notes.write(session_ids)
                return
            with index.transaction():
                for draft in written:
                    _log(draft).found_keys.extend(draft.keys)
                    shelf.put(_opened(draft))
                for key in refused:
                    index.sql("DELETE FROM pending WHERE key = ?", (key,))
            shelf.notes.write(session_ids)
        except (apsw.Error, OSError, KipuError) as error:
            shelf.stale.update(session_ids)
            shelf.broken = shelf.broken or isinstance(error, (apsw.CorruptError, apsw.NotADBError))


def _taking_over(head: HeadPatch, taken: Taken) -> HeadPatch:
    """Return the patch that also says what the session takes over, so that the log alone gives its head again."""
    counts = {"event_count": taken.last_seq, "token_count": taken.tokens}
    return head._replace(set={**head.set, SHARED_SEQ: taken.last_seq}, add={**head.add, **counts})


def _shares(row: Row | None) -> bool:
    """Return whether the session is a fork that still needs its parents' events."""
    return row is not None and row.get("base_seq", 0) > 0


def _opened(draft: _Draft) -> OpenLog:
    if draft.opened is None:
        raise SessionNotFoundError(session_id=draft.session_id)
    return draft.opened


def _log(draft: _Draft) -> SessionLog:
    return _opened(draft).log


def _needs_lease(request: AppendRequest) -> bool:
    return request.token is not None or any(r.event_type not in LEASE_FREE_TYPES for r in request.records)
