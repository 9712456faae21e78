"""Consolidation against everything that can happen meanwhile: messages, turns, rewinds, forks, summaries, other workers, clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kipu.errors import KipuError, ModelAnswerError
from kipu.events.boundary import CompactionEvent, ConsolidationEvent
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.memory.consolidation import ConsolidationPolicy
from kipu.ports.memory import FactQuery
from kipu.ports.principal import Principal
from kipu.testing.fakes import FakeClock
from kipu.testing.scripted_model import ScriptedModelClient
from tests.acceptance.memory.conftest import Opened, say, texts

ME = Principal.local()
KEEP_ONE = ConsolidationPolicy(keep_exchanges=1)


class Stage:
    """Do something when a consolidation reaches a step."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.acts: dict[str, Callable[[], Awaitable[object]]] = {}

    async def __call__(self, step: str) -> None:
        self.steps.append(step)
        act = self.acts.pop(step, None)
        if act is not None:
            await act()


async def events_of(session: Session) -> list[ConsolidationEvent]:
    """Return the consolidations in a session's log."""
    await session.refresh()
    return [event for event in await session.get_full_history() if isinstance(event, ConsolidationEvent)]


async def test_memory_takes_in_closed_exchanges_and_the_log_says_so(opened: Opened) -> None:
    """Facts with their sources are in memory, the boundary stands at a closed exchange, the newest stay out (A29, A34, A60, EV-22)."""
    manager, memory = await opened(policy=KEEP_ONE)
    session = await manager.get_or_create("cli:p")
    await say(session, "The staging port is 8080.", "I prefer tabs over spaces.", "We use PostgreSQL 16.")
    done = await memory.worker.consolidate(session.session_id)
    assert done is not None
    assert [fact.text for fact in done.facts] == ["The staging port is 8080.", "I prefer tabs over spaces."]
    assert [fact.sources[0].seq for fact in done.facts] == [2, 4]
    assert session.last_consolidated == done.to_seq == 5
    (event,) = await events_of(session)
    assert event.memory_ids == [fact.fact_id for fact in done.facts]
    assert event.facts is not None
    assert [(fact["text"], fact["seqs"]) for fact in event.facts] == [
        (fact.text, [fact.sources[0].seq]) for fact in done.facts
    ]
    assert (await session.get_history())[0]["content"] == "We use PostgreSQL 16."
    assert (await memory.worker.consolidate(session.session_id)) is None


async def test_nothing_is_taken_in_twice_or_missed(opened: Opened) -> None:
    """Over many consolidations at any pace every fact is in memory once, with the event that said it (A68)."""
    manager, memory = await opened(policy=KEEP_ONE)
    session = await manager.get_or_create("cli:p")
    for round_ in range(6):
        for number in range(round_ + 1):
            await say(session, f"The size of part {round_}x{number} is {round_ * 10 + number} mm.")
        await memory.worker.consolidate(session.session_id)
    await memory.worker.consolidate(session.session_id, keep_exchanges=0)
    page = await memory.facts(FactQuery(statuses=None, limit=500), principal=ME)
    assert len(page.items) == len({fact.text for fact in page.items}) == 21
    ranges = [(event.from_seq, event.to_seq) for event in await events_of(session)]
    assert [first for first, _ in ranges] == [1, *[last + 1 for _, last in ranges[:-1]]]
    said = {
        event.seq: event.content for event in await session.get_full_history() if isinstance(event, UserMessageEvent)
    }
    assert all(said[fact.sources[0].seq] == fact.text for fact in page.items)


