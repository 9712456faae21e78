"""The turns that a helper works for: what their sessions forbid and what is left of their budgets, asked anew each time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kipu.errors import ConflictError, SessionNotFoundError, TurnStoppedError
from kipu.events.conversation import UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import ApprovalDecisionEvent, MessageSettledEvent, StopRequestedEvent
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.runtime.turns.spending import Spent, TurnLimits, narrowed_limits
from kipu.runtime.turns.turn_budget import Budget, SpentSum
from kipu.runtime.turns.turn_run import FollowedTurn, TurnRun, read_story
from kipu.session.key import SessionKey
from kipu.session.turn_story import OpenCall, TurnStory

PARENT = "kipu.parent"  # in a helper session's metadata: session_id, turn_id, call_id, principal, depth
CHANNEL = "delegate"  # of the keys of helpers' sessions
TOOL = "delegate"  # the name of the calls that helpers answer
MAX_DEPTH = 2


class Bond(NamedTuple):
    """What binds a helper's session to the call that began it."""

    session_id: str
    turn_id: str | None
    call_id: str | None
    principal: str | None
    depth: int


def bond_of(metadata: Mapping[str, Any]) -> Bond | None:
    """Return what a session's metadata say of the call it works for; None where it is nobody's helper."""
    kept = metadata.get(PARENT)
    if not isinstance(kept, Mapping) or not isinstance(kept.get("session_id"), str):
        return None
    depth = kept.get("depth")
    turn_id, call_id, principal = (kept.get(name) for name in ("turn_id", "call_id", "principal"))
    return Bond(kept["session_id"], turn_id, call_id, principal, depth if isinstance(depth, int) else 1)


def helper_key(call_id: str) -> SessionKey:
    """Return the key of the session that answers a call: the same one however often the call runs."""
    return SessionKey(CHANNEL, call_id, scope="task")


async def helper_session(manager: SessionManager, call: OpenCall, *, parent: Head) -> Session | None:
    """Return the session of the helper that answers an open call, None where the call is no helper's or has not begun."""
    if call.call.tool_name != TOOL or not call.starts:
        return None
    owner = owner_of(parent)
    helper_id = await manager.resolve(helper_key(call.id), principal=owner)
    if helper_id is None:
        return None
    with suppress(SessionNotFoundError):  # erased meanwhile
        return await manager.open(helper_id, principal=owner)
    return None


async def end_task(helper: Session, call_id: str, *, principal: Principal) -> bool:
    """Ask for the end of what a helper does for a call, and return whether there is a turn of it to wait for.

    The turn that took its task is to stop; a task that no turn took is taken back. Other turns of the session go on.
    """
    while True:
        await helper.refresh()
        head, last_seq = helper.head, helper.history.last_seq
        consumes = (await read_story(helper)).consumes
        messages = await helper.history.reader.at([*head.waiting, *consumes])
        tasks = [
            seq
            for seq, item in messages.items()
            if isinstance(item.event, UserMessageEvent) and item.event.source_message_id == call_id
        ]
        if not tasks:
            return False
        runs = head.open_turn is not None and tasks[0] in consumes
        if runs and head.stop == head.open_turn:
            return True
        event: SessionEvent = MessageSettledEvent(seqs=tasks[:1], reason="cancelled")
        if runs:
            event = StopRequestedEvent(turn_id=head.open_turn or "")
        with suppress(ConflictError):  # else a turn took it just now, or ended: look again
            await helper.add_event(event, principal=principal, expected_seq=last_seq)
            return runs


