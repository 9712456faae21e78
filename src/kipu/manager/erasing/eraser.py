"""Carrying out an erasure: planned durably, step by step, each repeatable, to the receipt (C20)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kipu.errors import ErasureUnfinishedError, KipuError, SessionForkedError, SessionNotFoundError, StoreReadOnlyError
from kipu.events import ids
from kipu.manager.erasing.detaching import detach
from kipu.manager.erasing.ledger import Ledger
from kipu.manager.erasing.proof import Samples
from kipu.manager.erasing.receipt import Proof, Receipt, person_digest
from kipu.manager.lock import DEFAULT_TTL_S, SessionLock
from kipu.manager.writer import EventWriter
from kipu.ports.clock import Clock, Entropy
from kipu.ports.erasure import Emptied, ErasurePlace
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import EventStore, Lease, SessionQuery
from kipu.stores.times import iso_from_us

logger = logging.getLogger(__name__)

_STORE = "store"
_PAGE = 500
Progress = Callable[[str, int, int], None]  # what is done, how much of it, of how much


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an eraser knows of the world beside the store: other places, and the files in which a proof looks."""

    places: Callable[[], Sequence[ErasurePlace]] = tuple
    roots: Callable[[], Sequence[Path]] = tuple


@dataclass(slots=True)
class Request:
    """What is to go: `heads` in the order in which they go, forks before what they were forked from."""

    heads: Sequence[Head]
    caller: Principal
    staying: Sequence[Head] = ()  # forks that stay, and take over what they share
    person: Principal | None = None
    held: tuple[str, ...] = ()
    elsewhere: dict[str, int] = field(default_factory=dict)
    wait_s: float = 5.0
    prove: bool = False
    progress: Progress | None = None