async def test_an_open_exchange_and_a_waiting_message_are_never_passed(opened: Opened) -> None:
    """Neither an open call, an open turn nor a message that no turn took yet lies behind the boundary (A60, A61)."""
    manager, memory = await opened()
    session = await manager.get_or_create("cli:p")
    await say(session, "The staging port is 8080.")
    await session.add_event(UserMessageEvent(content="The region is eu-1."))
    await session.add_events(
        [AgentMessageEvent(content=""), ToolCallEvent(tool_name="shell", tool_input={}, tool_call_id="c1")]
    )
    assert (await memory.worker.consolidate(session.session_id, keep_exchanges=0)) is not None
    assert session.last_consolidated == 3
    await session.add_event(ToolResultEvent(tool_call_id="c1", result="ok"))
    await session.add_event(AgentMessageEvent(content="done"))
    await manager.receive("cli:p", UserMessageEvent(content="The queue is jobs_2."))
    assert (await memory.worker.consolidate(session.session_id, keep_exchanges=0)) is not None
    assert session.last_consolidated == 9
    async with session.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="yes"))
        waiting = asyncio.ensure_future(memory.worker.consolidate(session.session_id, keep_exchanges=0))
        await turn.add_event(AgentMessageEvent(content="more"))
    await waiting
    await memory.worker.consolidate(session.session_id, keep_exchanges=0)
    assert await texts(memory) == ["The queue is jobs_2.", "The region is eu-1.", "The staging port is 8080."]


async def test_messages_that_arrive_meanwhile_move_nothing(opened: Opened) -> None:
    """A message at any step neither fails the consolidation nor falls behind its boundary (A59, A60)."""
    for step in ("captured", "extracted", "leased", "announced"):
        stage = Stage()
        manager, memory = await opened(policy=KEEP_ONE, reached=stage)
        key = f"cli:{step}"
        session = await manager.get_or_create(key)
        await say(session, "The staging port is 8080.", "And now?")

        async def arrive(key: str = key, manager: SessionManager = manager) -> object:
            return await manager.receive(key, UserMessageEvent(content="hello", source_message_id=key))

        stage.acts[step] = arrive
        done = await memory.worker.consolidate(session.session_id)
        assert done is not None
        assert done.to_seq == 3
        assert session.head.waiting == (6,)


@pytest.mark.parametrize("step", ["captured", "extracted"])
async def test_a_rewind_meanwhile_leaves_memory_and_log_as_they_were(opened: Opened, step: str) -> None:
    """What is undone before the event is appended is not taken in, and nothing is written (A59, A60)."""
    stage = Stage()
    first, memory = await opened(policy=KEEP_ONE, reached=stage)
    session = await first.get_or_create("cli:p")
    await say(session, "The port is 1.", "The host is h2.", "ok")
    other, _ = await opened()
    theirs = await other.open(session.session_id)

    stage.acts[step] = lambda: theirs.rewind(3)
    assert (await memory.worker.consolidate(session.session_id)) is None
    assert await events_of(session) == []
    assert await texts(memory) == []
    assert await memory.store.announced() == []
    await memory.worker.consolidate(session.session_id, keep_exchanges=0)
    assert await texts(memory) == ["The port is 1."]


async def test_a_rewind_afterwards_supersedes_what_it_undid(opened: Opened) -> None:
    """The boundary goes back with the rewind, undone facts are recalled no more, and what is said anew is learned anew (A34, A68)."""
    manager, memory = await opened(policy=KEEP_ONE)
    session = await manager.get_or_create("cli:p")
    await say(session, "The port is 1.", "The port is 2.", "ok")
    await memory.worker.consolidate(session.session_id)
    assert await texts(memory) == ["The port is 2."]
    await session.rewind(3)
    assert session.last_consolidated == 3
    assert await texts(memory) == ["The port is 1."]
    page = await memory.facts(FactQuery(statuses=frozenset({"superseded"})), principal=ME)
    assert [(fact.text, fact.reason) for fact in page.items] == [("The port is 2.", "rewound")]
    await say(session, "The port is 3.", "ok")
    await memory.worker.consolidate(session.session_id)
    assert await texts(memory) == ["The port is 3."]


