"""What a proposal may be made of, checked before anything is kept."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from kipu.errors import InputError, InvalidProposalError
from kipu.ports.memory_policy import MemoryPolicy
from kipu.proposals.proposal import Evidence
from kipu.proposals.target import ProposalKind, Target
from kipu.proposals.text_check import SECTION_MARK

MAX_TEXT: dict[ProposalKind, int] = {"instruction": 20_000, "skill": 50_000, "memory_policy": 4_000}
MAX_REASON = 2_000
MAX_EVIDENCE = 50
MAX_OPEN = 50  # beyond that, nobody reads them
MAX_REPEATED = 20


def check_proposal(target: Target, text: str | None, *, reason: str, evidence: Sequence[Evidence]) -> None:
    """Return where it can be proposed. Raises: InvalidProposalError."""
    if not reason.strip():
        raise InvalidProposalError(reason="it says no reason")
    if len(reason) > MAX_REASON:
        raise InvalidProposalError(reason=f"the reason has {len(reason)} characters, and at most {MAX_REASON} are kept")
    if sum(max(len(entry.seqs), 1) for entry in evidence) > MAX_EVIDENCE:
        raise InvalidProposalError(
            reason=f"it names more than {MAX_EVIDENCE} events as evidence; name those that matter"
        )
    if text is None:
        return
    most = MAX_TEXT[target.kind]
    if not text.strip():
        raise InvalidProposalError(reason="the new text is empty; leave it out to remove what there is")
    if len(text) > most:
        raise InvalidProposalError(reason=f"the text has {len(text)} characters, and at most {most} are kept")
    if SECTION_MARK in text:
        raise InvalidProposalError(reason=f"the text contains Kipu's own mark {SECTION_MARK}")
    if target.kind == "memory_policy":
        policy_of(text)


def policy_of(text: str) -> MemoryPolicy:
    """Return the memory policy that a text writes as JSON. Raises: InvalidProposalError."""
    try:
        return MemoryPolicy.from_json(orjson.loads(text))
    except (ValueError, InputError) as error:
        reason = error.data["reason"] if isinstance(error, InputError) else f"it is no JSON ({error})"
        raise InvalidProposalError(reason=f"a memory policy is one JSON object: {reason}") from error


def same_policy(first: str | None, second: str | None) -> bool:
    """Say whether two texts write the same memory policy."""
    if first is None or second is None:
        return first == second
    return policy_of(first) == policy_of(second)