class Eraser:
    """Erase sessions of one store, and everything of them elsewhere."""

    def __init__(
        self,
        store: EventStore,
        *,
        writer: EventWriter,
        clock: Clock,
        entropy: Entropy,
        owner: str,
        forget: Callable[[str], None],
        surroundings: Surroundings,
    ) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._entropy = entropy
        self._owner = f"{owner}.erase"
        self._forget = forget  # lets go of what memory holds of a session
        self._surroundings = surroundings
        self.ledger = Ledger(store, clock=clock, entropy=entropy)

    # ---- beginning -------------------------------------------------------------------------------------------------

    async def erase(self, request: Request) -> Receipt:
        """Erase what is asked for and return the receipt. From the plan on, whoever opens the store ends what a kill cut off.

        Raises: SessionBusyError, SessionForkedError (a fork was made meanwhile): nothing was erased. StoreError.
        """
        async with AsyncExitStack() as held:
            locks = await self._locked(held, request)
            for head in request.staying:
                await self._let_go(head, locks[head.session_id].lease)
            samples = await self._sampled(request) if request.prove else None
            erasure_id = ids.prefixed_id("erasure", self._clock.now_us() // 1000, random=self._entropy.random_bytes(10))
            facts, steps = await self._planned(request)
            await self.ledger.begin(erasure_id, facts, steps=steps)
            try:
                await self._refuse_new_forks(request)
            except SessionForkedError:
                await self._call_off(erasure_id)
                raise
            work = _Work(erasure_id, facts, steps, leases=locks, samples=samples, progress=request.progress)
            return await self._carry_out(work)

    async def _locked(self, held: AsyncExitStack, request: Request) -> dict[str, SessionLock]:
        """Hold what is to be changed. Many sessions of a person are held one by one, when their turn comes."""
        wanted = [*request.staying, *([] if request.person is not None else request.heads)]
        locks = {}
        for head in wanted:
            lock = self._lock(head.session_id)
            await lock.acquire(wait_s=request.wait_s)
            held.push_async_callback(lock.release)
            locks[head.session_id] = lock
        return locks

    def _lock(self, session_id: str) -> SessionLock:
        return SessionLock(self._store, session_id, owner=self._owner, ttl_s=DEFAULT_TTL_S)

    async def _let_go(self, head: Head, lease: Lease | None) -> None:
        if lease is None:
            return
        for place in self._surroundings.places():
            await place.settle_fork(head)
        fresh = await self._store.head(head.session_id)
        if fresh is not None and await detach(self._store, fresh, lease=lease, writer=self._writer):
            self._forget(head.session_id)

    async def _sampled(self, request: Request) -> Samples:
        samples = Samples(
            lambda most: int.from_bytes(self._entropy.random_bytes(4), "big") % most,
            session_ids=[head.session_id for head in (*request.heads, *request.staying)],
        )
        # What a fork took over stands there on, under the same ids.
        taken = max((fork.base_seq for fork in request.staying), default=0)
        for head in request.heads:
            after = taken
            with suppress(KipuError):  # what cannot be read any more cannot be sampled either
                while page := await self._store.read(head.session_id, after=after, limit=_PAGE):
                    for stored in page:
                        samples.take(stored)
                    after = page[-1].seq
        return samples

    async def _planned(self, request: Request) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        steps: list[dict[str, Any]] = []
        places = self._surroundings.places()
        for head in request.heads:
            found: dict[str, Any] = {}
            for place in places:
                try:
                    facts = await place.plan(head, store=self._store)
                except KipuError as error:  # what cannot be read any more can be erased all the same
                    logger.warning("what %s has of session %s is not known: %s", place.name, head.session_id, error)
                    facts = {}
                if facts is not None:
                    found[place.name] = facts
            steps.append({"session_id": head.session_id, "places": found})
        person, caller = request.person, request.caller
        return {
            "kind": "session" if person is None else "person",
            "requested_by": person_digest(caller.tenant, caller.id),
            "started_at": self._now(),
            "tenant": (person or caller).tenant,
            "person": None if person is None else person.id,
            "detached": [head.session_id for head in request.staying],
            "held": list(request.held),
            "elsewhere": dict(request.elsewhere),
            "prove": request.prove,
        }, steps

    async def _refuse_new_forks(self, request: Request) -> None:
        """Look once more: a fork that was begun before the plan was durable is seen here, a later one sees the plan."""
        going = {head.session_id for head in request.heads}
        for head in request.heads:
            async for fork in forks_of(self._store, head.session_id):
                if fork.session_id not in going:
                    raise SessionForkedError(session_id=head.session_id, forks=fork.session_id)

    async def _call_off(self, erasure_id: str) -> None:
        await self.erase_log(erasure_id)
        await self.ledger.forget(erasure_id)

    # ---- going on --------------------------------------------------------------------------------------------------

    async def is_going(self, session_id: str) -> bool:
        """Return True when an erasure that takes the session is under way."""
        for erasure_id in await self.ledger.under_way():
            _, steps, _ = await self.ledger.plan(erasure_id)
            if any(step["session_id"] == session_id for step in steps):
                return True
        return False

    async def resume(self) -> list[Receipt]:
        """Finish every erasure that was cut off and that nobody else is at; return their receipts."""
        receipts: list[Receipt] = []
        for erasure_id in await self.ledger.under_way():
            lock = self._lock(erasure_id)
            try:
                if not await lock.try_acquire():
                    continue
            except SessionNotFoundError:  # its plan is gone with all that it planned
                await self.ledger.forget(erasure_id)
                continue
            try:
                facts, steps, _ = await self.ledger.plan(erasure_id)
                if facts is None:
                    await self._call_off(erasure_id)
                    continue
                work = _Work(erasure_id, facts, steps, leases={}, samples=None, progress=None, resumed=True)
                receipts.append(await self._carry_out(work, lock=lock))
            finally:
                await lock.release()
        return receipts

    async def _carry_out(self, work: _Work, *, lock: SessionLock | None = None) -> Receipt:
        own = lock or self._lock(work.erasure_id)
        if lock is None:
            await own.acquire()
        try:
            for number, step in enumerate(work.steps):
                await self._erase_session(work, step)
                if work.progress is not None:
                    work.progress("sessions", number + 1, len(work.steps))
            if work.facts["person"] is not None:
                await self._erase_person(work)
            receipt = await self._receipt(work)
            await self.ledger.finish(receipt)
            await self.erase_log(work.erasure_id)
            await self.ledger.forget(work.erasure_id)
            return receipt
        except OSError as error:
            raise ErasureUnfinishedError(erasure_id=work.erasure_id, reason=str(error)) from error
        finally:
            if lock is None:
                await own.release()

    async def _erase_session(self, work: _Work, step: dict[str, Any]) -> None:
        """Take the key and the log first, then what is elsewhere: from the first step on nothing of it can be read."""
        session_id = step["session_id"]
        lock = work.leases.get(session_id)
        removed = await self.erase_log(session_id, lease=lock.lease if lock is not None else None)
        await self._did(work, _STORE, Emptied(removed))
        self._forget(session_id)
        for place in self._surroundings.places():
            facts = step["places"].get(place.name)
            if facts is not None:
                await self._did(work, place.name, await place.erase(session_id, facts))

    async def erase_log(self, session_id: str, *, lease: Lease | None = None) -> dict[str, int]:
        """Erase a session from the store, its key first, and return what that removed; nothing where it is gone already."""
        if lease is not None:
            return await self._erased(session_id, lease)
        lock = self._lock(session_id)
        try:
            await lock.acquire(wait_s=DEFAULT_TTL_S * 2)
        except SessionNotFoundError:  # its rows are gone, and maybe not every copy of them yet
            return await self._erased(session_id, _no_lease(session_id))
        try:
            return await self._erased(session_id, lock.lease or _no_lease(session_id))
        finally:
            await lock.release()

    async def _erased(self, session_id: str, lease: Lease) -> dict[str, int]:
        try:
            return dict((await self._store.erase(session_id, lease=lease)).removed)
        except SessionNotFoundError:
            return {}

    async def _erase_person(self, work: _Work) -> None:
        for place in self._surroundings.places():
            await self._did(work, place.name, await place.erase_person(work.facts["tenant"], work.facts["person"]))

    async def _did(self, work: _Work, place: str, emptied: Emptied) -> None:
        removed = {name: count for name, count in emptied.removed.items() if count}
        if removed or emptied.kept:
            outcome = {"place": place, "removed": removed, "kept": list(emptied.kept)}
            await self.ledger.did(work.erasure_id, outcome)

    async def _receipt(self, work: _Work) -> Receipt:
        facts = work.facts
        _, _, outcomes = await self.ledger.plan(work.erasure_id)
        removed: dict[str, Counter[str]] = {}
        kept: dict[str, None] = {}
        for outcome in outcomes:
            if outcome["removed"]:
                removed.setdefault(outcome["place"], Counter()).update(outcome["removed"])
            kept.update(dict.fromkeys(outcome["kept"]))
        person = facts["person"]
        return Receipt(
            work.erasure_id,
            facts["kind"],
            tuple(step["session_id"] for step in work.steps),
            facts["requested_by"],
            facts["started_at"],
            self._now(),
            removed={place: dict(counts) for place, counts in removed.items()},
            kept=tuple(kept),
            detached=tuple(facts["detached"]),
            held=tuple(facts["held"]),
            elsewhere=facts["elsewhere"],
            person=None if person is None else person_digest(facts["tenant"], person),
            tenant=facts["tenant"],
            resumed=work.resumed,
            proof=await self._proof(work),
        )

    async def _proof(self, work: _Work) -> Proof | None:
        if work.samples is None:
            return None
        roots = [
            *self._surroundings.roots(),
            *(root for place in self._surroundings.places() for root in place.roots()),
        ]
        progress = work.progress

        def moved(bytes_read: int) -> None:
            if progress is not None:
                progress("bytes", bytes_read, 0)

        return await asyncio.to_thread(work.samples.search, roots, progress=moved)

    def _now(self) -> str:
        return iso_from_us(self._clock.now_us())


@dataclass(slots=True)
class _Work:
    erasure_id: str
    facts: dict[str, Any]
    steps: Sequence[dict[str, Any]]
    leases: dict[str, SessionLock]
    samples: Samples | None
    progress: Progress | None
    resumed: bool = False


def _no_lease(session_id: str) -> Lease:
    """Return a lease on what has none any more: a store asks for one before it looks whether there is anything."""
    return Lease(session_id, "nobody", 0, 0.0, "")


async def forks_of(store: EventStore, session_id: str) -> AsyncIterator[Head]:
    """Yield the sessions that were forked from this one."""
    query = SessionQuery(forked_from=session_id, limit=_PAGE)
    while True:
        page = await store.list(query)
        for head in page.items:
            yield head
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


async def finish_erasures(eraser: Eraser) -> list[Receipt]:
    """Finish what kills cut off; what cannot be finished now, such as beside readers that keep pages, waits for the next opening."""
    try:
        return await eraser.resume()
    except StoreReadOnlyError:
        return []
    except (KipuError, OSError) as error:
        logger.warning("an erasure is not finished yet: %s", error)
        return []
