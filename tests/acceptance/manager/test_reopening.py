"""What is read when a session is opened: its window as it was, and not more (B33, B51, C9, C10)."""

from __future__ import annotations

from kipu.context.policy import WindowPolicy
from kipu.events.boundary import CompactionEvent, NoteEvent
from kipu.events.conversation import AgentMessageEvent, ModelCallEvent, UserMessageEvent
from kipu.manager.session import Session
from tests.acceptance.manager.conftest import Opener
from tests.acceptance.manager.test_window_of_session import SMALL, CountingStore, exchange, shown

ENDLESS = WindowPolicy(max_tokens=10**9, max_messages=10**9)


async def until_recorded(session: Session) -> NoteEvent:
    """Add exchanges until a jump stands in the log, and return it."""
    for number in range(1, 60):
        await exchange(session, number)
        notes = [event for event in await session.get_recent_events(4) if isinstance(event, NoteEvent)]
        if notes:
            return notes[-1]
    raise AssertionError("the window never jumped")


async def test_the_head_says_where_the_window_starts(opener: Opener) -> None:
    """A recorded jump, in a note or in a model call, is in the head, so that opening reads from there (C9, C10, B33)."""
    session = await (await opener(policy=SMALL)).get_or_create("cli:p")
    note = await until_recorded(session)
    assert session.head.window_seq == note.data["from"] > 1
    start = session.head.window_seq + 4
    async with session.turn() as turn:
        await turn.add_event(ModelCallEvent(model="m", window={"from": start, "user": []}))
    assert session.head.window_seq == start
    again = await (await opener(policy=SMALL)).open(session.session_id)
    assert again.head.window_seq == start
    assert await shown(again) == await shown(session)


async def test_opening_reads_no_event_before_the_window(opener: Opener) -> None:
    """What a store gives for opening is the window's own events, not a page of what came before it (C10, B6, B51)."""
    session = await (await opener(policy=SMALL)).get_or_create("cli:p")
    for number in range(40):
        await exchange(session, number)
    other = await opener(policy=SMALL)
    store = other.store = CountingStore(other.store)
    again = await other.open(session.session_id)
    assert store.given <= again.head.last_seq - again.head.window_seq + 2
    assert again.head.window_seq > 100


async def test_a_rewind_between_a_jump_and_its_start_keeps_the_pins(opener: Opener) -> None:
    """Where a rewind undid the record of a jump, but not its start, the window starts there, with its pins (C11, B36, B33)."""
    session = await (await opener(policy=SMALL)).get_or_create("cli:p")
    await exchange(session, 0)
    await session.pin(4)
    note = await until_recorded(session)
    rewind = await session.rewind(turns=2)
    assert note.data["from"] < getattr(rewind, "to_seq", 0) < note.seq
    await session.add_event(UserMessageEvent(content="again"))
    reopened = await (await opener(policy=SMALL)).open(session.session_id)
    for one in (session, reopened):
        assert "'n': 0}" in str(await shown(one))
        assert "again" in str(await shown(one))
    assert await shown(reopened) == await shown(session)


async def test_a_message_from_long_ago_is_found_where_no_window_was_recorded(opener: Opener) -> None:
    """Of a long log without windows only the tail is read, and the message that its last turn consumed (B33, C5)."""
    filler = await opener(policy=ENDLESS)
    session = await filler.get_or_create("cli:p")
    await filler.receive("cli:p", UserMessageEvent(content="the oldest question"))
    for number in range(10):
        many = [UserMessageEvent(content=f"q{number}.{part} " + "word " * 20) for part in range(100)]
        await session.add_events(many)
    async with session.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="at last"))
    other = await opener(policy=SMALL)
    store = other.store = CountingStore(other.store)
    text = str(await shown(await other.open(session.session_id)))
    assert "the oldest question" in text
    assert "at last" in text
    assert store.given < 700


