"""Proposals: durable, with evidence, decided by a person only, versioned, taken back; over every store (C26)."""

from __future__ import annotations

import asyncio

import pytest

from kipu.errors import (
    ConcurrencyError,
    InvalidProposalError,
    InvalidSessionKeyError,
    NotAPersonError,
    ProposalDecidedError,
    ProposalMovedError,
    ProposalNotFoundError,
    ProposalRepeatedError,
    ProposalSuspectError,
    ProposalUntriedError,
)
from kipu.events.conversation import UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.memory_policy import MemoryPolicy
from kipu.ports.principal import Principal
from kipu.ports.store import SessionQuery
from kipu.proposals import records
from kipu.proposals.desk import AGENT_ROLE
from kipu.proposals.evidence import standing_of, summary_of
from kipu.proposals.learned import LearnedSource
from kipu.proposals.proposal import Author, Evidence
from kipu.proposals.target import Target
from kipu.proposals.text_check import SECTION_MARK, hidden_characters, shown
from kipu.runtime.erasing.proposal_place import ProposalPlace
from kipu.wiring import open_manager
from tests.acceptance.proposals.ledger_place import PROJECT, LedgerPlace

TRIED = {"trial_id": "trial_1", "model": "demo", "answered": 1, "steps": []}


async def test_proposal_changes_nothing_until_a_person_approves(manager: SessionManager) -> None:
    """What was proposed waits, also after it was tried; approval gives version 1 of its target, which is then in force (C26)."""
    place = LedgerPlace(manager)
    proposed = (await place.propose("Run `make test`.")).proposal
    assert (proposed.status, proposed.before, proposed.base_version) == ("open", None, 0)
    await place.desk().record_trial(proposed.proposal_id, TRIED)
    assert await place.text() is None
    approved = await place.desk().approve(proposed.proposal_id, reason="yes")
    assert (approved.status, approved.version, await place.text()) == ("approved", 1, "Run `make test`.")
    assert [step.what for step in approved.steps] == ["made", "tried", "approved"]
    assert approved.decision is not None
    assert (approved.decision.by, approved.decision.reason) == (manager.principal.id, "yes")


async def test_proposals_are_seen_by_another_process(store_url: str, manager: SessionManager) -> None:
    """What one process proposed another approves, and the first sees it at its next look (C26)."""
    if store_url == "memory://":
        pytest.skip("a store in memory has one process")
    here = LedgerPlace(manager)
    proposal_id = await here.made("Be brief.")
    async with await open_manager(store_url) as other:
        there = LedgerPlace(other)
        assert [each.proposal_id for each in await there.desk().all(is_open=True)] == [proposal_id]
        await there.desk().approve(proposal_id, is_untried=True)
    assert await here.text() == "Be brief."


async def test_untried_proposal_is_approved_only_on_purpose(manager: SessionManager) -> None:
    """Approval asks for a trial that was answered, unless it is said that none is wanted, which the log keeps (C26)."""
    place = LedgerPlace(manager)
    proposal_id = await place.made("Be brief.")
    await place.desk().record_trial(proposal_id, {**TRIED, "answered": 0})
    with pytest.raises(ProposalUntriedError):
        await place.desk().approve(proposal_id)
    approved = await place.desk().approve(proposal_id, is_untried=True)
    assert approved.decision is not None
    assert (approved.decision.data or {}).get("untried") is True


async def test_revert_returns_to_the_version_before(manager: SessionManager) -> None:
    """Taking back the newest version gives the text before it, step by step to none, each recorded; a later one goes first (C26)."""
    place = LedgerPlace(manager)
    first = await place.made("One.")
    await place.desk().approve(first, is_untried=True)
    second = await place.made("Two.")
    await place.desk().approve(second, is_untried=True)
    with pytest.raises(ProposalMovedError):
        await place.desk().revert(first)
    reverted = await place.desk().revert(second, reason="it was worse")
    assert (reverted.status, await place.text()) == ("reverted", "One.")
    assert reverted.steps[-1].to_json() == {
        "what": "reverted",
        "at": reverted.steps[-1].at,
        "by": manager.principal.id,
        "reason": "it was worse",
        "from_version": 2,
        "to_version": 1,
    }
    await place.desk().revert(first)
    assert await place.text() is None
    with pytest.raises(ProposalDecidedError):
        await place.desk().revert(first)
    third = await place.made("Three.")
    assert (await place.desk().approve(third, is_untried=True)).version == 3, "numbers are not used again"
    await place.desk().revert(third)
    with pytest.raises(ProposalDecidedError):
        await place.desk().reject(third)
    again = await place.desk().approve(third, is_untried=True)
    assert (again.status, again.version, await place.text()) == ("approved", 4, "Three.")


