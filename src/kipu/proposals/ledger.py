"""A person's ledger: the log that keeps their proposals, in a session of Kipu's own."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from kipu.errors import ConflictError, InvalidProposalError, SessionNotFoundError
from kipu.events.boundary import NoteEvent
from kipu.manager.loader import PAGE
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.proposals.state import LedgerState
from kipu.session.key import SessionKey

LEDGER_CHANNEL = ("kipu", "proposals")
_KEPT = 256
Change = Callable[[LedgerState], NoteEvent | None]


class ProposalLedger:
    """Read and add to one person's proposals. What any process added before a call is seen by it (C26).

    The session under the key `kipu:proposals` is the person's own: it is stored, encrypted, exported and erased like any
    session of theirs, and no ordinary list shows it. One that somebody else owns is not read, whoever may see it.
    """

    def __init__(self, manager: SessionManager, owner: Principal) -> None:
        self._manager = manager
        self.owner = owner
        self._state = LedgerState()
        self._session_id: str | None = None
        self._seen = 0
        self._order = asyncio.Lock()

    async def state(self, *, principal: Principal | None = None) -> LedgerState:
        """Return what the log comes to now; `principal` is who asks, the owner unless given. It is not to be changed."""
        session = await self._session(principal or self.owner)
        return LedgerState() if session is None else await self._caught_up(session)

    async def change(self, make: Change, *, principal: Principal | None = None, creates: bool = False) -> LedgerState:
        """Append the note that `make` says the state wants, and return the state after it.

        Nothing that somebody appended in between is overlooked: `make` is asked again. It raises what forbids the change,
        and returns None for none. With `creates` the log is begun where there is none.
        """
        caller = principal or self.owner
        session = await self._session(caller)
        if session is None and creates:
            with suppress(SessionNotFoundError):  # the key leads to a session of somebody else
                await self._manager.get_or_create(ledger_key(self.owner), principal=self.owner)
            session = await self._session(caller)
        if session is None:
            if creates:
                raise InvalidProposalError(reason="the place for this person's proposals is held by somebody else")
            note = make(LedgerState())
            if note is not None:
                raise InvalidProposalError(reason="there is no ledger to write to")
            return LedgerState()
        while True:
            state = await self._caught_up(session)
            at = self._seen
            note = make(state)
            if note is None:
                return state
            try:
                await session.add_event(note, principal=caller, expected_seq=at)
            except ConflictError:
                continue
            return await self._caught_up(session)

    async def _session(self, principal: Principal) -> Session | None:
        session_id = await self._manager.resolve(ledger_key(self.owner), principal=principal)
        if session_id is None:
            return None
        session = await self._manager.open(session_id, principal=principal)
        head = session.head
        return session if (head.owner, head.tenant) == (self.owner.id, self.owner.tenant) else None

    async def _caught_up(self, session: Session) -> LedgerState:
        async with self._order:
            if session.session_id != self._session_id:  # it was erased, and begun anew
                self._session_id, self._state, self._seen = session.session_id, LedgerState(), 0
            await session.refresh()
            last_seq = session.history.last_seq
            while self._seen < last_seq:
                page = await session.history.reader.forwards(after=self._seen, until=last_seq)
                for item in page:
                    self._state.take(item.event)
                self._seen = page[-1].seq if len(page) == PAGE else last_seq
            return self._state


class Ledgers:
    """Give each person's ledger, the same one while it is among those used last."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._ledgers: OrderedDict[tuple[str, str], ProposalLedger] = OrderedDict()

    def of(self, owner: Principal) -> ProposalLedger:
        """Return the ledger of this person."""
        key = (owner.tenant, owner.id)
        ledger = self._ledgers.get(key)
        if ledger is None:
            ledger = self._ledgers[key] = ProposalLedger(self._manager, owner)
            if len(self._ledgers) > _KEPT:
                self._ledgers.popitem(last=False)
        self._ledgers.move_to_end(key)
        return ledger


def ledger_key(owner: Principal) -> SessionKey:
    """Return the key of a person's ledger."""
    return SessionKey(*LEDGER_CHANNEL, tenant=owner.tenant or None, member=owner.id)
