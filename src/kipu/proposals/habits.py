"""What consolidation learns about how to work: what a person said in session after session is proposed as an instruction (C26)."""

from __future__ import annotations

import logging

from kipu.errors import KipuError
from kipu.memory.consolidation import Consolidated
from kipu.ports.memory import Fact, Space
from kipu.ports.principal import Principal
from kipu.proposals.inbox import ProposalInbox
from kipu.proposals.ledger import Ledgers
from kipu.proposals.proposal import Author, Evidence, Proposal
from kipu.proposals.state import LedgerState
from kipu.proposals.target import Target
from kipu.proposals.text_check import folded

logger = logging.getLogger(__name__)

ENOUGH_SESSIONS = 2
_FOLDER = "folder:"


class HabitProposals:
    """Look at what was taken into memory, and propose what has become a habit.

    A preference that its person stated in at least two sessions is proposed as a line more of the instructions of its scope. At
    most one such proposal of a target waits at a time, and a line that was refused once, or is told already, is not proposed again.
    """

    def __init__(self, ledgers: Ledgers, inbox: ProposalInbox) -> None:
        self._ledgers = ledgers
        self._inbox = inbox

    async def take(self, taken: Consolidated) -> list[Proposal]:
        """Propose what has become a habit, and return the new proposals. That it fails is told: memory has taken it in by then."""
        by_space: dict[Space, list[Fact]] = {}
        for fact in taken.facts:
            if _is_habit(fact):
                by_space.setdefault(fact.space, []).append(fact)
        made = []
        for space, facts in by_space.items():
            target = _target(space)
            try:
                proposal = await self._propose(taken, target, facts=facts) if target is not None else None
            except KipuError as error:
                logger.warning("what memory learned of %s was not proposed: %s", space.subject or space.owner, error)
                continue
            if proposal is not None:
                made.append(proposal)
        return made

    async def _propose(self, taken: Consolidated, target: Target, *, facts: list[Fact]) -> Proposal | None:
        owner = Principal(facts[0].space.owner, facts[0].space.tenant)
        state = await self._ledgers.of(owner).state()
        new = [fact for fact in facts if not _is_known(state, target, line=_line(fact))]
        if not new or _waits(state, target):
            return None
        before = state.of(target).text
        text = "\n".join([*([before.rstrip()] if before else []), *map(_line, new)])
        counts = ", ".join(str(len(_sessions(fact))) for fact in new)
        proposed = await self._inbox.propose(
            owner,
            target,
            text=text,
            reason=f"said in several sessions ({counts})",
            evidence=_evidence(new),
            author=Author("consolidation", owner.id, taken.session_id, model=taken.model or ""),
        )
        return proposed.proposal if proposed.is_new else None


def _is_habit(fact: Fact) -> bool:
    is_stated = fact.kind == "preference" and fact.status == "active" and not fact.findings
    return is_stated and len(_sessions(fact)) >= ENOUGH_SESSIONS


def _sessions(fact: Fact) -> list[str]:
    return list(dict.fromkeys(source.session_id for source in fact.sources))


def _target(space: Space) -> Target | None:
    """Return the instructions that a fact of this space belongs to; None where it has none, as in a chat without a directory."""
    if space.scope == "user":
        return Target.of("instruction", "user", project=None)
    if space.scope == "project" and space.subject.startswith(_FOLDER):
        return Target.of("instruction", "project", project=space.subject.removeprefix(_FOLDER))
    return None


def _line(fact: Fact) -> str:
    return f"- {fact.text}"


def _is_known(state: LedgerState, target: Target, *, line: str) -> bool:
    """Say whether the line is in force, or was refused with any proposal that held it."""
    told = [state.of(target).text]
    told += [
        proposal.after
        for proposal in state.proposals.values()
        if proposal.target == target and proposal.status in ("rejected", "reverted")
    ]
    return any(folded(line) in map(folded, (text or "").splitlines()) for text in told)


def _waits(state: LedgerState, target: Target) -> bool:
    return any(
        proposal.is_open and proposal.target == target and proposal.author.kind == "consolidation"
        for proposal in state.proposals.values()
    )


def _evidence(facts: list[Fact]) -> list[Evidence]:
    found: dict[str, list[int]] = {}
    for fact in facts:
        for source in fact.sources[:10]:
            found.setdefault(source.session_id, []).append(source.seq)
    return [Evidence(session_id, tuple(sorted(set(seqs)))) for session_id, seqs in found.items()][:20]