async def test_second_proposal_against_the_same_base_says_that_it_moved(manager: SessionManager) -> None:
    """Of two changes of the same text the second is refused once the first is in force, unless it is to replace that (C26)."""
    place = LedgerPlace(manager)
    first, second = await place.made("One."), await place.made("Two.")
    await place.desk().approve(first, is_untried=True)
    with pytest.raises(ProposalMovedError) as refused:
        await place.desk().approve(second, is_untried=True)
    assert first in refused.value.moved
    assert await place.text() == "One."
    await place.desk().revert(first)
    approved = await place.desk().approve(second, is_untried=True)
    assert (approved.version, await place.text()) == (2, "Two."), "its base is there again"


async def test_moved_proposal_replaces_what_is_there_when_told(manager: SessionManager) -> None:
    """With `replaces` the text of a proposal whose base moved takes the place of the other, which can be had back (C26)."""
    place = LedgerPlace(manager)
    first, second = await place.made("One."), await place.made("Two.")
    await place.desk().approve(first, is_untried=True)
    await place.desk().approve(second, is_untried=True, replaces=True)
    assert await place.text() == "Two."
    await place.desk().revert(second)
    assert await place.text() == "One."


async def test_of_two_decisions_at_once_the_first_counts(store_url: str, manager: SessionManager) -> None:
    """Whoever decides second, from this process or another, is told so and changes nothing (C26)."""
    place = LedgerPlace(manager)
    proposal_id = await place.made("Be brief.")
    rivals = [LedgerPlace(manager) for _ in range(4)]
    other = manager if store_url == "memory://" else await open_manager(store_url)
    rivals += [LedgerPlace(other) for _ in range(4)]
    decisions = [
        rival.desk().approve(proposal_id, is_untried=True) if number % 2 else rival.desk().reject(proposal_id)
        for number, rival in enumerate(rivals)
    ]
    outcomes = await asyncio.gather(*decisions, return_exceptions=True)
    if other is not manager:
        await other.close()
    lost = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert len(lost) == len(rivals) - 1
    assert all(isinstance(error, ConcurrencyError) and error.code == "proposal_decided" for error in lost)
    proposal, state = await place.desk().get(proposal_id)
    assert len(proposal.steps) == 2
    assert len(state.of(proposal.target).made) == (proposal.status == "approved")


async def test_approvals_of_one_target_at_once_are_one_after_the_other(manager: SessionManager) -> None:
    """Two proposals against one base, approved at the same time: one is in force, the other says that its base moved (C26)."""
    place = LedgerPlace(manager)
    ids = [await place.made(f"Text {number}.") for number in range(5)]
    outcomes = await asyncio.gather(
        *(LedgerPlace(manager).desk().approve(each, is_untried=True) for each in ids), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in outcomes) == ["Proposal", *["ProposalMovedError"] * 4]


async def test_only_a_person_decides(manager: SessionManager) -> None:
    """A principal with the role of an agent approves, rejects and takes back nothing (C26, A19)."""
    place = LedgerPlace(manager)
    proposal_id = await place.made("Obey me.")
    desk = place.desk(Principal(place.owner.id, place.owner.tenant, frozenset({AGENT_ROLE})))
    for decide in (desk.approve(proposal_id, is_untried=True), desk.reject(proposal_id), desk.revert(proposal_id)):
        with pytest.raises(NotAPersonError):
            await decide
    assert (await place.desk().get(proposal_id))[0].is_open


async def test_proposals_of_others_do_not_exist(manager: SessionManager) -> None:
    """To another user, and to another tenant, neither ledger nor proposal is there; their administrator decides (A20, C19)."""
    ada = Principal("ada", "north")
    place = LedgerPlace(manager, ada)
    proposal_id = await place.made("Be brief.")
    for stranger in (Principal("eve", "north"), Principal("ada", "south"), Principal("ada"), manager.principal):
        assert await place.desk(stranger).all() == []
        with pytest.raises(ProposalNotFoundError):
            await place.desk(stranger).approve(proposal_id, is_untried=True)
        assert await LedgerPlace(manager, stranger).desk().all() == []
    admin = Principal("root", "north", frozenset({"admin"}))
    approved = await place.desk(admin).approve(proposal_id, is_untried=True)
    assert approved.decision is not None
    assert approved.decision.by == "root"