async def test_the_summary_is_there_after_a_restart_however_old_it_is(opener: Opener) -> None:
    """A summary from before the window still stands before it when the session is opened again (C11, B33)."""
    session = await (await opener(policy=SMALL)).get_or_create("cli:p")
    await exchange(session, 0)
    async with session.turn() as turn:
        await turn.add_event(CompactionEvent(from_seq=1, to_seq=3, summary="they met", first_kept_seq=5))
        summary = session.head.compaction_seq
    for number in range(1, 30):
        await exchange(session, number)
    again = await (await opener(policy=SMALL)).open(session.session_id)
    assert again.head.window_seq > summary
    for one in (session, again):
        assert "they met" in str(await shown(one))


async def test_a_long_session_keeps_only_its_end_in_memory(opener: Opener) -> None:
    """Events that neither the window nor a look at the last ones needs leave memory (C10, B45)."""
    session = await (await opener(policy=SMALL)).get_or_create("cli:p")
    for number in range(300):
        await session.add_events([UserMessageEvent(content=f"question {number} " * 4), AgentMessageEvent(content="a")])
    assert len(session.messages) < 300


async def test_a_full_history_of_many_pages_has_every_event_once(opener: Opener) -> None:
    """However many pages it takes, every event comes once, in order (B35, C1)."""
    session = await (await opener()).get_or_create("cli:p")
    await session.add_events([UserMessageEvent(content=str(number)) for number in range(600)])
    assert [event.seq for event in await session.get_full_history()] == list(range(1, 602))
    assert [stored.seq async for stored in session.records()] == list(range(1, 602))
    assert [event.seq for event in await session.get_recent_events(400)] == list(range(202, 602))


async def test_a_summary_has_taken_effect_for_whoever_opens_the_session_next(opener: Opener) -> None:
    """What it stands for is not shown beside it, whether or not anything was said since: live, opened anew, forked (B33, C11)."""
    session = await (await opener(policy=ENDLESS)).get_or_create("cli:p")
    for number in range(8):
        await exchange(session, number)
    kept = session.history.window.cut(keep_share=0.000_000_1)
    assert kept is not None
    await session.add_event(CompactionEvent(from_seq=1, to_seq=kept - 1, first_kept_seq=kept, summary="they met"))
    again = await (await opener(policy=ENDLESS)).open(session.session_id)
    for one in (session, again, await session.fork(), await again.fork()):
        assert "they met" in str(await shown(one))
        assert "question 5" not in str(await shown(one))
        assert await shown(one) == await shown(session)


async def test_an_empty_summary_changes_nothing_after_opening(opener: Opener) -> None:
    """A summary without a word is none, live and opened anew; the one before it stays (C11, B33)."""
    session = await (await opener(policy=ENDLESS)).get_or_create("cli:p")
    for number in range(4):
        await exchange(session, number)
    await session.add_event(CompactionEvent(from_seq=1, to_seq=5, first_kept_seq=6, summary="they met"))
    await exchange(session, 4)
    await session.add_event(CompactionEvent(from_seq=6, to_seq=9, first_kept_seq=10, summary=" "))
    await exchange(session, 5)
    again = await (await opener(policy=ENDLESS)).open(session.session_id)
    assert "they met" in str(await shown(session))
    assert await shown(again) == await shown(session)


async def test_a_flood_in_one_batch_is_shown_alike_after_opening(opener: Opener) -> None:
    """Where one append brings more than opening reads, the window is the one that opening makes of it (B33, C10)."""
    session = await (await opener(policy=SMALL)).get_or_create("cli:p")
    await exchange(session, 0)
    await session.add_events([UserMessageEvent(content="w " * (number * 37 % 50)) for number in range(900)])
    again = await (await opener(policy=SMALL)).open(session.session_id)
    assert await shown(again) == await shown(session)


async def test_opening_reads_nothing_of_what_was_undone(opener: Opener) -> None:
    """However much a rewind took back, whoever opens the session reads a page of it at most, and shows none (C10, C11)."""
    session = await (await opener(policy=ENDLESS)).get_or_create("cli:p")
    await exchange(session, 0)
    await session.add_events([UserMessageEvent(content=f"taken back {number}") for number in range(900)])
    await session.rewind(5)
    other = await opener(policy=ENDLESS)
    store = other.store = CountingStore(other.store)
    again = await other.open(session.session_id)
    assert store.given < 400
    assert "question 0" in str(await shown(again))
    assert "taken back" not in str(await shown(again))
