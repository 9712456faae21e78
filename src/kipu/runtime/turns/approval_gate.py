"""The gate before every call: what is wrong with it, what policy says, and what a person decided (A19, C15)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from kipu.events.normalise import normalise
from kipu.events.turn import ApprovalRequestEvent
from kipu.ports.principal import Principal
from kipu.ports.tool import JsonObject, Tool, ToolContext, ToolSpec
from kipu.runtime.policy.arguments_hash import arguments_hash
from kipu.runtime.policy.grant import SCOPES, GrantScope
from kipu.runtime.policy.grants import Grants
from kipu.runtime.policy.tool_policy import PolicyDecision
from kipu.runtime.tools.toolbox import Toolbox
from kipu.runtime.turns.turn_run import TurnRun
from kipu.runtime.turns.withheld import hidden_words, refusal_of
from kipu.session.turn_story import OpenCall

QUESTION = "question"  # in what a person is shown, where an answer is wanted and no permission
DEFAULT_TTL_S = 7 * 24 * 3600.0
APPROVED, DENIED, ANSWERED = "approved", "denied", "answered"


class Decide(Protocol):
    """Say what policy answers."""

    async def __call__(self, spec: ToolSpec | None, subject: str, *, principal: Principal) -> PolicyDecision:
        """Return the answer and the rule that gave it."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to a call now.

    `run` with these arguments; `ask` a person (the request is out, or goes out now); `refuse` with a result that says why;
    `answer` with what a person said, which is all that the call wanted.
    """

    kind: Literal["run", "ask", "refuse", "answer"]
    arguments: JsonObject
    reason: str = ""
    error_info: str | None = None
    synthetic: Literal["interrupted", "denied"] | None = None


class ApprovalGate:
    """Judge calls one by one. Everything is judged again when a turn goes on after a decision or a crash."""

    def __init__(
        self,
        toolbox: Toolbox,
        decide: Decide,
        *,
        principal: Principal,
        grants: Grants | None,
        now: Callable[[], datetime],
        mint: Callable[[str], str],
        ttl_s: float = DEFAULT_TTL_S,
        came_from: str | None = None,
    ) -> None:
        self._toolbox = toolbox
        self._decide = decide
        self._principal = principal
        self._grants = grants
        self._now = now
        self._mint = mint
        self._ttl_s = ttl_s
        self._came_from = came_from  # the machine that had the files until this turn was taken up here

    async def judge(self, run: TurnRun, call: OpenCall) -> Verdict:
        """Return what happens to the call now."""
        tool = self._toolbox.find(call.call.tool_name)
        arguments = _arguments(run, call)
        made = call.call
        problem = self._toolbox.refusal(made.tool_name, arguments, raw=made.raw, parse_error=made.parse_error)
        if problem is not None or tool is None:
            reason, word = (problem.content, problem.error_info) if problem else ("there is no such tool", None)
            return Verdict("refuse", arguments, str(reason), error_info=word)
        if tool.spec.has_side_effect and run.session.redacts and (withheld := refusal_of(arguments)) is not None:
            return Verdict("refuse", arguments, withheld, "redacted")
        begun = call.starts - call.parks
        if begun and not (tool.spec.is_idempotent and begun < tool.spec.max_starts):
            return _interrupted(call, arguments, came_from=self._came_from)
        decision = await self._decide(tool.spec, tool.subject(arguments), principal=self._principal)
        if decision.answer == "deny":
            return Verdict("refuse", arguments, f"Not allowed: {decision.reason}.", "denied", "denied")
        if call.request is not None:
            return self._by_person(call, arguments, tool.spec)
        if tool.spec.is_question:
            return Verdict("ask", arguments, "the agent asks")
        if _was_interrupted(run, call):
            return Verdict("ask", arguments, "the same call was interrupted before, and may have had its effect")
        if decision.answer == "allow" or await self._is_granted(run, tool, arguments, layer=decision.layer):
            return Verdict("run", arguments)
        return Verdict("ask", arguments, decision.reason)

    def _by_person(self, call: OpenCall, arguments: JsonObject, spec: ToolSpec) -> Verdict:
        """Return what the decision says, if it came in time and is about what was asked."""
        request, decision = call.request, call.decision
        if request is None:
            return Verdict("ask", arguments)
        if decision is None:
            if request.expires_at is not None and request.expires_at <= self._now():
                return Verdict("refuse", arguments, "Nobody decided in time.", "expired", "denied")
            return Verdict("ask", arguments)
        if decision.decision not in (APPROVED, ANSWERED):
            said = f": {decision.reason}" if decision.reason else "."
            return Verdict("refuse", arguments, f"Denied by {decision.by}{said}", "denied", "denied")
        asked_hash = arguments_hash(call.call.tool_name, call.call.tool_input)
        if request.arguments_hash != asked_hash:
            return Verdict("refuse", arguments, "The call is not the one that was approved.", "changed", "denied")
        decided_at = decision.timestamp
        if request.expires_at is not None and decided_at is not None and decided_at > request.expires_at:
            return Verdict("refuse", arguments, "The approval came too late.", "expired", "denied")
        if spec.is_question:
            return Verdict("answer", arguments, decision.answer if decision.answer is not None else "yes")
        return Verdict("run", arguments)

    async def _is_granted(self, run: TurnRun, tool: Tool, arguments: JsonObject, *, layer: str) -> bool:
        if self._grants is None:
            return False
        subject = tool.subject(arguments)
        # What the session itself asks about is not answered by a grant from outside it: a session only narrows.
        scopes: tuple[GrantScope, ...] = ("session",) if layer == "session" else SCOPES
        grant = await self._grants.matching(
            run.session, tool.spec.name, subject=subject, principal=self._principal, scopes=scopes
        )
        return grant is not None

    async def request(
        self, call: OpenCall, verdict: Verdict, *, context: Callable[[OpenCall], Awaitable[ToolContext]]
    ) -> ApprovalRequestEvent:
        """Return the request to append before it is shown to anybody (C15)."""
        tool = self._toolbox.find(call.call.tool_name)
        kept = call.call.tool_input  # as the log has it: what is withheld from there is not shown either
        shown: dict[str, Any] = {
            "tool": call.call.tool_name,
            "arguments": dict(kept),
            "reason": verdict.reason + hidden_words(verdict.arguments, kept),
            "requested_by": self._principal.id,
        }
        if tool is not None:
            shown.update({QUESTION: tool.subject(kept)} if tool.spec.is_question else {})
            shown["subject"] = tool.subject(kept)
            shown.update(await _preview(tool, kept, await context(call)))
        return ApprovalRequestEvent(
            approval_id=self._mint("appr"),
            tool_call_id=call.id,
            arguments_hash=arguments_hash(call.call.tool_name, call.call.tool_input),
            shown=shown,
            expires_at=self._now() + timedelta(seconds=self._ttl_s),
        )


def _arguments(run: TurnRun, call: OpenCall) -> Mapping[str, Any]:
    """Return what the call is to be run with: what the model wrote, or what a person put in its place."""
    decision = call.decision
    if decision is not None and decision.decision == APPROVED and decision.arguments is not None:
        return decision.arguments
    return run.withheld.arguments(call)


def _interrupted(call: OpenCall, arguments: JsonObject, *, came_from: str | None) -> Verdict:
    text = "The process ended while this call ran; whether it had its effect is not known. Look before you repeat it."
    if call.starts > 1:
        text = f"The process ended {call.starts} times while this call ran; it is not tried again."
    if came_from is not None:
        text += f" The turn goes on on another machine: what the call did to files of {came_from} is not here."
    return Verdict("refuse", arguments, text, "interrupted", "interrupted")


def _was_interrupted(run: TurnRun, call: OpenCall) -> bool:
    """Return True when the model asks again for what was interrupted in this turn: nothing runs twice silently (C14)."""
    wanted = arguments_hash(call.call.tool_name, call.call.tool_input)
    return any(arguments_hash(old.tool_name, old.tool_input) == wanted for old in run.story.interrupted)


async def _preview(tool: Tool, arguments: JsonObject, context: ToolContext) -> dict[str, Any]:
    try:
        preview = await tool.preview(arguments, context)
    except Exception as error:  # noqa: BLE001 - a person is asked all the same
        return {"summary": f"{tool.spec.name}: {normalise(error)[0]}"}
    return {"summary": preview.summary, **({"diff": preview.diff} if preview.diff else {})}