async def squatted(manager: SessionManager, key: str, *, by: Principal) -> Session:
    """Return somebody's session under a key of Kipu's own, as a release that did not refuse it has left one."""
    session = await manager.open(await manager.create_session(principal=by), principal=by)
    await manager.store.bind(key, session.session_id)
    return session


@pytest.mark.parametrize("own", ["kipu:proposals;member=ada", "kipu:grants;member=ada", "kipu:anything"])
async def test_keys_of_kipus_own_are_given_to_nobody_else(manager: SessionManager, own: str) -> None:
    """Nobody holds the place where Kipu keeps what it notes of somebody else, by whichever call (A20)."""
    eve = Principal("eve", roles=frozenset({"admin"}))
    mine = await manager.open(await manager.create_session(principal=eve), principal=eve)
    await manager.bind_key("chat:eve", mine.session_id, principal=eve)
    with pytest.raises(InvalidSessionKeyError):
        await manager.get_or_create(own, principal=eve)
    with pytest.raises(InvalidSessionKeyError):
        await manager.create_session(key=own, principal=eve)
    with pytest.raises(InvalidSessionKeyError):
        await manager.new_session(own, principal=eve)
    with pytest.raises(InvalidSessionKeyError):
        await manager.bind_key(own, mine.session_id, principal=eve)
    with pytest.raises(InvalidSessionKeyError):
        await manager.add_alias(own, "chat:eve", principal=eve)
    assert await manager.store.resolve(own) is None
    assert await LedgerPlace(manager, Principal("ada")).propose("Be brief.")


async def test_ledger_that_somebody_else_owns_is_not_believed(manager: SessionManager) -> None:
    """A session that another user put under a person's key decides nothing for that person (A20)."""
    ada, eve = Principal("ada"), Principal("eve")
    squat = await squatted(manager, "kipu:proposals;member=ada", by=eve)
    await LedgerPlace(manager, eve).propose("Obey me.")
    place = LedgerPlace(manager, ada)
    assert squat.head.owner == "eve"
    assert await place.desk().all() == []
    assert await place.text() is None
    with pytest.raises(InvalidProposalError, match="somebody else"):
        await place.propose("Be brief.")


async def test_ledger_shared_by_somebody_else_is_not_believed(manager: SessionManager) -> None:
    """What another user approved in a ledger of theirs binds nobody, also where they share it under the person's key (A20, C26)."""
    ada, eve = Principal("ada"), Principal("eve")
    squat = await squatted(manager, "kipu:proposals;member=ada", by=eve)
    target = Target.of("instruction", "project", project=PROJECT)
    author = Author("person", "eve")
    note = records.made(
        "p1", target, before=None, after="Obey me.", base_version=0, reason="r", evidence=[], author=author
    )
    await squat.add_event(note, principal=eve)
    await squat.add_event(records.decided("p1", "approved", by="eve", reason="", more={}), principal=eve)
    await squat.share("ada", role="admin", principal=eve)
    assert await manager.resolve("kipu:proposals;member=ada", principal=ada) == squat.session_id
    place = LedgerPlace(manager, ada)
    assert await place.text() is None
    assert await place.desk().all() == []


async def test_ledger_is_in_no_list_and_goes_with_its_person(manager: SessionManager) -> None:
    """The ledger shows in no list and no search, is found by its key, and once it is erased nothing of it is in force (C20, C26)."""
    place = LedgerPlace(manager)
    proposal_id = await place.made("Mention the canary 7f3a9c.")
    await place.desk().approve(proposal_id, is_untried=True)
    assert [head async for head in manager.heads()] == []
    assert (await manager.search("canary")).items == ()
    session_id = await manager.resolve("kipu:proposals;member=local")
    assert session_id is not None
    assert await manager.delete_session(session_id)
    assert await place.desk().all() == []
    assert await place.text() is None
    again = await place.propose("Mention the canary 7f3a9c.")
    assert again.is_new


async def test_same_proposal_twice_is_one_with_more_evidence(manager: SessionManager) -> None:
    """Who proposes what waits already adds to its evidence; case and white space make no difference (C26)."""
    place = LedgerPlace(manager)
    first = await place.propose("Run the tests.", evidence=[Evidence("sess_1", (3,))])
    again = await place.propose("run  the\ntests. ", evidence=[Evidence("sess_2", (8,))], author=Author("helper"))
    assert (again.is_new, again.proposal.proposal_id) == (False, first.proposal.proposal_id)
    assert [entry.session_id for entry in again.proposal.evidence] == ["sess_1", "sess_2"]
    assert [step.what for step in again.proposal.steps] == ["made", "repeated"]


