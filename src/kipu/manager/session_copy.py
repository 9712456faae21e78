"""One session copied: what the target has is compared, what it lacks is appended and read back."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import orjson

from kipu.errors import BlobNotFoundError, ConflictError, CopyMismatchError
from kipu.manager.begun import begun
from kipu.manager.loader import item_of
from kipu.manager.lock import SessionLock
from kipu.manager.lost_events import Kept, WholeHistory
from kipu.manager.replaying import HeadReplay, difference
from kipu.ports.head import Head, head_to_json
from kipu.ports.store import MAX_PAGE, Appended, EventStore, Outcome, Record

_WAIT_S = 5.0
_LEASE_S = 30.0
_COUNTS = ("event_count", "token_count")


class Done(NamedTuple):
    """What of a session is the same in both stores: up to where, and which keys and blobs."""

    last_seq: int = 0
    keys: tuple[str, ...] = ()
    blobs: frozenset[str] = frozenset()


class SessionCopy:
    """Bring one session of the target to where the source's `head` is.

    Every append says which event it follows, so that two copies at once, or somebody's message in between, end in a
    conflict and never in a mixture. While more than one append is needed the session is locked, so that no worker takes a
    half of it for the whole. A batch that was appended under an idempotency key is appended as one, under the same key, so
    that what arrives a second time after the move is known in the target.

    `done` is what an earlier run of this process has brought over and compared: where the target is as that left it, nothing of
    it is looked at again. `alone` says that nobody else can write to the target, so that nothing need be locked there.
    """

    def __init__(
        self,
        source: EventStore,
        target: EventStore,
        *,
        head: Head,
        owner: str,
        verify: bool,
        moved: Callable[[int], None],
        done: Done | None = None,
        alone: bool = False,
    ) -> None:
        self._source = source
        self._target = target
        self._head = head
        self._id = head.session_id
        self._verify = verify
        self._moved = moved
        self._done = done or Done()
        self._alone = alone
        self._lock = SessionLock(target, self._id, owner=owner, ttl_s=_LEASE_S)
        self._locked = False
        self._there: Head | None = None
        self._replay = HeadReplay({})
        self._keyed: deque[Outcome] | None = None  # those that are not copied yet
        self.events = self.blobs = self.bindings = self.lost = 0
        self._shared = (0, 0)  # events that a fork takes over, and their tokens: the store counts them itself
        self.notes: list[str] = []
        self._keys: list[str] = []
        self._digests: list[str] = []

    @property
    def done(self) -> Done:
        """Return what the target has of the session, once it has run."""
        return Done(self._head.last_seq, tuple(self._keys), frozenset(self._digests))

    @property
    def changed(self) -> bool:
        """Return True when the target lacked anything."""
        return bool(self.events or self.blobs or self.bindings)

    async def run(self) -> None:
        """Do it. Raises: CopyMismatchError, SessionErasedError, SessionBusyError, ConcurrencyError, StoreError."""
        try:
            await self._meet()
            await self._copy_events()
            if self._there is not None:
                await self._copy_blobs()
            if not (self._alone and self._done.last_seq):  # then all heads are compared at the end
                await self._check_head()
            await self._bind_keys()
        finally:
            if self._locked:
                await self._lock.release()

    async def _meet(self) -> None:
        """Take a fresh look at both sides."""
        self._head = await self._source.head(self._id) or self._head
        base = self._head.base_seq
        self._there = await begun(self._target, self._id)
        if self._there is None:
            self._replay = HeadReplay(head_to_json(Head(session_id=self._id, last_seq=base)))
            if base:
                self._replay.put(base_seq=base)
            return
        stands_alone = base == 0 < self._there.base_seq
        if not stands_alone and (self._there.base_seq, self._there.forked_from) != (base, self._head.forked_from):
            raise self._mismatch(base + 1, "it begins elsewhere in the target")
        if self._there.last_seq > self._head.last_seq:
            raise self._mismatch(self._head.last_seq + 1, "the target goes on with events of its own")
        self._replay = HeadReplay(head_to_json(self._there))
        if stands_alone:
            await self._take_over(self._there.base_seq)
            self._done = self._done._replace(last_seq=self._there.last_seq)

    async def _take_over(self, base: int) -> None:
        """Give a fork that has come to stand alone in the source, in the target too, copies of what it shared."""
        await self._lock.acquire(wait_s=_WAIT_S)
        self._locked = True
        lease = self._lock.lease
        if lease is None:
            return
        end, after = await self._target.adopt(self._id, lease=lease), 0
        while after < base:
            events = await self._source.read(self._id, after=after, until=base)
            if not events:
                raise self._mismatch(after + 1, "it is missing in the source")
            records = [event.record for event in events]
            if events[-1].seq > end:
                end = await self._target.adopt(self._id, records, after=after, lease=lease)
            after = events[-1].seq
            self._shared = (after, self._shared[1] + sum([record.tokens for record in records]))

    def _mismatch(self, seq: int, reason: str) -> CopyMismatchError:
        return CopyMismatchError(session_id=self._id, seq=seq, reason=reason)

    # ---- events ----------------------------------------------------------------------------------------------------

    async def _copy_events(self) -> None:
        known = self._there.last_seq if self._there else self._head.base_seq
        waiting: list[Kept] = []
        after = self._done.last_seq if self._done.last_seq == known else self._done.last_seq - 1
        async for page in WholeHistory(self._source, self._head, after=after).pages():
            self.lost += sum(kept.lost for kept in page)
            old = [kept for kept in page if kept.stored.seq <= known]
            new = page[len(old) :]
            if old and (self._verify or old[-1].stored.seq == known):
                await self._compare(old if self._verify else old[-1:])
            if new:
                waiting = await self._write([*waiting, *new])
            self._moved(len(page))

    async def _write(self, page: Sequence[Kept]) -> list[Kept]:
        """Append these events batch by batch; return those that belong to a batch whose end is not among them."""
        if self._keyed is None:
            known = await self._source.outcomes(self._id)
            self._keyed = deque(outcome for outcome in known if outcome.last_seq <= self._head.last_seq)
        done = 0
        for keyed, batch in self._batches(page, self._keyed):
            if keyed is not None and keyed.last_seq > batch[-1].stored.seq:
                break
            done += len(batch)
            await self._write_batch(batch, key=keyed.key if keyed else None)
        if self._verify:
            await self._compare(page[:done])
        return list(page[done:])

    @staticmethod
    def _batches(page: Sequence[Kept], keyed: deque[Outcome]) -> Iterator[tuple[Outcome | None, list[Kept]]]:
        """Yield what was appended under a key batch by batch, and all between two of them together."""

        def outcome_at(kept: Kept) -> Outcome | None:
            while keyed and keyed[0].last_seq < kept.stored.seq:
                keyed.popleft()
            return keyed[0] if keyed and keyed[0].first_seq <= kept.stored.seq else None

        for outcome, batch in itertools.groupby(page, outcome_at):
            yield outcome, list(batch)

    async def _write_batch(self, batch: list[Kept], *, key: str | None) -> None:
        is_half = batch[-1].stored.seq < self._head.last_seq and not self._alone
        if self._there is None and key is None and is_half:
            # The beginning alone first: nobody can have work with a session that says nothing yet, then it is locked.
            await self._append(batch[:1], key=None)
            batch = batch[1:]
        if not batch:
            return
        if self._there is not None and not self._locked and not self._alone:
            await self._lock.acquire(wait_s=_WAIT_S)
            self._locked = True
            await self._copy_blobs()
        await self._append(batch, key=key)

    async def _append(self, batch: Sequence[Kept], *, key: str | None) -> None:
        for kept in batch:
            self._replay.take(item_of(kept.stored).event, tokens=kept.stored.record.tokens)
        last = batch[-1].stored.seq == self._head.last_seq
        head = self._replay.patch_to(head_to_json(self._head), counted=not self.lost) if last else self._replay.patch()
        if "base_seq" in head.set and self._shared[0]:
            shared = zip(_COUNTS, self._shared, strict=True)
            # What is not set is the same without them: events that nobody is shown have no tokens.
            counts = {name: head.set[name] - taken for name, taken in shared if name in head.set}
            head = head._replace(set={**head.set, **counts})
        if last and self._alone:
            # No lease is carried, but none of here may have the token of one of there: the log tells turns by it (C3).
            token = max(self._head.lease_token, self._there.lease_token if self._there else 0)
            head = head._replace(set={**head.set, "lease_token": token})
        records, after = [kept.stored.record for kept in batch], batch[0].stored.seq - 1

        async def append(key: str | None) -> Appended:
            return await self._target.append(
                self._id, records, head=head, token=self._lock.token, expected_seq=after, idempotency_key=key
            )

        appended = await append(key)
        if appended.duplicate:
            # It arrived in the target too, before the copy. What the source has of it is history all the same.
            await append(None)
            self.notes.append(
                f"session {self._id}: event {after + 1} is in {appended.session_id} of the target already"
            )
        self._there = self._there or self._head
        self.events += len(batch)

    async def _compare(self, events: Sequence[Kept]) -> None:
        """Compare these events with what the target has in their places."""
        for start in range(0, len(events), MAX_PAGE):
            await self._compare_page(events[start : start + MAX_PAGE])

    async def _compare_page(self, page: Sequence[Kept]) -> None:
        after, until = page[0].stored.seq - 1, page[-1].stored.seq
        found = await self._target.read(self._id, after=after, until=until, limit=len(page))
        there = {stored.seq: stored.record for stored in found}
        for kept in page:
            seq, record = kept.stored.seq, there.get(kept.stored.seq)
            if record is None:
                raise self._mismatch(seq, "it is missing in the target")
            name = "event_id" if record.event_id != kept.stored.record.event_id else None
            name = name or (None if kept.lost else _difference(kept.stored.record, record))
            if name is not None:
                raise self._mismatch(seq, f"the target has another {name}")

    # ---- the rest --------------------------------------------------------------------------------------------------

    async def _copy_blobs(self) -> None:
        self._digests = await self._source.blobs(self._id)
        if self._done.last_seq and self._done.blobs.issuperset(self._digests):
            return
        there = set(await self._target.blobs(self._id))
        for digest in self._digests:
            if digest in there:
                continue
            try:
                data = await self._source.get_blob(self._id, digest)
            except BlobNotFoundError:
                self.notes.append(f"session {self._id}: blob {digest} is missing in the source")
                continue
            if hashlib.sha256(data).hexdigest() != digest:
                self.notes.append(f"session {self._id}: blob {digest} is damaged in the source")
                continue
            await self._target.put_blob(self._id, data)
            if self._verify and await self._target.get_blob(self._id, digest) != data:
                raise self._mismatch(0, f"blob {digest} reads back otherwise")
            self.blobs += 1

    async def _check_head(self) -> None:
        there = await self._target.head(self._id)
        if there is None:
            raise self._mismatch(self._head.base_seq + 1, "it is not in the target")
        name = difference(head_to_json(self._head), head_to_json(there), counted=not self.lost)
        if name is not None or there.last_seq != self._head.last_seq:
            raise self._mismatch(there.last_seq, f"the head's {name or 'last_seq'} differs")

    async def _bind_keys(self) -> None:
        """Let the keys lead where they lead in the source, but for those that the target has given to a session of its own."""
        self._keys = await self._source.keys(self._id)
        if self._done.last_seq and tuple(self._keys) == self._done.keys:
            return
        for key in self._keys:
            bound = await self._target.resolve(key)
            if bound == self._id:
                continue
            if bound is not None and await self._source.head(bound) is None:
                self.notes.append(
                    f"key {key} leads to {bound} in the target, which the source does not have; it stays so"
                )
                continue
            try:
                await self._target.bind(key, self._id, expected=bound)
            except ConflictError:
                self.notes.append(f"key {key} was bound by somebody else meanwhile; it stays so")
                continue
            self.bindings += 1


def _difference(left: Record, right: Record) -> str | None:
    """Return the name of the first field that differs; bodies that are the same JSON are the same."""
    for name in Record._fields:
        mine, other = getattr(left, name), getattr(right, name)
        if name != "urgent" and mine != other and not (name == "body" and _same_json(mine, other)):
            return name
    return None


def _same_json(left: bytes, right: bytes) -> bool:
    try:
        return bool(orjson.loads(left) == orjson.loads(right))
    except orjson.JSONDecodeError:
        return False