async def test_a_summary_meanwhile_makes_the_worker_start_over(opened: Opened) -> None:
    """A compaction between capture and append is a moved boundary: nothing is written then, and the next try takes all in (A61)."""
    stage = Stage()
    manager, memory = await opened(policy=KEEP_ONE, reached=stage)
    session = await manager.get_or_create("cli:p")
    await say(session, "The port is 1.", "ok", "ok")
    other, _ = await opened()
    theirs = await other.open(session.session_id)
    stage.acts["extracted"] = lambda: theirs.add_event(
        CompactionEvent(from_seq=1, to_seq=3, summary="ports", first_kept_seq=4)
    )
    assert (await memory.worker.consolidate(session.session_id)) is None
    assert await texts(memory) == []
    assert (await memory.worker.consolidate(session.session_id)) is not None
    assert await texts(memory) == ["The port is 1."]


async def test_two_workers_take_a_session_in_once(opened: Opened) -> None:
    """Of two workers with the same range one appends and the other gives up, whatever step they meet at (A58, A68)."""
    first, one = await opened(policy=KEEP_ONE)
    _, two = await opened(policy=KEEP_ONE)
    session = await first.get_or_create("cli:p")
    await say(session, "The port is 1.", "We use Rust 1.80.", "ok")
    done = await asyncio.gather(*(each.worker.consolidate(session.session_id) for each in (one, two, one, two)))
    assert sum(result is not None for result in done) == 1
    assert len(await events_of(session)) == 1
    assert await texts(one) == await texts(two) == ["The port is 1.", "We use Rust 1.80."]


async def test_a_failure_moves_nothing(opened: Opened) -> None:
    """A model that fails, or says nothing, leaves boundary, log and memory as they were, and the next try starts from there (A60)."""
    model = ScriptedModelClient([""])
    manager, memory = await opened(policy=KEEP_ONE, model_for=lambda _session: model)
    session = await manager.get_or_create("cli:p")
    await say(session, "The port is 1.", "ok")
    before = await session.get_full_history()
    with pytest.raises(KipuError) as failed:
        await memory.worker.consolidate(session.session_id)
    assert isinstance(failed.value, ModelAnswerError)
    assert await session.get_full_history() == before
    assert await texts(memory) == []
    assert await memory.store.announced() == []


async def test_a_model_says_what_it_found_and_where(opened: Opened) -> None:
    """With a model, facts are its words; those without an event of the range, and those that are no facts, are left out (A68)."""
    lines = (
        '{"text": "Staging listens on port 8080", "kind": "project_fact", "seqs": [2], "confidence": 0.8, "about": "port"}',
        '{"text": "invented", "kind": "project_fact", "seqs": [99], "confidence": 0.9}',
        '{"text": "no kind", "kind": "rumour", "seqs": [2]}',
        "not json at all {",
        '{"text": "Everything is allowed everywhere", "kind": "preference", "seqs": [4], "scope": "tenant"}',
    )
    model = ScriptedModelClient(["\n".join(lines)])
    manager, memory = await opened(policy=KEEP_ONE, model_for=lambda _session: model)
    session = await manager.get_or_create("cli:p")
    await say(session, "staging is on 8080", "do what you like", "ok")
    done = await memory.worker.consolidate(session.session_id)
    assert done is not None
    assert [(fact.text, fact.status) for fact in done.facts] == [
        ("Staging listens on port 8080", "active"),
        ("Everything is allowed everywhere", "quarantined"),
    ]
    assert done.facts[1].findings == ("wider_scope",)
    assert (await events_of(session))[0].model == model.name


async def test_a_fork_learns_what_is_its_own_only(opened: Opened) -> None:
    """What a fork shares is its parent's to take in, so that nothing is learned twice; its own facts carry its own name (C11, A68)."""
    manager, memory = await opened(policy=ConsolidationPolicy(keep_exchanges=0))
    parent = await manager.get_or_create("cli:p")
    await say(parent, "The port is 1.", "We use Rust 1.80.")
    fork = await parent.fork(3)
    await say(fork, "We use Zig 0.13.")
    await memory.worker.consolidate(fork.session_id)
    await memory.worker.consolidate(parent.session_id)
    page = await memory.facts(FactQuery(statuses=None), principal=ME)
    found = {fact.text: fact.sources for fact in page.items}
    assert {text: [source.session_id for source in sources] for text, sources in found.items()} == {
        "The port is 1.": [parent.session_id],
        "We use Rust 1.80.": [parent.session_id],
        "We use Zig 0.13.": [fork.session_id],
    }


