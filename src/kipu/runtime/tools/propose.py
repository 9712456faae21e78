"""`propose`: what an agent learned about how to work, put before the person. It changes nothing by itself (C26)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kipu.errors import InvalidProposalError, ProposalRepeatedError
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.proposals.evidence import EvidenceEvent, standing_of
from kipu.proposals.inbox import ProposalInbox
from kipu.proposals.limits import MAX_EVIDENCE, MAX_REASON
from kipu.proposals.proposal import Author, Evidence
from kipu.proposals.target import KINDS, SCOPES, Target
from kipu.runtime.policy.grants import project_of
from kipu.runtime.tools.file_tool import failure
from kipu.runtime.turns.ancestry import bond_of
from kipu.runtime.turns.turn_run import read_story

SPEC = ToolSpec(
    name="propose",
    description=(
        "Propose a lasting change to how you work, when a correction, a failure or a success taught you something that will "
        "matter again: the instructions you are given, a skill (a text you can read later), or the memory policy. The person "
        "decides; until then nothing changes. `text` is the whole new text, not a change of it. This turn is the evidence."
    ),
    parameters={
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": list(KINDS), "description": "What would change."},
            "name": {"type": "string", "description": "Of a skill: its name, such as release-notes."},
            "text": {
                "type": "string",
                "description": "The whole new text. A skill begins with a line that says when to read it; a memory policy is "
                "a JSON object. Without it, what there is would be removed.",
            },
            "reason": {"type": "string", "minLength": 1, "maxLength": MAX_REASON, "description": "Why, in a sentence."},
            "scope": {
                "type": "string",
                "enum": list(SCOPES),
                "description": "Default: the project, where there is one.",
            },
            "evidence": {
                "type": "array",
                "maxItems": MAX_EVIDENCE,
                "items": {
                    "type": "object",
                    "properties": {
                        "session_id": {"type": "string"},
                        "seqs": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1}},
                    },
                    "required": ["session_id", "seqs"],
                    "additionalProperties": False,
                },
                "description": "Earlier events it follows from, by the numbers that session_search gives.",
            },
        },
        "required": ["kind", "reason"],
        "additionalProperties": False,
    },
    is_idempotent=True,  # the same call proposes once
    has_side_effect=False,  # nothing acts on it, and no file changes
    default_policy="allow",
)


class Propose:
    """Put proposals of one session's agent into its owner's ledger, with the events they follow from."""

    def __init__(self, inbox: ProposalInbox, manager: SessionManager, *, session: Session, model: str) -> None:
        self._inbox = inbox
        self._manager = manager
        self._session = session
        self._model = model

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares."""
        return SPEC

    def subject(self, arguments: JsonObject) -> str:
        """Return what would change, such as skill/release-notes."""
        name = arguments.get("name")
        return f"{arguments.get('kind')}/{name}" if name else str(arguments.get("kind"))

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return what would be proposed, and why."""
        del context
        reason = " ".join(str(arguments.get("reason", "")).split())
        return ToolPreview(f"propose {self.subject(arguments)}: {reason[:200]}")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Propose it, and say what there is now."""
        owner, project = owner_of(self._session.head), project_of(self._session)
        kind, scope = str(arguments["kind"]), arguments.get("scope") or ("project" if project else "user")
        try:
            target = Target.of(kind, str(scope), project=project, name=arguments.get("name"))
            evidence = [await self._of_this_turn(context), *await self._given(arguments.get("evidence"), owner=owner)]
            proposed = await self._inbox.propose(
                owner,
                target,
                text=arguments.get("text"),
                reason=str(arguments["reason"]),
                evidence=[entry for entry in evidence if entry.seqs],
                author=self._author(context),
            )
        except (InvalidProposalError, ProposalRepeatedError) as error:
            return failure(str(error), word=error.code)
        proposal_id = proposed.proposal.proposal_id
        if not proposed.is_new:
            return ToolResult(f"The same waits already as {proposal_id}; this turn was added to its evidence.")
        return ToolResult(f"Proposed as {proposal_id}: {target.label}. It takes effect only if the person approves it.")

    async def aclose(self) -> None:
        """Hold nothing: the inbox is the caller's."""

    def _author(self, context: ToolContext) -> Author:
        is_helper = bond_of(self._session.head.metadata) is not None
        return Author(
            kind="helper" if is_helper else "agent",
            principal=context.principal.id,
            session_id=context.session_id,
            turn_id=context.turn_id,
            call_id=context.call_id,
            model=self._model,
        )

    async def _of_this_turn(self, context: ToolContext) -> Evidence:
        """Return the messages this turn answers, and this very call: what the person can read to judge it."""
        story = await read_story(self._session)
        call = story.calls.get(context.call_id)
        return Evidence(context.session_id, (*story.consumes, *([call.call.seq] if call is not None else [])))

    async def _given(self, entries: Any, *, owner: Principal) -> list[Evidence]:
        """Return the evidence that the model named. Raises: InvalidProposalError (an event that is not there)."""
        given = [entry for entry in map(Evidence.from_json, entries or ()) if entry is not None]
        stands = await standing_of(self._manager, given, principal=owner)
        _require_there(stands)
        return given


def _require_there(events: Sequence[EvidenceEvent]) -> None:
    lost = next((event for event in events if event.state == "gone"), None)
    if lost is not None:
        raise InvalidProposalError(reason=f"there is no event {lost.seq} in session {lost.session_id!r}")
