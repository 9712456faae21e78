"""What a ledger of proposals comes to: every proposal, and the versions of every target. A pure fold over its notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kipu.events.boundary import NoteEvent
from kipu.events.event import SessionEvent, utc_text
from kipu.proposals import records
from kipu.proposals.proposal import Author, Proposal, Status, Step, evidence_of
from kipu.proposals.target import Target


@dataclass(frozen=True, slots=True)
class Version:
    """One text that a target had: `text` None is its absence. `previous` is the version that was in force before."""

    number: int
    text: str | None
    proposal_id: str
    previous: int


@dataclass(slots=True)
class Versions:
    """The versions of one target, 1 first, and which of them is in force; 0 is what there was before any."""

    made: list[Version] = field(default_factory=list)
    active: int = 0

    @property
    def current(self) -> Version | None:
        """Return the version in force, None where that is the one before any."""
        return self.made[self.active - 1] if self.active else None

    @property
    def text(self) -> str | None:
        """Return the text in force."""
        return self.current.text if self.current is not None else None


class LedgerState:
    """Fold notes in their order. What does not follow from those before it changes nothing: the first decision counts."""

    def __init__(self) -> None:
        self.proposals: dict[str, Proposal] = {}
        self.versions: dict[Target, Versions] = {}

    def of(self, target: Target) -> Versions:
        """Return the versions of a target, none where nothing was approved for it."""
        return self.versions.get(target, Versions())

    def moved(self, proposal: Proposal) -> bool:
        """Return True where the text that the proposal was made against is not in force any more."""
        return self.of(proposal.target).text != proposal.before

    def take(self, event: SessionEvent) -> None:
        """Move on by one event; those that are no notes about proposals change nothing."""
        if not isinstance(event, NoteEvent):
            return
        handler = _HANDLERS.get(event.kind)
        proposal_id = event.data.get("proposal_id")
        if handler is not None and isinstance(proposal_id, str) and proposal_id:
            handler(self, proposal_id, event)


def _made(state: LedgerState, proposal_id: str, event: NoteEvent) -> None:
    data = event.data
    target = Target.from_json(data.get("target"))
    if target is None or proposal_id in state.proposals:
        return
    at, author = _moment(event), Author.from_json(data.get("author"))
    reason = str(data.get("reason") or "")
    base = data.get("base_version")
    state.proposals[proposal_id] = Proposal(
        proposal_id=proposal_id,
        target=target,
        before=_text(data.get("before")),
        after=_text(data.get("after")),
        base_version=base if isinstance(base, int) else 0,
        reason=reason,
        evidence=evidence_of(data.get("evidence")),
        author=author,
        made_at=at,
        seq=event.seq,
        steps=(Step("made", at, author.principal, data={"author": author.kind}),),
    )


def _repeated(state: LedgerState, proposal_id: str, event: NoteEvent) -> None:
    proposal = state.proposals.get(proposal_id)
    if proposal is None:
        return
    author = Author.from_json(event.data.get("author"))
    new = tuple(entry for entry in evidence_of(event.data.get("evidence")) if entry not in proposal.evidence)
    step = Step("repeated", _moment(event), author.principal, data={"author": author.kind})
    state.proposals[proposal_id] = replace(proposal, evidence=(*proposal.evidence, *new), steps=(*proposal.steps, step))


def _tried(state: LedgerState, proposal_id: str, event: NoteEvent) -> None:
    trial = event.data.get("trial")
    _step(state, proposal_id, event, "tried", data=trial if isinstance(trial, Mapping) else {})


def _decided(state: LedgerState, proposal_id: str, event: NoteEvent) -> None:
    proposal, decision = state.proposals.get(proposal_id), event.data.get("decision")
    if proposal is None or proposal.status not in ("open", "reverted"):
        return
    if decision == "rejected" and proposal.is_open:
        _step(state, proposal_id, event, "rejected", status="rejected")
    elif decision == "approved":
        versions = state.versions.setdefault(proposal.target, Versions())
        version = Version(len(versions.made) + 1, proposal.after, proposal_id, versions.active)
        versions.made.append(version)
        versions.active = version.number
        flags = {name: True for name in ("untried", "replaces", "despite") if event.data.get(name)}
        data = {"version": version.number, **flags}
        _step(state, proposal_id, event, "approved", status="approved", version=version.number, data=data)


def _reverted(state: LedgerState, proposal_id: str, event: NoteEvent) -> None:
    proposal = state.proposals.get(proposal_id)
    if proposal is None or proposal.version is None:
        return
    versions = state.of(proposal.target)
    current = versions.current
    if current is None or current.number != proposal.version:
        return
    versions.active = current.previous
    data = {"from_version": current.number, "to_version": current.previous}
    _step(state, proposal_id, event, "reverted", status="reverted", data=data)


def _step(
    state: LedgerState,
    proposal_id: str,
    event: NoteEvent,
    what: str,
    *,
    data: Mapping[str, Any] | None = None,
    status: Status | None = None,
    version: int | None = None,
) -> None:
    proposal = state.proposals.get(proposal_id)
    if proposal is None:
        return
    by, reason = str(event.data.get("by") or ""), str(event.data.get("reason") or "")
    state.proposals[proposal_id] = replace(
        proposal,
        status=status or proposal.status,
        version=proposal.version if version is None else version,
        steps=(*proposal.steps, Step(what, _moment(event), by, reason, data)),
    )


def _moment(event: SessionEvent) -> str:
    return utc_text(event.timestamp) if event.timestamp is not None else ""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_HANDLERS: dict[str, Callable[[LedgerState, str, NoteEvent], None]] = {
    records.MADE: _made,
    records.REPEATED: _repeated,
    records.TRIED: _tried,
    records.DECIDED: _decided,
    records.REVERTED: _reverted,
}
