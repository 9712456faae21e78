"""Where what was learned is proposed. It creates proposals, and can do nothing else with them (C26)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kipu.errors import InvalidProposalError, ProposalRepeatedError
from kipu.events.boundary import NoteEvent
from kipu.ports.principal import Principal
from kipu.proposals import records
from kipu.proposals.ledger import Ledgers
from kipu.proposals.limits import MAX_OPEN, MAX_REPEATED, check_proposal
from kipu.proposals.proposal import Author, Evidence, Proposal
from kipu.proposals.state import LedgerState
from kipu.proposals.target import Target
from kipu.proposals.text_check import folded


class Proposed(NamedTuple):
    """A proposal, and whether it was made now; one that waits already gets the new evidence instead."""

    proposal: Proposal
    is_new: bool


class ProposalInbox:
    """Put proposals into people's ledgers."""

    def __init__(self, ledgers: Ledgers, *, mint: Callable[[str], str]) -> None:
        self._ledgers = ledgers
        self._mint = mint

    async def propose(
        self,
        owner: Principal,
        target: Target,
        *,
        text: str | None,
        reason: str,
        evidence: Sequence[Evidence],
        author: Author,
    ) -> Proposed:
        """Propose that `target` reads `text` (None: that it is removed); durable when this returns. Nothing takes effect.

        The same call of an author proposes once, however often it runs.
        Raises: InvalidProposalError, ProposalRepeatedError (a person rejected or took back the same).
        """
        check_proposal(target, text, reason=reason, evidence=evidence)
        ledger, proposal_id = self._ledgers.of(owner), self._mint("prop")

        def note(state: LedgerState) -> NoteEvent | None:
            if _of_call(state, author) is not None:
                return None
            earlier = _same(state, target, text)
            if earlier is not None:
                return _repetition(earlier, evidence, author)
            _check_state(state, target, text)
            versions = state.of(target)
            return records.made(
                proposal_id,
                target,
                before=versions.text,
                after=text,
                base_version=versions.active,
                reason=reason,
                evidence=evidence,
                author=author,
            )

        state = await ledger.change(note, creates=True)
        own = _of_call(state, author)
        found = own or state.proposals.get(proposal_id) or _same(state, target, text)
        if found is None:
            raise InvalidProposalError(reason="it was not kept")
        if own is None and not found.is_open:
            decision = found.decision
            said = f"{decision.by} said on {decision.at[:10]}: {decision.reason or 'no'}" if decision else ""
            raise ProposalRepeatedError(proposal_id=found.proposal_id, status=found.status, reason=said)
        return Proposed(found, found.proposal_id == proposal_id)


def _of_call(state: LedgerState, author: Author) -> Proposal | None:
    """Return what this very call proposed before a crash, if it got that far."""
    if not author.call_id:
        return None
    made = (proposal for proposal in state.proposals.values() if proposal.author.call_id == author.call_id)
    return next((proposal for proposal in made if proposal.author.session_id == author.session_id), None)


def _same(state: LedgerState, target: Target, text: str | None) -> Proposal | None:
    """Return the newest proposal of the same that waits, was rejected or was taken back."""
    wanted = folded(text)
    for proposal in reversed(state.proposals.values()):
        is_same = proposal.target == target and (proposal.after is None) == (text is None)
        if is_same and proposal.status != "approved" and folded(proposal.after) == wanted:
            return proposal
    return None


def _repetition(earlier: Proposal, evidence: Sequence[Evidence], author: Author) -> NoteEvent | None:
    """Return the note that it came up again; beyond some times that says nothing new."""
    times = sum(step.what == "repeated" for step in earlier.steps)
    if times >= MAX_REPEATED:
        return None
    return records.repeated(earlier.proposal_id, evidence=evidence, author=author)


def _check_state(state: LedgerState, target: Target, text: str | None) -> None:
    current = state.of(target).text
    if text == current:
        what = "it reads so already" if text is not None else "there is none to remove"
        raise InvalidProposalError(reason=f"{target.label}: {what}")
    if sum(proposal.is_open for proposal in state.proposals.values()) >= MAX_OPEN:
        raise InvalidProposalError(reason=f"{MAX_OPEN} proposals wait for the person already")