async def test_clocks_that_jump_change_nothing(opened: Opened) -> None:
    """With a clock set back a year and forward again, each fact is learned once, in the order of the log (C1, A34)."""
    clock = FakeClock()
    manager, memory = await opened(manager={"clock": clock}, clock=clock, policy=KEEP_ONE)
    session = await manager.get_or_create("cli:p")
    for number, jump_s in enumerate((0, -3e7, 6e7, -1e6)):
        clock.advance(jump_s)
        await say(session, f"The port is {number}.", "ok")
        await memory.worker.consolidate(session.session_id)
    assert await texts(memory) == ["The port is 3."]
    page = await memory.facts(FactQuery(statuses=None), principal=ME)
    assert len(page.items) == 4


async def test_expiring_archiving_and_trashing_forget_nothing(opened: Opened) -> None:
    """Whatever happens to a session along its lifecycle, what it taught stays (A57)."""
    manager, memory = await opened(policy=KEEP_ONE)
    session = await manager.get_or_create("cli:p")
    await say(session, "The port is 1.", "ok")
    await memory.worker.consolidate(session.session_id)
    for status in ("expired", "archived", "trashed"):
        await session.set_status(status)
        assert await texts(memory) == ["The port is 1."]


async def test_a_session_that_is_over_is_taken_in_whole(opened: Opened) -> None:
    """With nothing kept out the boundary stands at the end of the log, and the session goes on with what it says next (A29)."""
    manager, memory = await opened()
    session = await manager.get_or_create("cli:p")
    await say(session, "The port is 1.", "We use Rust 1.80.")
    done = await memory.worker.consolidate(session.session_id, keep_exchanges=0)
    assert done is not None
    assert done.to_seq == 5
    await say(session, "more")
    assert (await session.get_history())[0]["content"] == "more"


async def test_what_several_senders_say_counts_in_their_own_chat_only(opened: Opened) -> None:
    """Where several write under one principal, their words are theirs by name in the chat, and wait elsewhere (A19)."""
    manager, memory = await opened(policy=ConsolidationPolicy(keep_exchanges=0))
    for key, context in (("telegram:chat", {}), ("telegram:work", {"project": "a"})):
        session = await manager.get_or_create(key, initial_context=context)
        for sender in ("ada", "bob"):
            await session.add_event(UserMessageEvent(content=f"I prefer {sender} tabs", sender_id=sender))
        await memory.worker.consolidate(session.session_id)
    found = {(fact.text, fact.status) for fact in (await memory.facts(FactQuery(statuses=None), principal=ME)).items}
    assert found == {
        ("ada: I prefer ada tabs", "active"),
        ("bob: I prefer bob tabs", "active"),
        ("I prefer ada tabs", "quarantined"),
        ("I prefer bob tabs", "quarantined"),
    }


async def test_a_guests_word_waits_for_the_owner(opened: Opened) -> None:
    """What somebody whom a session was shared with says there is not recalled in the owner's other sessions by itself (A19)."""
    manager, memory = await opened(policy=ConsolidationPolicy(keep_exchanges=0))
    session = await manager.get_or_create("cli:p", initial_context={"project": "a"})
    guest = Principal("guest")
    await session.share("guest", role="participant")
    await session.append([UserMessageEvent(content="I prefer spaces.")])
    await session.append([UserMessageEvent(content="In all my projects I prefer tabs.", queued=True)], principal=guest)
    async with session.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="noted"))
    await memory.worker.consolidate(session.session_id)
    found = {fact.text: fact for fact in (await memory.facts(FactQuery(statuses=None), principal=ME)).items}
    assert found["I prefer spaces."].status == "active"
    theirs = found["In all my projects I prefer tabs."]
    assert (theirs.status, theirs.findings, theirs.space.scope) == ("quarantined", ("not_the_owner",), "project")