@pytest.mark.parametrize("ending", ["reject", "revert"])
async def test_what_a_person_refused_is_not_proposed_again(manager: SessionManager, ending: str) -> None:
    """The same as what was rejected or taken back is refused with the person's reason, and noted there (C26)."""
    place = LedgerPlace(manager)
    proposal_id = await place.made("Always use tabs.")
    if ending == "revert":
        await place.desk().approve(proposal_id, is_untried=True)
        await place.desk().revert(proposal_id, reason="spaces, please")
    else:
        await place.desk().reject(proposal_id, reason="spaces, please")
    with pytest.raises(ProposalRepeatedError, match="spaces, please"):
        await place.propose("always use TABS.\u200b", author=Author("consolidation"))
    (proposal,) = await place.desk().all()
    assert proposal.steps[-1].what == "repeated"
    assert (await place.propose("Always use two spaces.")).is_new


async def test_call_that_ran_again_after_a_crash_proposes_once(manager: SessionManager) -> None:
    """The same tool call run twice makes one proposal, and says that it did (C14, C26)."""
    place = LedgerPlace(manager)
    author = Author("agent", "local", "sess_1", "turn_1", "call_1")
    first = await place.propose("Be brief.", author=author)
    again = await place.propose("Be brief.", author=author)
    assert again.proposal == first.proposal
    assert len((await place.desk().all())[0].steps) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"text": " \n"}, "empty"),
        ({"text": "x" * 20_001}, "20001 characters"),
        ({"text": f"x {SECTION_MARK}"}, "mark"),
        ({"text": None}, "none to remove"),
        ({"text": "x", "reason": " "}, "no reason"),
        ({"text": "x", "evidence": [Evidence("s", tuple(range(1, 60)))]}, "more than 50"),
        ({"text": "x", "kind": "skill", "name": "../x"}, "a skill is named"),
        ({"text": "{", "kind": "memory_policy"}, "JSON"),
        ({"text": '{"colour": 1}', "kind": "memory_policy"}, "no 'colour'"),
        ({"text": '{"min_confidence": 2}', "kind": "memory_policy"}, "cannot be 2"),
    ],
)
async def test_bad_proposals_are_refused(given: dict[str, object], says: str) -> None:
    """What cannot be a proposal is refused with what is wrong, and nothing is kept (C26)."""
    async with await open_manager("memory://") as manager:
        place = LedgerPlace(manager)
        with pytest.raises(InvalidProposalError, match=says):
            await place.propose(**given)  # type: ignore[arg-type]
        assert await place.desk().all() == []


async def test_proposals_do_not_pile_up() -> None:
    """While fifty wait for the person, no further one is taken (C26)."""
    async with await open_manager("memory://") as manager:
        place = LedgerPlace(manager)
        for number in range(50):
            await place.made(f"Skill {number}.", kind="skill", name=f"skill-{number}")
        with pytest.raises(InvalidProposalError, match="50 proposals wait"):
            await place.made("One more.", kind="skill", name="more")


async def test_text_that_hides_characters_needs_a_second_word(manager: SessionManager) -> None:
    """Invisible, bidirectional and tag characters are kept, named, shown written out, and approved only on purpose (C26)."""
    place = LedgerPlace(manager)
    text = "Be\u200b kind\u202e.\U000e0041\ufe0f"
    proposal_id = await place.made(text)
    with pytest.raises(ProposalSuspectError, match=r"U\+200B ZERO WIDTH SPACE"):
        await place.desk().approve(proposal_id, is_untried=True)
    assert len(hidden_characters(text)) == 4
    assert shown(text) == "Be\\u200b kind\\u202e.\\U000e0041\\ufe0f"
    await place.desk().approve(proposal_id, is_untried=True, despite_warnings=True)
    assert await place.text() == text


