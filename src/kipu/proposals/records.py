"""The notes that proposals are made of, in a log that only grows (decision 0023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kipu.events.boundary import NoteEvent
from kipu.proposals.proposal import Author, Evidence
from kipu.proposals.target import Target

MADE = "kipu.proposal.made"
REPEATED = "kipu.proposal.repeated"
TRIED = "kipu.proposal.tried"
DECIDED = "kipu.proposal.decided"
REVERTED = "kipu.proposal.reverted"
TRIAL = "kipu.proposal.trial"  # in the session whose turns were tried: what the model said there


def made(
    proposal_id: str,
    target: Target,
    *,
    before: str | None,
    after: str | None,
    base_version: int,
    reason: str,
    evidence: Sequence[Evidence],
    author: Author,
) -> NoteEvent:
    """Return the note that a proposal was made."""
    data = {
        "proposal_id": proposal_id,
        "target": target.to_json(),
        "before": before,
        "after": after,
        "base_version": base_version,
        "reason": reason,
        "evidence": [entry.to_json() for entry in evidence],
        "author": author.to_json(),
    }
    return NoteEvent(kind=MADE, data=data)


def repeated(proposal_id: str, *, evidence: Sequence[Evidence], author: Author) -> NoteEvent:
    """Return the note that the same was proposed again."""
    data = {"proposal_id": proposal_id, "evidence": [entry.to_json() for entry in evidence], "author": author.to_json()}
    return NoteEvent(kind=REPEATED, data=data)


def tried(proposal_id: str, trial: Mapping[str, Any], *, by: str) -> NoteEvent:
    """Return the note that it was tried, and what that cost."""
    return NoteEvent(kind=TRIED, data={"proposal_id": proposal_id, "by": by, "trial": dict(trial)})


def decided(proposal_id: str, decision: str, *, by: str, reason: str, more: Mapping[str, Any]) -> NoteEvent:
    """Return the note that a person approved or rejected it."""
    return NoteEvent(
        kind=DECIDED, data={"proposal_id": proposal_id, "decision": decision, "by": by, "reason": reason, **more}
    )


def reverted(proposal_id: str, *, by: str, reason: str, from_version: int, to_version: int) -> NoteEvent:
    """Return the note that its target went back to the version before."""
    data = {
        "proposal_id": proposal_id,
        "by": by,
        "reason": reason,
        "from_version": from_version,
        "to_version": to_version,
    }
    return NoteEvent(kind=REVERTED, data=data)
