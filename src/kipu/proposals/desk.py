"""Where a person reads, approves, rejects and takes back proposals. Nothing else can (C26)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kipu.errors import (
    NotAPersonError,
    ProposalDecidedError,
    ProposalMovedError,
    ProposalNotFoundError,
    ProposalSuspectError,
    ProposalUntriedError,
)
from kipu.events.boundary import NoteEvent
from kipu.ports.principal import Principal
from kipu.proposals import records
from kipu.proposals.ledger import ProposalLedger
from kipu.proposals.proposal import Proposal
from kipu.proposals.state import LedgerState
from kipu.proposals.text_check import warning_of

AGENT_ROLE = "agent"  # a principal that a program acts as, and never a person


class ProposalDesk:
    """Decide about one person's proposals. `principal` is who acts: that person, or an administrator of their tenant.

    To everybody else, neither ledger nor proposal exists. Of two who decide at once the first counts, and the other is told.
    """

    def __init__(self, ledger: ProposalLedger, *, principal: Principal | None = None) -> None:
        self._ledger = ledger
        self.principal = principal or ledger.owner

    async def all(self, *, is_open: bool | None = None) -> list[Proposal]:
        """Return the proposals, oldest first; with `is_open` only those that wait, or only those that are decided."""
        found = (await self._state()).proposals.values()
        return [proposal for proposal in found if is_open is None or proposal.is_open == is_open]

    async def get(self, proposal_id: str) -> tuple[Proposal, LedgerState]:
        """Return one proposal, with the state it stands in. Raises: ProposalNotFoundError."""
        state = await self._state()
        return _found(state, proposal_id), state

    async def record_trial(self, proposal_id: str, trial: Mapping[str, Any]) -> Proposal:
        """Keep that it was tried, and what came of it. Raises: ProposalNotFoundError."""

        def note(state: LedgerState) -> NoteEvent:
            _found(state, proposal_id)
            return records.tried(proposal_id, trial, by=self.principal.id)

        return await self._change(proposal_id, note)

    async def approve(
        self,
        proposal_id: str,
        *,
        reason: str = "",
        is_untried: bool = False,
        replaces: bool = False,
        despite_warnings: bool = False,
    ) -> Proposal:
        """Let it take effect: its text is the next version of its target, from the next turn on, in every process.

        One that was taken back can be approved again.

        Raises: ProposalNotFoundError, ProposalDecidedError, NotAPersonError, ProposalUntriedError (without `is_untried`),
        ProposalMovedError (its base has changed; without `replaces`), ProposalSuspectError (its text hides characters;
        without `despite_warnings`).
        """
        self._require_person()

        def note(state: LedgerState) -> NoteEvent:
            proposal = _open(state, proposal_id, or_reverted=True)
            is_moved, warning = state.moved(proposal), warning_of(proposal.after or "")
            if warning is not None and not despite_warnings:
                raise ProposalSuspectError(proposal_id=proposal_id, findings=warning)
            if is_moved and not replaces:
                raise ProposalMovedError(proposal_id=proposal_id, moved=moved_text(state, proposal))
            if not proposal.is_tried and not is_untried:
                raise ProposalUntriedError(proposal_id=proposal_id)
            more = {"untried": not proposal.is_tried, "replaces": is_moved, "despite": warning is not None}
            kept = {name: True for name, value in more.items() if value}
            return records.decided(proposal_id, "approved", by=self.principal.id, reason=reason, more=kept)

        return await self._change(proposal_id, note)

    async def reject(self, proposal_id: str, *, reason: str = "") -> Proposal:
        """Refuse it; whoever proposes the same again is told. Raises: ProposalNotFoundError, ProposalDecidedError, NotAPersonError."""
        self._require_person()

        def note(state: LedgerState) -> NoteEvent:
            _open(state, proposal_id)
            return records.decided(proposal_id, "rejected", by=self.principal.id, reason=reason, more={})

        return await self._change(proposal_id, note)

    async def revert(self, proposal_id: str, *, reason: str = "") -> Proposal:
        """Give its target the text back that it had before, and record that.

        Raises: ProposalNotFoundError, ProposalDecidedError (it is not in force), ProposalMovedError (a later one stands on
        it: take that back first), NotAPersonError.
        """
        self._require_person()

        def note(state: LedgerState) -> NoteEvent:
            proposal = _found(state, proposal_id)
            if proposal.status != "approved":
                raise ProposalDecidedError(proposal_id=proposal_id, status=proposal.status, by="")
            current = state.of(proposal.target).current
            if current is None or current.number != proposal.version:
                raise ProposalMovedError(proposal_id=proposal_id, moved=moved_text(state, proposal))
            return records.reverted(
                proposal_id,
                by=self.principal.id,
                reason=reason,
                from_version=current.number,
                to_version=current.previous,
            )

        return await self._change(proposal_id, note)

    async def _state(self) -> LedgerState:
        return await self._ledger.state(principal=self.principal)

    async def _change(self, proposal_id: str, note: Any) -> Proposal:
        state = await self._ledger.change(note, principal=self.principal)
        return _found(state, proposal_id)

    def _require_person(self) -> None:
        if AGENT_ROLE in self.principal.roles:
            raise NotAPersonError(principal=self.principal.id, reason="it is an agent's own principal")


def _found(state: LedgerState, proposal_id: str) -> Proposal:
    proposal = state.proposals.get(proposal_id)
    if proposal is None:
        raise ProposalNotFoundError(proposal_id=proposal_id, reason="there is none")
    return proposal


def _open(state: LedgerState, proposal_id: str, *, or_reverted: bool = False) -> Proposal:
    proposal = _found(state, proposal_id)
    if not proposal.is_open and not (or_reverted and proposal.status == "reverted"):
        decision = proposal.decision
        by = f" by {decision.by} since {decision.at[:19]}Z" if decision is not None else ""
        raise ProposalDecidedError(proposal_id=proposal_id, status=proposal.status, by=by)
    return proposal


def moved_text(state: LedgerState, proposal: Proposal) -> str:
    """Return in words what became of the text that a proposal was made against."""
    current = state.of(proposal.target).current
    if current is None:
        return f"version {proposal.base_version} was taken back, and none is in force now"
    return f"it was made against version {proposal.base_version}, and version {current.number} ({current.proposal_id}) is in force"
