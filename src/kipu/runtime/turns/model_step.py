"""One model call of a turn: the window is shown, the answer streams, and is kept with all its calls in one append."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from kipu.context.policy import LADDER
from kipu.context.tokens import EstimateCounter
from kipu.errors import (
    KipuError,
    ModelAnswerError,
    ModelContextOverflowError,
    ModelError,
    ModelRefusedError,
    ModelStreamCutError,
    TurnLimitError,
    TurnStoppedError,
)
from kipu.events.content import ProviderMark
from kipu.events.conversation import AgentMessageEvent, ModelCallEvent, ToolCallEvent
from kipu.events.event import SessionEvent
from kipu.manager.session import Session
from kipu.memory.asking import cut_where_unasked
from kipu.ports.model import JsonObject, ModelClient, ModelReply, ModelRequest, ModelStream, ToolCallDelta
from kipu.ports.store import EventStore
from kipu.runtime.models.retrying import DEFAULT_LIMITS, RetryLimits, retry_delay_s
from kipu.runtime.observer import BeginNews, EndNews, ModelNews, RetryNews, TurnObserver
from kipu.runtime.turns.model_settings import settings_of
from kipu.runtime.turns.shown_window import TARGET, window_record
from kipu.runtime.turns.silence import SilenceLimit
from kipu.runtime.turns.turn_budget import TurnBudget
from kipu.runtime.turns.turn_run import TurnRun

COUNTED_CHARACTERS = 500  # how often the tokens of an answer that still comes are added up
OVERFLOW_SHARE = 0.5
MOST_OVERFLOWS = 3


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How long a model may be silent, and how much one answer may be, before the call is given up."""

    silence_s: float = 120.0
    max_characters: int = 2_000_000


