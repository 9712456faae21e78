"""`ConsolidationWorker`: memory takes a stretch of a session in, and says so in its log; both become true together (§8)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from kipu.context.tokens import MESSAGE_TOKENS
from kipu.errors import ConflictError, InputError, SessionBusyError
from kipu.events.boundary import ConsolidationEvent
from kipu.events.event import SessionEvent
from kipu.manager.access import owner_of
from kipu.manager.loader import PAGE
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.memory.approved import ApprovedPolicies, narrowed_scope
from kipu.memory.attribution import Speakers
from kipu.memory.closed_range import closed_until
from kipu.memory.fact_text import Lesson
from kipu.memory.log_follower import LogFollower
from kipu.memory.model_lessons import lessons_by_model
from kipu.memory.place import MemoryPlace, is_helper
from kipu.memory.rules import lessons_by_rules
from kipu.ports.head import Head
from kipu.ports.memory import Fact, FactQuery, MemoryStore
from kipu.ports.model import ModelClient
from kipu.session.branch import visible

logger = logging.getLogger(__name__)

ModelFor = Callable[[Session], ModelClient | None]
Reached = Callable[[str], Awaitable[None]]
KNOWN_FACTS = 60


@dataclass(frozen=True, slots=True)
class ConsolidationPolicy:
    """How much is taken in at once. The newest `keep_exchanges` stay out; fewer than `min_tokens` wait for more."""

    keep_exchanges: int = 4
    min_tokens: int = 0
    max_events: int = 4_000
    wait_s: float = 30.0


@dataclass(frozen=True, slots=True)
class CapturedRange:
    """What is to be taken in, captured without the lease: it holds while nothing moved one of the anchors."""

    from_seq: int
    to_seq: int
    consolidated_seq: int
    rewind_seq: int
    compaction_seq: int
    events: tuple[SessionEvent, ...]
    tokens: int

    @property
    def anchors(self) -> dict[str, int]:
        """Return where the anchors stood."""
        return {
            "consolidated_seq": self.consolidated_seq,
            "rewind_seq": self.rewind_seq,
            "compaction_seq": self.compaction_seq,
        }

    def still_holds(self, head: Head) -> bool:
        """Say whether nothing moved the boundary: no other worker, no rewind, no summary, and no turn is open now."""
        return head.open_turn is None and all(getattr(head, name) == value for name, value in self.anchors.items())


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What memory took in of one session."""

    session_id: str
    from_seq: int
    to_seq: int
    facts: tuple[Fact, ...]
    model: str | None


Tell = Callable[[Consolidated], Awaitable[object]]