class Ancestry:
    """Look up from one helper's session. Nothing is kept that the logs do not say."""

    def __init__(self, manager: SessionManager, session: Session, *, limits: TurnLimits, endpoint: str | None) -> None:
        self._manager = manager
        self._session = session
        self._limits = limits  # of every session here, before each one's own narrow them
        self._endpoint = endpoint
        self._accounts: dict[str, _Account] = {}

    async def metadata(self) -> list[Mapping[str, Any]]:
        """Return the metadata of the sessions above, the nearest first, as they are now."""
        return [head.metadata async for head in self._heads()]

    async def budgets(self, run: TurnRun) -> list[Budget]:
        """Return what the open turns above have used, with all that work for them, and what they may use.

        Raises: TurnStoppedError (the turn that wanted this one is over, or erased: its rules and limits are gone with it).
        """
        found: list[Budget] = []
        bond = bond_of(self._session.head.metadata)
        async for head in self._heads():
            if bond is None or head.open_turn is None or head.open_turn != bond.turn_id:
                break  # that turn is over: nobody's budget is left
            session = await self._manager.open(head.session_id, principal=owner_of(head))
            found.append((await self._spent(session), narrowed_limits(self._limits, head.metadata.get("limits"))))
            bond = bond_of(head.metadata)
        if not found and await self._is_for_the_task(run):
            raise TurnStoppedError(mode="stop")
        return found

    async def _is_for_the_task(self, run: TurnRun) -> bool:
        """Return whether the turn took the task of the call that made this session; any other one is a talk with the helper."""
        bond, message = bond_of(self._session.head.metadata), await run.first_message()
        call_id = None if bond is None else bond.call_id
        return message is not None and call_id is not None and message.source_message_id == call_id

    async def _heads(self) -> AsyncIterator[Head]:
        bond, steps = bond_of(self._session.head.metadata), 0
        while bond is not None and steps < MAX_DEPTH:
            head = await self._manager.store.head(bond.session_id)
            if head is None:  # erased
                return
            yield head
            bond, steps = bond_of(head.metadata), steps + 1

    async def _spent(self, session: Session) -> Spent:
        """Return what the open turn of a session has used so far, with those who work for it now."""
        await session.refresh()
        account = self._accounts.get(session.session_id)
        if account is None or account.turn.session is not session:
            account = self._accounts[session.session_id] = _Account(session)
        story = await account.turn.story()
        if not story.turn_id:  # it has just ended: its result is not in the log above yet
            return account.total
        if story.turn_id != account.turn_id:
            account.sum, account.turn_id = SpentSum(self._endpoint), story.turn_id
        own, helpers = account.sum.of(story)
        total = own + helpers
        for call in story.open_calls:
            helper = await helper_session(self._manager, call, parent=session.head)
            if helper is not None:
                total += await self._spent(helper)
        account.total = total
        return total


class _Account:
    """One session's open turn, and what it has used."""

    __slots__ = ("sum", "total", "turn", "turn_id")

    def __init__(self, session: Session) -> None:
        self.turn = FollowedTurn(session)
        self.turn_id = ""
        self.sum = SpentSum(None)
        self.total = Spent()


async def tell_parents(manager: SessionManager, helper: Session, *, decision: ApprovalDecisionEvent) -> list[str]:
    """Let the turns that a helper works for go on where they wait for this: a copy of the decision stands in their logs.

    Returns their sessions, the nearest first; none where the helper works for no open turn.
    """
    bond = bond_of(helper.head.metadata)
    head = await manager.store.head(bond.session_id) if bond is not None else None
    if bond is None or head is None or head.open_turn is None or head.open_turn != bond.turn_id:
        return []
    parent = await manager.open(head.session_id, principal=owner_of(head))
    if not head.decided:  # else it goes on already, and finds this too
        copy = ApprovalDecisionEvent(
            approval_id=decision.approval_id,
            decision=decision.decision,
            by=decision.by,
            reason=decision.reason,
            turn_id=head.open_turn,
        )
        await parent.add_event(copy, principal=owner_of(head))
    return [head.session_id, *await tell_parents(manager, parent, decision=decision)]


def why_on(story: TurnStory, *, now_us: int) -> ApprovalDecisionEvent | None:
    """Return what lets a parked turn go on for good: a person's decision, or what came instead of one; None for nothing yet."""
    if story.decided is not None:
        return story.decided
    asked = [call.request for call in story.open_calls if call.request is not None and call.decision is None]
    ends = [request.expires_at.timestamp() * 1e6 for request in asked if request.expires_at is not None]
    is_over = any(end <= now_us for end in ends)
    if story.stop_mode is None and not is_over:
        return None
    instead = "the end of the waiting" if story.stop_mode is None else "a wish to stop"
    return ApprovalDecisionEvent(approval_id=(story.waits_for or [""])[0], decision="denied", by=instead)
