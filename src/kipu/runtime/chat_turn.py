"""The turn of a chat without tools: message → turn → window → model call → answer → end (flows.md, "A plain turn")."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kipu.context.policy import LADDER, WindowPolicy
from kipu.errors import ModelContextOverflowError, ModelError, ModelRefusedError
from kipu.events.content import Content, ProviderMark
from kipu.events.conversation import AgentMessageEvent, ModelCallEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import TurnFinishedEvent, TurnStartedEvent
from kipu.manager.session import Session
from kipu.manager.turn import Outcome
from kipu.ports.model import ModelClient, ModelEvent, ModelReply, ModelRequest, ModelStream
from kipu.runtime.open_turn import ReopenedTurn
from kipu.runtime.shown_window import TARGET, window_record

SETTING_NAMES = ("temperature", "max_tokens", "top_p", "top_k", "seed", "stop", "reasoning")
WINDOW_SHARE = 0.8  # of the model's own window: the rest is for its answer and for what an estimate misses
OVERFLOW_SHARE = 0.5
MOST_OVERFLOWS = 3
EventSink = Callable[[ModelEvent], None]


class RunningTurn(Protocol):
    """What a chat turn asks of the turn it runs in, new or reopened."""

    id: str
    outcome: Outcome
    usage: dict[str, Any] | None
    error: str | None

    async def add_event(self, event: SessionEvent) -> SessionEvent:
        """Append one event under the turn's lease."""
        ...

    async def add_events(self, events: list[SessionEvent]) -> list[SessionEvent]:
        """Append several as one batch."""
        ...


@dataclass(frozen=True, slots=True)
class TurnReport:
    """How a turn went: its answer (also an interrupted one), and the error of a failed one."""

    turn_id: str
    outcome: Outcome
    answer: AgentMessageEvent | None = None
    error: ModelError | None = None


def policy_for(model: ModelClient, *, policy: WindowPolicy | None = None) -> WindowPolicy:
    """Return the policy bounded by the model's own window (C28)."""
    policy = policy or WindowPolicy()
    if model.context_window is None:
        return policy
    return replace(policy, max_tokens=min(policy.max_tokens, int(model.context_window * WINDOW_SHARE)))


def settings_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model settings that a session's metadata holds (B37)."""
    return {name: metadata[name] for name in SETTING_NAMES if metadata.get(name) is not None}


async def receive_message(session: Session, content: Content, *, channel: str, sender_id: str) -> int:
    """Put a message into the session's mailbox and return its seq; durable when this returns, before any turn (C5)."""
    message = UserMessageEvent(content=content, channel=channel, sender_id=sender_id, queued=True)
    return (await session.add_event(message)).seq