class ModelStep:
    """Ask the model once, however often that takes: passing faults are waited out, refusals met by stricter windows."""

    def __init__(
        self,
        session: Session,
        model: ModelClient,
        *,
        store: EventStore,
        mint: Callable[[str], str],
        random: Callable[[], float],
        observer: TurnObserver,
        budget: TurnBudget,
        retries: RetryLimits = DEFAULT_LIMITS,
        stream_limits: StreamLimits | None = None,
    ) -> None:
        self._session = session
        self._model = model
        self._store = store
        self._mint = mint
        self._random = random
        self._observer = observer
        self._budget = budget
        self._retries = retries
        self._limits = stream_limits or StreamLimits()
        self._counter = EstimateCounter()
        self._tools_digest: dict[bytes, str] = {}

    async def ask(self, run: TurnRun, *, tools: Sequence[JsonObject]) -> ModelReply:
        """Show the window as it stands, keep the answer, and return it.

        Raises: TurnStoppedError, TurnLimitError, ModelError (all tries and windows failed); what had come is kept.
        """
        ladder = self._session.policy.ladder
        try:
            return await self._ask_until_answered(run, tools)
        finally:
            if self._session.policy.ladder != ladder:
                await self._narrow(ladder=ladder)

    async def _ask_until_answered(self, run: TurnRun, tools: Sequence[JsonObject]) -> ModelReply:
        attempt, waited_s, overflows = 0, 0.0, 0
        shown: dict[str, Any] | None = None
        while True:
            run.control.check()
            request, window = await self._request(run, tools)
            if window != shown:
                await self._record(run, request, window)
                shown = window
            try:
                return await self._listen(run, request)
            except ModelContextOverflowError as error:
                overflows += 1
                if overflows > MOST_OVERFLOWS:
                    await self._give_up(run, error)
                in_use = min(self._session.policy.max_tokens, self._session.history.window.tokens)
                await self._narrow(max_tokens=max(int(in_use * OVERFLOW_SHARE), 1))
            except ModelRefusedError as error:
                rung = LADDER.index(self._session.policy.ladder) + 1
                if rung == len(LADDER):
                    await self._give_up(run, error)
                await self._narrow(ladder=LADDER[rung])
            except ModelError as error:
                attempt += 1
                wait_s = retry_delay_s(error, attempt, random=self._random, limits=self._retries, waited_s=waited_s)
                if wait_s is None:
                    await self._give_up(run, error)
                    continue
                waited_s += wait_s
                await self._wait(run, error, wait_s)

    async def _wait(self, run: TurnRun, error: ModelError, wait_s: float) -> None:
        """Wait before the next try. Where there is to be none, what this one said is the answer's last word, and kept."""
        at, token = run.place
        self._observer.tell(RetryNews(run.session.session_id, run.turn.id, str(error), wait_s, at=at, token=token))
        try:
            await run.control.sleep(min(wait_s, self._budget.remaining_s() or wait_s))
            await self._budget.check(run)
        except (asyncio.CancelledError, TurnStoppedError, TurnLimitError):
            await self._keep_partial(run, error)
            raise

    # ---- what is shown ---------------------------------------------------------------------------------------------

    async def _request(self, run: TurnRun, tools: Sequence[JsonObject]) -> tuple[ModelRequest, dict[str, Any]]:
        described = self._model.describe()
        asker = run.turn.principal
        rendering = await self._session.render(
            TARGET, provider=described.provider, model=described.model, principal=asker, shared=True
        )
        window = window_record(rendering, self._session.history, provider=described.provider, model=described.model)
        request = ModelRequest(
            model=self._model.name,
            messages=rendering.messages,
            settings=settings_of(self._session.head.metadata),
            tools=tools if described.supports_tools else (),
            read_blob=partial(self._session.blob, principal=asker),
        )
        # A second try shows the same window though its own record moved the end of the log.
        return request, {name: value for name, value in window.items() if name != "to"}

    async def _record(self, run: TurnRun, request: ModelRequest, window: dict[str, Any]) -> None:
        digest = await self._tools(request.tools) if request.tools else None
        window = {**window, "to": self._session.history.last_seq}
        await run.add(ModelCallEvent(model=request.model, settings=dict(request.settings), window=window, tools=digest))

    async def _tools(self, tools: Sequence[JsonObject]) -> str:
        """Keep the tools' definitions in the session's blobs, once, and return their digest (C6)."""
        data = orjson.dumps([dict(tool) for tool in tools], option=orjson.OPT_SORT_KEYS)
        if data not in self._tools_digest:
            self._tools_digest = {data: await self._store.put_blob(self._session.session_id, data)}
        return self._tools_digest[data]

    async def _narrow(self, **changes: Any) -> None:
        await self._session.set_policy(replace(self._session.policy, **changes))

    # ---- what is said ----------------------------------------------------------------------------------------------

    async def _listen(self, run: TurnRun, request: ModelRequest) -> ModelReply:
        """Read one answer to its end and keep it."""
        stream = self._model.stream(request)
        at, token = run.place
        self._observer.tell(BeginNews(run.session.session_id, run.turn.id, at=at, token=token))
        try:
            with run.control.on_stop(stream.interrupt), cut_where_unasked(self._model):
                async with stream:
                    try:
                        reply = await self._read(run, stream)
                    finally:
                        self._observer.tell(EndNews(run.session.session_id, run.turn.id))
        except (asyncio.CancelledError, TurnLimitError):
            await self._keep(run, stream.partial())
            raise
        except ModelError as error:
            error.data["partial_reply"] = stream.partial()
            raise
        except Exception:  # a client's own: no contract says what it means, so that it is not tried again
            await self._keep(run, stream.partial())
            raise
        if not run.story.answered and reply.state == "complete" and not reply.tool_calls and not reply.text.strip():
            raise ModelAnswerError(model=self._model.name, reason="the answer was empty")
        await self._keep(run, reply)
        run.control.check()
        return reply

    async def _read(self, run: TurnRun, stream: ModelStream) -> ModelReply:
        """Return the reply. Raises: TurnLimitError (it went on beyond what is left of the turn's budget), ModelError."""
        left_s = self._budget.remaining_s()
        try:
            async with SilenceLimit(self._limits.silence_s, left_s=left_s) as silence:
                return await self._hear(run, stream, silence)
        except TimeoutError:
            if left_s is not None:
                self._budget.check_answer(run, 0)
            raise self._cut(f"it said nothing for {self._limits.silence_s:g} s") from None

    def _cut(self, reason: str) -> ModelStreamCutError:
        endpoint = self._model.describe().endpoint or "the provider"
        return ModelStreamCutError(model=self._model.name, endpoint=endpoint, reason=reason, retry_after_s=None)

    async def _hear(self, run: TurnRun, stream: ModelStream, silence: SilenceLimit) -> ModelReply:
        characters = tokens = 0
        said: list[str] = []
        counted = 0
        async for event in stream:
            if isinstance(event, ModelReply):
                return event
            silence.heard()
            self._observer.tell(ModelNews(run.session.session_id, run.turn.id, event))
            piece = event.arguments if isinstance(event, ToolCallDelta) else event.text
            said.append(piece)
            characters += len(piece)
            if characters - counted >= COUNTED_CHARACTERS:
                tokens += self._counter.count("".join(said))
                said, counted = [], characters
                self._budget.check_answer(run, tokens)
            if characters > self._limits.max_characters:
                stream.interrupt()
                reason = f"the answer did not end after {characters} characters"
                raise ModelAnswerError(model=self._model.name, reason=reason)
        # Taken for an answer it would be no step of the turn, and the model would be asked again without end.
        raise self._cut("the answer stopped before its end")

    async def _give_up(self, run: TurnRun, error: ModelError) -> None:
        """Keep what the last try said, and raise its error."""
        with suppress(KipuError):  # the model's error is the one to tell
            await self._keep_partial(run, error)
        raise error

    async def _keep_partial(self, run: TurnRun, error: ModelError) -> None:
        partial = error.data.pop("partial_reply", None)
        if isinstance(partial, ModelReply):
            await self._keep(run, partial)

    async def _keep(self, run: TurnRun, reply: ModelReply) -> None:
        """Append the answer with all its calls; of one that was cut what there is, if there is anything."""
        whole = reply.state == "complete"
        if not whole and not reply.text.strip():
            return
        opaque = dict(reply.opaque) if reply.opaque is not None and whole else None
        served = {"served_model": reply.served_model} if reply.served_model else {}
        answer = AgentMessageEvent(
            content=reply.text,
            reasoning=reply.reasoning or None,
            usage=reply.usage.as_json(),
            finish_reason=reply.finish_reason,
            state=reply.state,
            # Reasoning that was cut has no seal: without its maker's mark it is shown to people only.
            provider=ProviderMark(name=reply.provider, model=reply.model, opaque=opaque) if whole else None,
            metadata={"model": self._model.name, **served},
        )
        calls: list[SessionEvent] = [self._call(call) for call in reply.tool_calls] if whole else []
        await run.add(answer, *calls)

    def _call(self, call: JsonObject) -> ToolCallEvent:
        raw = call.get("raw")
        return ToolCallEvent(
            tool_name=str(call.get("name") or "unknown"),
            tool_input=call.get("input") or {},
            tool_call_id=self._mint("call"),
            provider_call_id=call.get("id"),
            raw=raw,
            parse_error="the arguments are not a JSON object" if raw is not None else None,
        )
