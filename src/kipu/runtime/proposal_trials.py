"""Trials of proposals: recorded model calls asked again under the change, beside what was answered then. No tool is run (C26)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from kipu.errors import BlobNotFoundError, InputError, InvalidQueryError, ModelError, ModelStreamCutError
from kipu.events.boundary import NoteEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.memory.asking import cut_where_unasked
from kipu.ports.model import ModelClient, ModelReply, ModelRequest, ModelStream, ModelUsage
from kipu.ports.principal import Principal
from kipu.proposals import records
from kipu.proposals.evidence import evidence_session
from kipu.proposals.learned import learned_from, with_section
from kipu.proposals.proposal import Proposal
from kipu.proposals.state import LedgerState
from kipu.runtime.recorded_calls import RecordedCall
from kipu.runtime.turns.shown_window import replay
from kipu.runtime.turns.spending import add_usage, price_usd

SILENCE_S = 120.0
KEPT_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class TriedStep:
    """One recorded model call, asked again. `error` says why there is no answer; `is_same_window` whether all else was as then."""

    recorded: RecordedCall
    model: str
    text: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    usage: ModelUsage = field(default_factory=ModelUsage)
    cost_usd: float | None = None
    is_same_window: bool | None = None
    error: str | None = None
    note_seq: int = 0  # of the note in its session that keeps the answer

    @property
    def is_same(self) -> bool:
        """Return True where the answer makes the same calls, or says the same where neither makes any."""
        then, now = [_called(call) for call in self.recorded.calls], [_called(call) for call in self.calls]
        return then == now and (bool(now) or self.recorded.text.strip() == self.text.strip())

    def to_json(self) -> dict[str, Any]:
        """Return it with both answers."""
        return {
            **self.summary(),
            "recorded": {"text": self.recorded.text, "calls": list(self.recorded.calls), "usage": self.recorded.usage},
            "tried": {"text": self.text, "calls": list(self.calls)},
        }

    def summary(self) -> dict[str, Any]:
        """Return what the ledger keeps: no word of either answer, which stay with the session they come from."""
        return {
            "session_id": self.recorded.session_id,
            "seq": self.recorded.seq,
            "turn_id": self.recorded.turn_id,
            "is_same": self.is_same if self.error is None else None,
            "is_same_window": self.is_same_window,
            "usage": self.usage.as_json(),
            "cost_usd": self.cost_usd,
            "error": self.error,
            "note_seq": self.note_seq,
        }


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of `try`: what was asked again, and what that used."""

    trial_id: str
    model: str
    steps: tuple[TriedStep, ...]

    @property
    def answered(self) -> int:
        """Return how many steps were answered."""
        return sum(step.error is None for step in self.steps)

    @property
    def usage(self) -> ModelUsage:
        """Return what all steps used."""
        total = ModelUsage()
        for step in self.steps:
            total = add_usage(total, step.usage)
        return total

    @property
    def cost_usd(self) -> float | None:
        """Return what all answered steps cost, None where part of it is unknown."""
        costs = [step.cost_usd for step in self.steps if step.error is None]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    def summary(self) -> dict[str, Any]:
        """Return what the ledger keeps of it."""
        return {
            "trial_id": self.trial_id,
            "model": self.model,
            "answered": self.answered,
            "steps": [step.summary() for step in self.steps],
            "usage": self.usage.as_json(),
            "cost_usd": self.cost_usd,
        }