class ChatTurn:
    """Run turns of one session with one model; deltas go to `on_event` as they come, whole messages to the log.

    A turn that is cancelled or interrupted keeps what has arrived as an interrupted answer, and ends; the history is valid at
    every point. A model's error ends the turn as failed and is reported, not raised.
    """

    def __init__(
        self, session: Session, model: ModelClient, *, on_event: EventSink | None = None, wait_s: float | None = None
    ) -> None:
        self._session = session
        self._model = model
        self._on_event = on_event or _ignore
        self._wait_s = wait_s
        self._stream: ModelStream | None = None
        self._stopped = False

    def interrupt(self) -> None:
        """End the running answer with what has arrived, and begin no other."""
        self._stopped = True
        if self._stream is not None:
            self._stream.interrupt()

    async def run_waiting(self, *, until: int | None = None) -> AsyncIterator[TurnReport]:
        """Finish a turn that a dead process left open, then answer each waiting message in its own turn, in order (A39).

        With `until`, those up to this seq: what arrives later is for whoever sent it. Yields how each turn went, as it ends;
        ends early after one that was not completed.
        Raises: SessionBusyError, LeaseLostError, StoreError.
        """
        report: TurnReport | None = None
        try:
            await self._session.refresh()
            if self._session.head.open_turn is not None:
                report = await self._finish_open_turn()
                if report is not None:
                    yield report
            while not self._stopped and (report is None or report.outcome == "completed"):
                report = await self._run_next(until)
                if report is None:
                    return
                yield report
        finally:
            self._stopped = False

    async def _run_next(self, until: int | None) -> TurnReport | None:
        """Answer the first waiting message; which one that is can only be known under the lock."""
        await self._session.lock.acquire(wait_s=self._wait_s)
        try:
            await self._session.refresh()
            waiting = [seq for seq in self._session.head.waiting if until is None or seq <= until]
            return await self.run(waiting[:1]) if waiting else None
        finally:
            await self._session.lock.release()

    async def run(self, consumes: Sequence[int] = ()) -> TurnReport:
        """Answer these messages in one turn; without any, answer the window as it stands.

        Raises: SessionBusyError, LeaseLostError, StoreError.
        """
        async with self._session.turn(consumes=list(consumes), wait_s=self._wait_s) as turn:
            return await self._answer(turn)

    async def answer_to(self, seq: int) -> TurnReport | None:
        """Return how the turn went that answered this message, whoever ran it; None while there is none."""
        turn_id, answer = "", None
        async for event in self._session.events(after=seq):
            if isinstance(event, TurnStartedEvent) and seq in event.consumes:
                turn_id = event.turn_id
            elif isinstance(event, AgentMessageEvent) and event.turn_id == turn_id:
                answer = event
            elif isinstance(event, TurnFinishedEvent) and event.turn_id == turn_id:
                return TurnReport(turn_id, event.outcome, answer)
        return None

    async def _finish_open_turn(self) -> TurnReport | None:
        async with ReopenedTurn(self._session, wait_s=self._wait_s) as turn:
            return None if turn is None or turn.is_answered else await self._answer(turn)

    async def _answer(self, turn: RunningTurn) -> TurnReport:
        policy, overflows = self._session.policy, 0
        try:
            while True:
                try:
                    return await self._call(turn)
                except ModelContextOverflowError as error:
                    overflows += 1
                    if overflows > MOST_OVERFLOWS:
                        return self._failed(turn, error)
                    await self._narrow(max_tokens=int(self._session.policy.max_tokens * OVERFLOW_SHARE))
                except ModelRefusedError as error:
                    rung = LADDER.index(self._session.policy.ladder) + 1
                    if rung == len(LADDER) or error.data.get("partial"):
                        return self._failed(turn, error)
                    await self._narrow(ladder=LADDER[rung])
                except ModelError as error:
                    return self._failed(turn, error)
        finally:
            if self._session.policy.ladder != policy.ladder:
                await self._narrow(ladder=policy.ladder)

    async def _narrow(self, **changes: Any) -> None:
        await self._session.set_policy(replace(self._session.policy, **changes))

    def _failed(self, turn: RunningTurn, error: ModelError) -> TurnReport:
        turn.outcome, turn.error = "failed", f"{error} [{error.code}]"
        return TurnReport(turn.id, "failed", error=error)

    async def _call(self, turn: RunningTurn) -> TurnReport:
        """Show the model the window and keep what it says."""
        described = self._model.describe()
        rendering = await self._session.render(TARGET, provider=described.provider, model=described.model)
        window = window_record(rendering, self._session.history, provider=described.provider, model=described.model)
        settings = settings_of(self._session.head.metadata)
        await turn.add_event(ModelCallEvent(model=self._model.name, settings=settings, window=window))
        request = ModelRequest(
            model=self._model.name, messages=rendering.messages, settings=settings, read_blob=self._session.blob
        )
        reply = await self._read(turn, self._model.stream(request))
        turn.usage = reply.usage.as_json()
        answer = await self._keep(turn, reply)
        if reply.state == "interrupted":
            turn.outcome = "cancelled"
        return TurnReport(turn.id, turn.outcome, answer)

    async def _read(self, turn: RunningTurn, stream: ModelStream) -> ModelReply:
        self._stream = stream
        if self._stopped:
            stream.interrupt()
        try:
            async with stream:
                async for event in stream:
                    if isinstance(event, ModelReply):
                        return event
                    self._on_event(event)
            return stream.partial()
        except ModelError as error:
            partial = stream.partial()
            if partial.text.strip():
                error.data["partial"] = True
                await self._keep(turn, partial)
            raise
        except asyncio.CancelledError:
            await self._keep(turn, stream.partial())
            raise
        finally:
            self._stream = None

    async def _keep(self, turn: RunningTurn, reply: ModelReply) -> AgentMessageEvent | None:
        """Append the answer; of an interrupted one what there is, if there is anything."""
        whole = reply.state == "complete"
        if not whole and not reply.text.strip():
            return None
        opaque = dict(reply.opaque) if reply.opaque is not None and whole else None
        answer = AgentMessageEvent(
            content=reply.text,
            reasoning=reply.reasoning or None,
            usage=reply.usage.as_json(),
            finish_reason=reply.finish_reason,
            state=reply.state,
            # Reasoning that was cut has no seal: without its maker's mark it is shown to people only.
            provider=ProviderMark(name=reply.provider, model=reply.model, opaque=opaque) if whole else None,
            metadata={
                "model": self._model.name,
                **({"served_model": reply.served_model} if reply.served_model else {}),
            },
        )
        stored = await turn.add_events([answer, *_refused_calls(reply, turn.id)])
        return answer.model_copy(update={"seq": stored[0].seq})


def _refused_calls(reply: ModelReply, turn_id: str) -> list[SessionEvent]:
    """Return calls that a model made though no tool was offered, each with its result, so that the history stays valid."""
    events: list[SessionEvent] = []
    for index, call in enumerate(reply.tool_calls):
        call_id = f"call_{turn_id}_{index}"
        raw = call.get("raw")
        events.append(
            ToolCallEvent(
                tool_name=str(call.get("name") or "unknown"),
                tool_input=call.get("input") or {},
                tool_call_id=call_id,
                provider_call_id=call.get("id"),
                raw=raw,
                parse_error="the arguments are not a JSON object" if raw is not None else None,
            )
        )
        events.append(
            ToolResultEvent(tool_call_id=call_id, result="There are no tools here.", is_error=True, synthetic="skipped")
        )
    calls = [event for event in events if isinstance(event, ToolCallEvent)]
    return [*calls, *(event for event in events if isinstance(event, ToolResultEvent))]


def _ignore(_event: ModelEvent) -> None:
    """Take no notice of a delta."""
