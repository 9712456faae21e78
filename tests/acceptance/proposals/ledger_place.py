"""Proposals of one person, made and decided in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from kipu.manager.manager import SessionManager
from kipu.ports.principal import Principal
from kipu.proposals.desk import ProposalDesk
from kipu.proposals.inbox import ProposalInbox, Proposed
from kipu.proposals.ledger import Ledgers
from kipu.proposals.proposal import Author, Evidence
from kipu.proposals.target import Target

PROJECT = "/work/shop"
AGENT = Author("agent", "local", "sess_1", "turn_1")


class LedgerPlace:
    """One process's view of one person's proposals."""

    def __init__(self, manager: SessionManager, owner: Principal | None = None) -> None:
        self.manager = manager
        self.owner = owner or manager.principal
        self.ledgers = Ledgers(manager)
        self.inbox = ProposalInbox(self.ledgers, mint=manager.mint)

    def desk(self, principal: Principal | None = None) -> ProposalDesk:
        """Return where `principal` decides, the owner unless given."""
        return ProposalDesk(self.ledgers.of(self.owner), principal=principal)

    async def propose(
        self,
        text: str | None,
        *,
        kind: str = "instruction",
        scope: str = "project",
        name: str | None = None,
        reason: str = "it was asked for twice",
        evidence: Sequence[Evidence] = (),
        author: Author = AGENT,
    ) -> Proposed:
        """Propose a text for the project, unless said otherwise."""
        target = Target.of(kind, scope, project=PROJECT, name=name)
        return await self.inbox.propose(self.owner, target, text=text, reason=reason, evidence=evidence, author=author)

    async def made(self, text: str | None, *, kind: str = "instruction", name: str | None = None) -> str:
        """Propose a text and return the proposal's id."""
        return (await self.propose(text, kind=kind, name=name)).proposal.proposal_id

    async def text(self, *, kind: str = "instruction", name: str | None = None) -> str | None:
        """Return the text in force."""
        state = await self.ledgers.of(self.owner).state()
        return state.of(Target.of(kind, "project", project=PROJECT, name=name)).text