class ProposalTrials:
    """Ask recorded model calls again with a proposal in force. Nothing but its own notes is written, and no tool is run."""

    def __init__(
        self, manager: SessionManager, *, model: Callable[[str | None], ModelClient], silence_s: float = SILENCE_S
    ) -> None:
        self._manager = manager
        self._model = model
        self._silence_s = silence_s

    async def run(
        self,
        proposal: Proposal,
        state: LedgerState,
        *,
        calls: Sequence[RecordedCall],
        principal: Principal,
        model: str | None = None,
        tell: Callable[[TriedStep], None] = lambda _step: None,
    ) -> Trial:
        """Return how the model answers each recorded call under the change; `model` in place of the one recorded.

        Each answer is kept as a note in the session it follows from, so that it is erased with it.
        Raises: InputError (the change shows in no window), ModelNameError.
        """
        if proposal.target.kind == "memory_policy":
            raise InputError(
                reason="a memory policy changes no window, so there is nothing to try; approve with --untried"
            )
        trial_id, steps, names = self._manager.mint("trial"), [], []
        for call in calls:
            client = self._model(model or call.event.model)
            session = await self._manager.open(call.session_id, principal=principal)
            step = await self._tried(session, call, client=client, section=_section(proposal, state))
            if step.error is None:
                kept = await session.add_event(_note(trial_id, proposal, step), principal=principal)
                step = replace(step, note_seq=kept.seq)
            steps.append(step)
            names.append(client.name)
            tell(step)
        return Trial(trial_id, ", ".join(dict.fromkeys(names)), tuple(steps))

    async def _tried(self, session: Session, call: RecordedCall, *, client: ModelClient, section: str) -> TriedStep:
        described = client.describe()
        try:
            request, is_same_window = await self._request(session, call, client=client, section=section)
            reply = await self._answer(client, request)
        except (ModelError, InvalidQueryError, BlobNotFoundError) as error:
            return TriedStep(call, client.name, error=f"{error} [{error.code}]")
        cost = price_usd(reply.usage, provider=described.provider, model=described.model, endpoint=described.endpoint)
        return TriedStep(
            call,
            client.name,
            text=reply.text,
            calls=tuple(_plain(each) for each in reply.tool_calls),
            usage=reply.usage,
            cost_usd=cost,
            is_same_window=is_same_window,
        )

    async def _request(
        self, session: Session, call: RecordedCall, *, client: ModelClient, section: str
    ) -> tuple[ModelRequest, bool | None]:
        """Return the request of the recorded call with the changed instruction, and whether all else is as it was."""
        described = client.describe()
        replayed = await replay(session, call.event, store=self._manager.store)
        is_same, reader = replayed.matches, {"provider": described.provider, "model": described.model}
        if call.event.window.get("reader") != reader:  # what only its maker can read goes to nobody else (C28)
            window = {**call.event.window, "reader": reader, "digest": None}
            replayed = await replay(
                session, call.event.model_copy(update={"window": window}), store=self._manager.store
            )
        tools: Sequence[Any] = ()
        if call.event.tools and described.supports_tools:
            tools = orjson.loads(await session.blob(call.event.tools))
        request = ModelRequest(
            model=client.name,
            messages=with_instruction(replayed.rendering.messages, section),
            settings=call.event.settings,
            tools=tools,
            read_blob=session.blob,
        )
        return request, is_same

    async def _answer(self, client: ModelClient, request: ModelRequest) -> ModelReply:
        with cut_where_unasked(client):
            async with client.stream(request) as stream:
                return await self._heard(client, stream)

    async def _heard(self, client: ModelClient, stream: ModelStream) -> ModelReply:
        while True:
            try:
                async with asyncio.timeout(self._silence_s):
                    event = await anext(stream, None)
            except TimeoutError:
                raise ModelStreamCutError(
                    model=client.name,
                    endpoint=client.describe().endpoint or "the provider",
                    reason=f"it said nothing for {self._silence_s:g} s",
                    retry_after_s=None,
                ) from None
            if event is None:
                return stream.partial()
            if isinstance(event, ModelReply):
                return event


async def kept_answer(
    manager: SessionManager, step: Mapping[str, Any], *, principal: Principal
) -> dict[str, Any] | None:
    """Return the answer of a step that a ledger names, None where its session was erased or is not this principal's."""
    session = await evidence_session(manager, str(step.get("session_id", "")), principal=principal)
    seq = step.get("note_seq")
    if session is None or not isinstance(seq, int) or not 0 < seq <= session.history.last_seq:
        return None
    item = (await session.history.reader.at([seq])).get(seq)
    note = item.event if item is not None else None
    return dict(note.data) if isinstance(note, NoteEvent) and note.kind == records.TRIAL else None


def with_instruction(messages: Sequence[Mapping[str, Any]], section: str) -> list[dict[str, Any]]:
    """Return neutral messages whose instruction has this section of what was learned."""
    found = [dict(message) for message in messages]
    if found and found[0].get("role") == "system":
        told = "\n".join(str(part.get("text", "")) for part in found[0]["content"])
        found[0] = {**found[0], "content": [{"type": "text", "text": with_section(told, section)}]}
    elif section:
        found.insert(0, {"role": "system", "content": [{"type": "text", "text": section}]})
    return found


def _section(proposal: Proposal, state: LedgerState) -> str:
    learned = learned_from(state, project=proposal.target.project or None, also=proposal)
    return learned.section(in_full=proposal.target.name if proposal.target.kind == "skill" else None)


def _note(trial_id: str, proposal: Proposal, step: TriedStep) -> NoteEvent:
    return NoteEvent(
        kind=records.TRIAL,
        data={
            "trial_id": trial_id,
            "proposal_id": proposal.proposal_id,
            "call_seq": step.recorded.seq,
            "model": step.model,
            "text": step.text[:KEPT_CHARACTERS],
            "calls": [dict(call) for call in step.calls],
        },
    )


def _plain(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": str(call.get("name") or "unknown"), "input": call.get("input") or call.get("raw") or {}}


def _called(call: Mapping[str, Any]) -> tuple[str, bytes]:
    return str(call.get("name")), orjson.dumps(call.get("input"), option=orjson.OPT_SORT_KEYS)
