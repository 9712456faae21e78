"""The fold of a ledger: what does not follow from what came before changes nothing (C26)."""

from __future__ import annotations

from kipu.events.boundary import NoteEvent
from kipu.proposals import records
from kipu.proposals.proposal import Author
from kipu.proposals.state import LedgerState
from kipu.proposals.target import Target

TARGET = Target.of("instruction", "user", project=None)


def made(proposal_id: str, *, after: str, before: str | None = None) -> NoteEvent:
    return records.made(
        proposal_id,
        TARGET,
        before=before,
        after=after,
        base_version=0,
        reason="r",
        evidence=[],
        author=Author("agent"),
    )


def decided(proposal_id: str, decision: str) -> NoteEvent:
    return records.decided(proposal_id, decision, by="ada", reason="", more={})


def folded(*notes: NoteEvent) -> LedgerState:
    state = LedgerState()
    for note in notes:
        state.take(note)
    return state


def test_second_decision_in_the_log_changes_nothing() -> None:
    """Of two decisions that stand in one log, as after a merge, the first counts (C26)."""
    for first, second, text in (("approved", "rejected", "One."), ("rejected", "approved", None)):
        state = folded(made("p1", after="One."), decided("p1", first), decided("p1", second))
        assert (state.proposals["p1"].status, state.of(TARGET).text) == (first, text)
    twice = folded(made("p1", after="One."), decided("p1", "approved"), decided("p1", "approved"))
    assert len(twice.of(TARGET).made) == 1


def test_only_what_is_in_force_is_taken_back() -> None:
    """Reverting a version that a later one stands on, or that was reverted, changes nothing (C26)."""
    notes = [made("p1", after="One."), decided("p1", "approved"), made("p2", after="Two."), decided("p2", "approved")]
    back = {"by": "ada", "reason": "", "from_version": 1, "to_version": 0}
    state = folded(*notes, records.reverted("p1", by="ada", reason="", from_version=1, to_version=0))
    assert state.of(TARGET).text == "Two."
    once = records.reverted("p2", by="ada", reason="", from_version=2, to_version=1)
    state = folded(*notes, once, once, NoteEvent(kind=records.REVERTED, data={"proposal_id": "p9", **back}))
    assert state.of(TARGET).text == "One."


def test_notes_that_are_none_change_nothing() -> None:
    """Damaged notes, those of unknown proposals and of newer kinds are passed over (B9, C26)."""
    strange = [
        NoteEvent(kind=records.MADE, data={"proposal_id": "p0", "target": {"kind": "magic"}}),
        NoteEvent(kind=records.MADE, data={}),
        NoteEvent(kind="kipu.proposal.sung", data={"proposal_id": "p1"}),
        decided("p7", "approved"),
        records.tried("p7", {"answered": 1}, by="ada"),
        records.repeated("p7", evidence=[], author=Author("agent")),
    ]
    state = folded(made("p1", after="One."), *strange, decided("p1", "sung"), made("p1", after="Other."))
    assert list(state.proposals) == ["p1"]
    assert (state.proposals["p1"].after, state.proposals["p1"].is_open, state.versions) == ("One.", True, {})
