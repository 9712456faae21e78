"""Sub-agents: a call that is answered by a session of its own, which inherits what its parent may and never more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, cast

from kipu.errors import CallParkedError, KipuError, LeaseLostError
from kipu.events.boundary import MetadataChangedEvent
from kipu.events.content import text_of
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.events.event import SessionEvent, utc_text_us
from kipu.events.turn import StopRequestedEvent, TurnFinishedEvent, TurnStartedEvent
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.turns.ancestry import CHANNEL, MAX_DEPTH, PARENT, TOOL, bond_of, end_task, helper_key
from kipu.runtime.turns.session_turns import SessionTurns
from kipu.runtime.turns.spending import spent_from_json
from kipu.runtime.turns.turn_control import HANDOVER, TurnControl
from kipu.runtime.turns.turn_run import read_story
from kipu.session.patch import WORKSPACE

INHERITED = ("model", "policy", "env", "limits")
WITHDRAW_S = 5.0
SPEC = ToolSpec(
    name=TOOL,
    description=(
        "Give a task of its own to a helper that works in the same directory with the same tools, and get its final answer. "
        "It sees nothing of this conversation: say everything it needs. Several calls in one answer work side by side."
    ),
    parameters={
        "type": "object",
        "properties": {
            "task": {"type": "string", "minLength": 1, "description": "What to do, and what to report."},
            "title": {"type": "string", "description": "A few words for lists."},
            "max_steps": {"type": "integer", "minimum": 1, "description": "How many model calls it may take."},
        },
        "required": ["task"],
        "additionalProperties": False,
    },
    # Its child is found again by the call's id, so that running it again goes on with the same one.
    is_idempotent=True,
    has_side_effect=False,
    default_policy="allow",
    timeout_s=None,
    max_starts=100,
)


class DelegateTool:
    """Run a child session's turn and return its answer, once, also over restarts of either."""

    def __init__(self, manager: SessionManager, orchestrator: Orchestrator, *, parent: Session) -> None:
        self._manager = manager
        self._orchestrator = orchestrator
        self._parent = parent

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares."""
        return SPEC

    def subject(self, arguments: JsonObject) -> str:
        """Return the task."""
        return str(arguments.get("task", ""))

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return the task's first line."""
        del context
        return ToolPreview(f"delegate: {self.subject(arguments).splitlines()[0][:200]}")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Begin or find the child, run its turn to its end, and return what it says.

        Raises: CallParkedError (the child waits for a person; run again when that is over, this goes on with it).
        """
        depth = depth_of(self._parent)
        if depth >= MAX_DEPTH:
            return ToolResult("Helpers of helpers do not delegate further; do it yourself.", True, "too_deep")
        owner = owner_of(self._parent.head)
        child = await self._child(arguments, context, owner=owner, depth=depth + 1)
        context.emit(f"[{child.session_id}] {self.subject(arguments).splitlines()[0][:200]}\n")
        control, task = TurnControl(), _TaskTurn(child, owner)
        work = asyncio.ensure_future(self._until_finished(task, control))
        try:
            finished = await asyncio.shield(work)
        except asyncio.CancelledError:
            # The child's turn is not cancelled but told to end, so that its history is closed in order.
            control.stop(HANDOVER if context.is_handover() else "stop")
            if control.mode != HANDOVER:  # else both are taken up again
                with suppress(KipuError):
                    await end_task(child, context.call_id, principal=owner)
            await asyncio.gather(work, return_exceptions=True)
            raise
        if finished is None:
            return ToolResult(f"The helper was stopped. [helper session {child.session_id}]", True, "cancelled")
        return _result(task, finished)

    async def withdraw(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Stop the child of a call that nobody waits for any more, and return what it had."""
        owner = owner_of(self._parent.head)
        child_id = await self._manager.resolve(helper_key(context.call_id), principal=owner)
        if child_id is None:
            return ToolResult("The helper is gone.", True, "cancelled")
        child = await self._manager.open(child_id, principal=owner)
        task = _TaskTurn(child, owner)
        finished = None
        if await end_task(child, context.call_id, principal=owner):
            with suppress(TimeoutError, CallParkedError):
                async with asyncio.timeout(WITHDRAW_S):
                    finished = await self._until_finished(task, TurnControl())
        else:
            finished = await task.finished()
        if finished is None:
            return ToolResult(f"The helper is to stop. [helper session {child_id}]", True, "cancelled")
        return _result(task, finished)

    async def aclose(self) -> None:
        """Do nothing: a child's own agent holds what it uses."""

    async def _child(self, arguments: JsonObject, context: ToolContext, *, owner: Principal, depth: int) -> Session:
        """Return the session of this call, made with its task the first time."""
        key = helper_key(context.call_id)
        head = self._parent.head
        settings: dict[str, Any] = {name: head.metadata[name] for name in INHERITED if name in head.metadata}
        settings["limits"] = _narrowed(settings.get("limits"), arguments.get("max_steps"))
        child = await self._manager.get_or_create(key, initial_context=settings, principal=owner)
        bound = _bound_to(context, depth)
        # Its parent's files may be on another machine by now.
        is_moved = WORKSPACE in bound and child.head.workspace != bound[WORKSPACE]
        if PARENT not in child.head.metadata or is_moved:  # before its task comes, so that it never works without
            await child.add_event(MetadataChangedEvent(set=bound), principal=owner)
        title = str(arguments.get("title") or "")[:200]
        if title and child.head.title != title:  # said once, however often the call is taken up
            await child.set_metadata(title=title, principal=owner)
        task = UserMessageEvent(
            content=self.subject(arguments),
            sender_id=context.principal.id,
            channel=CHANNEL,
            source_message_id=context.call_id,
            metadata={"publish": False},
        )
        await self._manager.receive(key, task, principal=owner)
        return child

    async def _until_finished(self, task: _TaskTurn, control: TurnControl) -> TurnFinishedEvent | None:
        """Run the child's turn here where nobody does, else wait for what happens to it; None when it is to stop first."""
        child = task.child
        while (finished := await task.finished()) is None and not control.is_stopped:
            if await self._is_due(child) and await child.lock.try_acquire():
                try:
                    await self._run_here(task, control)
                finally:
                    await child.lock.release()
                continue
            await self._raise_where_parked(child)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await task.news(control)
        return finished

    async def _raise_where_parked(self, child: Session) -> None:
        """Raise CallParkedError where the child's turn waits for a person: nothing is held meanwhile, above it neither."""
        await child.refresh()
        head = child.head
        if not head.parked or head.decided or head.stop == head.open_turn:
            return
        story = await read_story(child)
        if story.until is None or story.until.timestamp() * 1e6 > self._manager.now_us():
            raise CallParkedError(waits_for=tuple(story.waits_for), until=story.until)

    async def _run_here(self, task: _TaskTurn, control: TurnControl) -> None:
        """Run the child's turn under the lock that this task holds, and hear who wants to stop just that one."""
        turns = SessionTurns(self._manager, self._orchestrator, session=task.child, principal=task.owner)
        listening = asyncio.ensure_future(task.heed_stops(control))
        try:
            with suppress(LeaseLostError):  # the child's: whoever has it now goes on with its turn
                await turns.run_next(control)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _is_due(self, child: Session) -> bool:
        head = await self._manager.store.head(child.session_id)
        now = utc_text_us(self._manager.now_us())
        return head is not None and head.due_at is not None and head.due_at <= now


