"""What may run without a person: decisions that the command line made beforehand, each recorded in the log as any other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from kipu.errors import ApprovalNotFoundError

if TYPE_CHECKING:
    from kipu.manager.session import Session
    from kipu.runtime.approvals import PendingApproval
    from kipu.runtime.policy.policy_rule import PolicyRule
    from kipu.runtime.runtime import Runtime

Mode: TypeAlias = Literal["none", "reads", "all"]


@dataclass(frozen=True, slots=True)
class Consent:
    """Allow nothing that asks, what only looks, or everything; by rules more or less. Policy's `deny` is never asked about.

    `waits` says that somebody else may decide meanwhile.
    """

    mode: Mode = "none"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    waits: bool = False

    def rules(self) -> tuple[PolicyRule, ...]:
        """Return the rules for the policy. Raises: ConfigurationError."""
        from kipu.runtime.policy.policy_rule import parse_rules

        return parse_rules({"allow": list(self.allow), "deny": list(self.deny)}, source="the command line")

    async def decide(self, runtime: Runtime, approvals: Sequence[PendingApproval]) -> list[PendingApproval]:
        """Decide what this allows and return what is left for a person."""
        left: list[PendingApproval] = []
        for approval in approvals:
            if approval.is_expired:  # the turn goes on with a refusal by itself
                continue
            why = await self._reason(runtime, approval)
            if why is None:
                left.append(approval)
                continue
            with suppress(ApprovalNotFoundError):  # somebody else was quicker
                await runtime.desk.approve(approval.approval_id, reason=why, session_id=approval.session_id)
        return left

    async def _reason(self, runtime: Runtime, approval: PendingApproval) -> str | None:
        """Return why the call is allowed, None where it is not, or where words are wanted and no permission."""
        if approval.question is not None:
            return None
        if self.mode == "all":
            return "kipu run --approve all"
        if self.mode == "none" and not self.allow:
            return None
        agent = await runtime.orchestrator.switch_to_session(approval.session_id)
        tool = agent.parts.toolbox.find(approval.tool_name)
        if tool is None or await _was_interrupted(agent.session, approval):
            return None
        if self.mode == "reads" and not tool.spec.has_side_effect:
            return "kipu run --approve reads"
        # A question from before this run, which its rules would not have let come up.
        subject = str(approval.shown.get("subject") or "")
        decision = await agent.decide(tool.spec, subject, principal=runtime.manager.principal)
        return f"kipu run --allow: {decision.reason}" if decision.answer == "allow" else None


async def _was_interrupted(session: Session, approval: PendingApproval) -> bool:
    """Return True for a call that may have had its effect already: a rule about its kind says nothing of that."""
    from kipu.runtime.turns.turn_run import read_story

    story = await read_story(session)
    return any(
        (call.tool_name, call.tool_input) == (approval.tool_name, dict(approval.arguments))
        for call in story.interrupted
    )
