"""Who may erase what, and what goes with it: the questions before an erasure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import orjson

from kipu.errors import AccessDeniedError, InputError, SessionForkedError, SessionNotFoundError
from kipu.events import ids
from kipu.manager.access import Verb
from kipu.manager.denials import Denials
from kipu.manager.erasing.eraser import Eraser, Progress, Request, finish_erasures, forks_of
from kipu.manager.erasing.receipt import Receipt, person_digest
from kipu.manager.holding import hold_of, require_not_held
from kipu.manager.unreadable import UNREADABLE
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import EventStore, SessionQuery

_PAGE = 500


class Ending:
    """Erase sessions and people, as far as the caller may; used through `SessionManager`."""

    def __init__(self, store: EventStore, eraser: Eraser, *, denials: Denials) -> None:
        self._store = store
        self._eraser = eraser
        self._denials = denials

    async def erase_session(
        self,
        session_id: str,
        *,
        caller: Principal,
        cascade: bool,
        detach: bool,
        wait_s: float,
        prove: bool,
        progress: Progress | None,
    ) -> Receipt:
        """Erase one session; its forks go too, or stand alone from then on."""
        if cascade and detach:
            raise InputError(reason="forks are erased too (cascade) or stand alone (detach), not both")
        head = await self._store.head(ids.check_session_id(session_id))
        head = await self._denials.require(caller, Verb.ERASE, head=head, session_id=session_id)
        require_not_held(head)
        heads: list[Head] = [head]
        staying: list[Head] = []
        forks = [fork async for fork in forks_of(self._store, session_id)]
        if forks and not (cascade or detach):
            every = [fork.session_id for fork in await self._all_forks(forks)]
            raise SessionForkedError(session_id=session_id, forks=", ".join(every))
        if detach:
            staying = forks
        elif forks:
            for fork in await self._all_forks(forks):  # all are asked for before any is gone
                await self._denials.require(caller, Verb.ERASE, head=fork, session_id=fork.session_id)
                require_not_held(fork)
                heads.insert(0, fork)
        request = Request(heads, caller, staying=staying, wait_s=wait_s, prove=prove, progress=progress)
        return await self._eraser.erase(request)

    async def _all_forks(self, forks: Sequence[Head]) -> list[Head]:
        """Return these forks and theirs behind them, each before its own."""
        found: list[Head] = []
        waiting = list(forks)
        while waiting:
            fork = waiting.pop(0)
            found.append(fork)
            waiting += [further async for further in forks_of(self._store, fork.session_id)]
        return found

    async def erase_person(
        self,
        person: Principal,
        *,
        caller: Principal,
        cascade: bool,
        detach: bool,
        wait_s: float,
        prove: bool,
        progress: Progress | None,
    ) -> Receipt:
        """Erase all that a person owns. What they said in sessions of others stands there, and is counted in the receipt."""
        if cascade and detach:
            raise InputError(reason="forks of others are erased too (cascade) or stand alone (detach), not both")
        if caller.tenant != person.tenant or not (caller.is_admin or caller.id == person.id):
            reason = "only they themselves and administrators of their tenant may"
            raise AccessDeniedError(
                principal=caller.id, verb="erase the data of", session_id=f"{person.id} (a person)", reason=reason
            )
        owned = [head async for head in self._owned(person)]
        held = tuple(head.session_id for head in owned if hold_of(head) is not None)
        going = {head.session_id: head for head in owned if head.session_id not in held}
        staying: dict[str, Head] = {}
        for head in list(going.values()):
            async for fork in forks_of(self._store, head.session_id):
                if fork.session_id not in going:
                    staying[fork.session_id] = fork
        if staying and cascade:
            for fork in await self._all_forks(list(staying.values())):
                await self._denials.require(caller, Verb.ERASE, head=fork, session_id=fork.session_id)
                require_not_held(fork)
                going[fork.session_id] = fork
            staying = {}
        elif staying and not detach:
            raise SessionForkedError(session_id=f"those of {person.id}", forks=", ".join(sorted(staying)))
        elsewhere = await self._elsewhere(person, skipped=set(going), progress=progress)
        return await self._eraser.erase(
            Request(
                _forks_first(going),
                caller,
                staying=list(staying.values()),
                person=person,
                held=held,
                elsewhere=elsewhere,
                wait_s=wait_s,
                prove=prove,
                progress=progress,
            )
        )

    async def _owned(self, person: Principal) -> AsyncIterator[Head]:
        async for head in self._heads(SessionQuery(tenant=person.tenant, owner=person.id, limit=_PAGE)):
            yield head

    async def _heads(self, query: SessionQuery) -> AsyncIterator[Head]:
        while True:
            page = await self._store.list(query)
            for head in page.items:
                yield head
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    async def _elsewhere(self, person: Principal, *, skipped: set[str], progress: Progress | None) -> dict[str, int]:
        """Count what the person said in sessions that stay. They are others' histories, and nothing rewrites a log (A26).

        One that cannot be read counts as 0: it keeps nobody from being erased, and its owner can be asked.
        """
        counts: dict[str, int] = {}
        looked = 0
        async for head in self._heads(SessionQuery(tenant=person.tenant, limit=_PAGE)):
            looked += 1
            if progress is not None:
                progress("looked at", looked, 0)
            if head.session_id in skipped or head.owner in {"", person.id}:
                continue
            try:
                count = await self._said_by(person.id, head.session_id)
                if count:
                    counts[head.session_id] = count
            except SessionNotFoundError:
                continue
            except UNREADABLE:
                counts[head.session_id] = 0
        return counts

    async def _said_by(self, principal_id: str, session_id: str) -> int:
        count, after = 0, 0
        while page := await self._store.read(session_id, after=after):
            for stored in page:
                record = stored.record
                if record.event_type == "user_message":
                    count += record.principal == principal_id or _sender(record.body) == principal_id
            after = page[-1].seq
        return count

    # ---- receipts and what is under way ----------------------------------------------------------------------------

    async def receipts(
        self, *, caller: Principal, session_id: str | None = None, person: Principal | None = None
    ) -> list[Receipt]:
        """Return receipts of the caller's tenant, oldest first: an administrator's and the local user's all, else their own."""
        mine = person_digest(caller.tenant, caller.id)
        wanted = None if person is None else person_digest(person.tenant, person.id)
        found = []
        async for receipt in self._eraser.ledger.receipts():
            is_own = mine in {receipt.requested_by, receipt.person}
            sees = receipt.tenant == caller.tenant and (caller.is_admin or caller.is_local or is_own)
            if sees and session_id in {None, *receipt.sessions} and wanted in {None, receipt.person}:
                found.append(receipt)
        return found

    async def finish(self) -> list[Receipt]:
        """Finish what kills cut off."""
        return await finish_erasures(self._eraser)

    async def is_going(self, session_id: str) -> bool:
        """Return True when an erasure that takes the session is under way."""
        return await self._eraser.is_going(session_id)

    async def take_back(self, session_id: str) -> None:
        """Erase a session that was just begun and must not be."""
        await self._eraser.erase_log(session_id)


def _forks_first(heads: dict[str, Head]) -> list[Head]:
    """Return the heads so that each fork comes before what it was forked from."""

    def depth(head: Head) -> int:
        steps = 0
        while head.forked_from in heads and steps <= len(heads):
            head, steps = heads[head.forked_from], steps + 1
        return steps

    return sorted(heads.values(), key=depth, reverse=True)


def _sender(body: bytes) -> str | None:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    sender = fields.get("sender_id") if isinstance(fields, dict) else None
    return sender if isinstance(sender, str) else None