class ConsolidationWorker:
    """Take closed exchanges of sessions into memory.

    The range is captured and read without the lease, which a model's answer may take minutes for; then the lease is taken, the
    session reloaded, and nothing is written unless the range still holds (A58-A60). A failure moves nothing. `reached` is told
    each step's name, for tests of faults.
    """

    def __init__(
        self,
        manager: SessionManager,
        memory: MemoryStore,
        *,
        follower: LogFollower,
        model_for: ModelFor | None = None,
        policy: ConsolidationPolicy | None = None,
        reached: Reached | None = None,
    ) -> None:
        self._manager = manager
        self._memory = memory
        self._follower = follower
        self._model_for = model_for or (lambda _session: None)
        self.policy = policy or ConsolidationPolicy()
        self._reached = reached or _nothing
        self._approved = ApprovedPolicies()
        self._tell: Tell = _nothing_told

    def tell(self, tell: Tell) -> None:
        """Say from now on what was taken in, once it is in the log and in memory."""
        self._tell = tell

    def obey(self, approved: ApprovedPolicies) -> None:
        """Take in from now on what people approved, and no more."""
        self._approved = approved

    def ask(self, model_for: ModelFor) -> None:
        """Let models say what sessions teach from now on; None for a session means by rules."""
        self._model_for = model_for

    async def consolidate(self, session_id: str, *, keep_exchanges: int | None = None) -> Consolidated | None:
        """Take in what can be taken in now; None where nothing can, or somebody was faster or in the way.

        Raises: SessionNotFoundError, ModelError, StoreError; nothing was moved then.
        """
        head = await self._manager.store.head(session_id)
        session = await self._manager.open(session_id, principal=None if head is None else owner_of(head))
        policy = self.policy if keep_exchanges is None else replace(self.policy, keep_exchanges=keep_exchanges)
        await session.refresh()
        await self._follower.catch_up(session_id)
        captured = await capture(session, policy)
        if captured is None or captured.tokens < policy.min_tokens or is_helper(session.head):
            return None
        place = MemoryPlace.of(session.head, session.history.reader.spans)
        approved = await self._approved.of(place)
        if not approved.consolidates:
            return None
        await self._reached("captured")
        model = self._model_for(session)
        found, usage = await self._lessons(captured, place, model)
        lessons = [
            replace(lesson, scope=narrowed_scope(lesson.scope or place.narrowest, approved, place=place))
            for lesson in found
            if lesson.kind in approved.kinds
        ]
        await self._reached("extracted")
        event = self._event(captured, lessons, place=place, session=session)
        event = event.model_copy(update={"model": model.name if model is not None else None, "usage": usage})
        taken = await self._commit(session, captured, event=event)
        if taken is not None:
            await self._tell(taken)
        return taken

    async def _lessons(
        self, captured: CapturedRange, place: MemoryPlace, model: ModelClient | None
    ) -> tuple[Sequence[Lesson], dict[str, int] | None]:
        if model is None:
            return lessons_by_rules(captured.events), None
        known = await self._memory.facts(FactQuery(spaces=tuple(place.spaces()), limit=KNOWN_FACTS))
        return await lessons_by_model(
            model, captured.events, known=[each for each in known.items if place.may_recall(each)]
        )

    def _event(
        self, captured: CapturedRange, lessons: Sequence[Lesson], *, place: MemoryPlace, session: Session
    ) -> ConsolidationEvent:
        speakers = Speakers(captured.events, owner=place.owner)
        facts = []
        for lesson in lessons:
            said = speakers.attributed(lesson, place=place)
            facts.append(said.to_json(self._manager.mint("mem"), place.space(said.scope or place.narrowest)))
        return ConsolidationEvent(
            from_seq=captured.from_seq,
            to_seq=captured.to_seq,
            memory_ids=[str(fact["id"]) for fact in facts],
            facts=facts,
            captured=dict(captured.anchors),
        )

    async def _commit(
        self, session: Session, captured: CapturedRange, *, event: ConsolidationEvent
    ) -> Consolidated | None:
        try:
            await session.lock.acquire(wait_s=self.policy.wait_s)
        except SessionBusyError:
            return None
        try:
            await self._reached("leased")
            if not await self._append(session, captured, event):
                return None
        finally:
            await session.lock.release()
        facts = [await self._memory.fact(fact_id) for fact_id in event.memory_ids]
        return Consolidated(
            session.session_id,
            captured.from_seq,
            captured.to_seq,
            tuple({fact.fact_id: fact for fact in facts if fact is not None}.values()),
            event.model,
        )

    async def _append(self, session: Session, captured: CapturedRange, event: ConsolidationEvent) -> bool:
        """Append the event under the lease, then bring memory up to it: the announcement makes a kill in between harmless."""
        token = session.lock.token or 0
        await session.refresh()
        if not captured.still_holds(session.head):
            return False
        await self._memory.announce(session.session_id, token)
        await self._reached("announced")
        while captured.still_holds(session.head):
            try:
                owner = owner_of(session.head)
                await session.add_event(event, principal=owner, expected_seq=session.history.last_seq)
            except ConflictError:  # a message arrived: it lies behind the range, and moves nothing
                await session.refresh()
                continue
            await self._reached("appended")
            await self._follower.catch_up(session.session_id)
            await self._reached("followed")
            await self._memory.settle(session.session_id, token)
            return True
        await self._memory.settle(session.session_id, token)
        return False


async def capture(session: Session, policy: ConsolidationPolicy) -> CapturedRange | None:
    """Return the range behind the boundary that may be taken in now, as far as this process knows the session."""
    head = session.head
    # What a fork shares is its parent's to take in: from there it would be learned twice.
    after = max(head.consolidated_seq, head.base_seq)
    if head.last_seq <= after:
        return None
    found: list[SessionEvent] = []
    tokens: dict[int, int] = {}
    is_whole = False
    read_until = after
    while not is_whole and (len(found) < policy.max_events or read_until < head.rewind_seq):
        page = await session.history.reader.forwards(after=read_until, until=head.last_seq)
        found += [item.event for item in page]
        tokens.update((item.seq, item.tokens) for item in page)
        is_whole = len(page) < PAGE
        read_until = page[-1].seq if page else head.last_seq
    standing = visible(found)
    to_seq = closed_until(standing, keep_exchanges=policy.keep_exchanges, is_whole=is_whole)
    if to_seq is None or to_seq <= after:
        return None
    events = tuple(event for event in standing if event.seq <= to_seq)
    cost = sum(tokens[event.seq] for event in events)
    if cost < MESSAGE_TOKENS:  # settings and notes teach nothing
        return None
    return CapturedRange(
        from_seq=after + 1,
        to_seq=to_seq,
        consolidated_seq=head.consolidated_seq,
        rewind_seq=head.rewind_seq,
        compaction_seq=head.compaction_seq,
        events=events,
        tokens=cost,
    )


def require_some(found: Consolidated | None, *, session_id: str, keep_exchanges: int) -> Consolidated:
    """Return what was taken in. Raises: InputError where that is nothing."""
    if found is None:
        why = f"the newest {keep_exchanges} exchanges stay out" if keep_exchanges else "a turn may be open"
        raise InputError(
            reason=f"nothing of {session_id} can be taken in now: {why}, or all of it is in memory already"
        )
    return found


async def _nothing(_step: str) -> None:
    return None


async def _nothing_told(_taken: Consolidated) -> None:
    return None