async def test_evidence_is_read_where_it_stands(manager: SessionManager) -> None:
    """Evidence shows what its events say; what a rewind undid and what was erased is told as such, and no copy is left (C20, C26)."""
    session = await manager.get_or_create("cli:x")
    stored = [await session.add_event(UserMessageEvent(content=f"canary{number}")) for number in range(3)]
    other = await manager.get_or_create("cli:y")
    gone = await other.add_event(UserMessageEvent(content="erased-canary"))
    evidence = [Evidence(session.session_id, (stored[0].seq, stored[2].seq)), Evidence(other.session_id, (gone.seq,))]
    place = LedgerPlace(manager)
    proposal = (await place.propose("Be brief.", evidence=evidence)).proposal
    stands = await standing_of(manager, proposal.evidence, principal=manager.principal)
    assert [event.excerpt for event in stands] == ["canary0", "canary2", "erased-canary"]
    assert summary_of(stands) is None
    await session.rewind(stored[1].seq)
    await session.add_event(UserMessageEvent(content="and on"))
    await manager.delete_session(other.session_id)
    stands = await standing_of(manager, proposal.evidence, principal=manager.principal)
    assert [event.state for event in stands] == ["there", "undone", "gone"]
    assert summary_of(stands) == "2 of its 3 events are erased and undone by a rewind"
    ledger = await manager.open(await manager.resolve("kipu:proposals;member=local") or "")
    assert "canary" not in str(await ledger.get_full_history())


async def test_narrower_scope_counts(manager: SessionManager) -> None:
    """A project's skill and policy count there before the user's, and nothing of one project is in force in another (A4, C26)."""
    place = LedgerPlace(manager)
    source = LearnedSource(place.ledgers)
    for scope, text in (("user", "Mine."), ("project", "Theirs.")):
        policy = f'{{"recalls": {str(scope == "user").lower()}, "min_confidence": 0.7}}'
        for kind, name, given in (
            ("instruction", None, text),
            ("skill", "greet", f"# {text}"),
            ("memory_policy", None, policy),
        ):
            made = await place.propose(given, kind=kind, scope=scope, name=name)
            await place.desk().approve(made.proposal.proposal_id, is_untried=True)
    here = await source.learned(place.owner, project=PROJECT)
    assert (here.skills, here.memory_policy) == (
        {"greet": "# Theirs."},
        MemoryPolicy(recalls=False, min_confidence=0.7),
    )
    assert here.section().index("Mine.") < here.section().index("In this project:\n\nTheirs.")
    elsewhere = await source.learned(place.owner, project="/work/other")
    assert (elsewhere.instructions, elsewhere.skills) == ({"user": "Mine."}, {"greet": "# Mine."})
    assert (await source.memory_policy(place.owner, project=None)).recalls
    assert (await source.learned(Principal("eve"), project=PROJECT)).section() == ""


async def test_skill_is_removed_by_a_proposal(manager: SessionManager) -> None:
    """A proposal without a text takes a skill away once approved, and reverting it brings the skill back (C26)."""
    place = LedgerPlace(manager)
    await place.desk().approve(await place.made("# Greet", kind="skill", name="greet"), is_untried=True)
    removal = await place.made(None, kind="skill", name="greet")
    await place.desk().approve(removal, is_untried=True)
    assert await place.text(kind="skill", name="greet") is None
    await place.desk().revert(removal)
    assert await place.text(kind="skill", name="greet") == "# Greet"


class Killed(BaseException):
    """The process ends here."""


class DeadlyPlace(ProposalPlace):
    """A place whose process dies just before the old ledger goes."""

    async def _erase(self, session_id: str) -> None:
        raise Killed(session_id)


async def test_removal_with_its_session_goes_on_after_a_kill(manager: SessionManager) -> None:
    """Killed when the new ledger stands and the old one does too, the next try ends it: one ledger, the rest in it (C20, C26)."""
    place = LedgerPlace(manager)
    doomed = await place.propose("Secret.", author=Author("agent", "local", "sess_gone"))
    stays = await place.made("# Stay", kind="skill", name="stay")
    await place.desk().approve(stays, is_untried=True)
    facts = {"tenant": "", "owner": manager.principal.id}
    with pytest.raises(Killed):
        await DeadlyPlace(manager).erase("sess_gone", facts)
    assert [each.proposal_id for each in await place.desk().all()] == [stays]
    assert (await ProposalPlace(manager).erase("sess_gone", facts)).removed == {"proposals": 0}
    page = await manager.store.list(SessionQuery(key="kipu:proposals;member=local"))
    (ledger,) = page.items
    assert "Secret." not in str(await (await manager.open(ledger.session_id)).get_full_history())
    before = (await place.desk().get(stays))[0].steps
    assert [(step.what, step.by) for step in before] == [("made", "local"), ("approved", "local")]
    assert (await place.propose("Secret.")).proposal.proposal_id != doomed.proposal.proposal_id
    assert (await ProposalPlace(manager).erase_person("", "local")).removed == {"ledgers": 1}
    assert await place.desk().all() == []