_LOOK_AGAIN_S = 1.0  # a lease that another process lost is news that no event brings


def _bound_to(context: ToolContext, depth: int) -> dict[str, Any]:
    """Return what binds a child to its call; its directory is the parent's, which it has no claim to remove or move."""
    parent = {
        "session_id": context.session_id,
        "turn_id": context.turn_id,
        "call_id": context.call_id,
        "principal": context.principal.id,
        "depth": depth,
    }
    if context.workspace is None:
        return {PARENT: parent}
    record = {**context.workspace.describe(), "session_id": context.session_id}
    for name in ("saved", "seen"):
        record.pop(name, None)
    if "place" not in record and "at" in record:  # where its parent has them; they are kept with the parent's turn
        record |= {"place": record["at"], "bound": "the files of the session that it helps"}
    return {PARENT: parent, WORKSPACE: record}


def depth_of(session: Session) -> int:
    """Return how many sessions stand above this one."""
    bond = bond_of(session.head.metadata)
    return 0 if bond is None else bond.depth


def _narrowed(limits: Any, max_steps: Any) -> dict[str, Any]:
    """Return the parent's limits, with at most the steps that were asked for."""
    kept = dict(limits) if isinstance(limits, Mapping) else {}
    if isinstance(max_steps, int):
        known = kept.get("max_steps")
        kept["max_steps"] = min(max_steps, known) if isinstance(known, int) else max_steps
    return kept


def _result(task: _TaskTurn, finished: TurnFinishedEvent) -> ToolResult:
    answer, notice = task.answer, f"[helper session {task.child.session_id}]"
    usage = spent_from_json(finished.usage).as_json()
    if finished.outcome == "completed":
        return ToolResult(f"{answer}\n{notice}", usage=usage)
    said = f" It had said: {answer}" if answer else ""
    why = f": {finished.error}" if finished.error else ""
    text = f"The helper's turn was {finished.outcome}{why}.{said}\n{notice}"
    return ToolResult(text, True, finished.outcome, usage=usage)


class _TaskTurn:
    """The turn that took a helper's task, as its log tells of it. However long that takes, each event is read once."""

    def __init__(self, child: Session, owner: Principal) -> None:
        self.child = child
        self.owner = owner
        self.answer = ""
        self._turn_id: str | None = None
        self._seen = 0

    async def finished(self) -> TurnFinishedEvent | None:
        """Return its end, if that has come; `answer` is what it said last until then."""
        async for event in self.child.events(after=self._seen, principal=self.owner):
            self._seen = event.seq
            if isinstance(event, TurnStartedEvent) and self._turn_id is None:
                self._turn_id = event.turn_id
            elif isinstance(event, AgentMessageEvent) and event.turn_id == self._turn_id:
                self.answer = text_of(event.content) or self.answer
            elif isinstance(event, TurnFinishedEvent) and event.turn_id == self._turn_id:
                return event
        return None

    async def heed_stops(self, control: TurnControl) -> None:
        """Turn the child's own stop switch when its log says so, until this is cancelled."""
        async for event in self.child.follow(after=self._seen, principal=self.owner):
            if isinstance(event, StopRequestedEvent) and event.turn_id == control.turn_id:
                control.stop(event.mode)

    async def news(self, control: TurnControl) -> None:
        """Return when something is appended to the helper's session, or the turn is to stop."""
        followed = cast("AsyncGenerator[SessionEvent, None]", self.child.follow(after=self._seen, principal=self.owner))
        async with aclosing(followed):
            news = asyncio.ensure_future(anext(followed))
            stopped = asyncio.ensure_future(control.wait())
            try:
                await asyncio.wait({news, stopped}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
                stopped.cancel()
                await asyncio.gather(news, stopped, return_exceptions=True)
