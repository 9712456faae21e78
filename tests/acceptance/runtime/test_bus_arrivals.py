"""Messages into busy sessions: which policy is in force, and what is appended with a message or instead of it (C12)."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.errors import (
    InvalidBusyPolicyError,
    MessageRejectedError,
    SessionNotFoundError,
)
from kipu.events.boundary import MetadataChangedEvent, NoteEvent
from kipu.events.content import text_of
from kipu.events.conversation import UserMessageEvent
from kipu.events.turn import MessageSettledEvent, StopRequestedEvent
from kipu.ports.principal import Principal
from kipu.runtime.messages.bus import MessageBus
from kipu.session.mailbox import Settlement
from kipu.testing.fakes import FakeClock
from tests.acceptance.runtime.bus_place import Opener, answer, log_of, said


async def test_policy_comes_from_message_session_channel_default(open_place: Opener) -> None:
    """The policy in force is recorded with each message, each field from the nearest level (C12, EV-14)."""
    place = await open_place(
        channel_policies={"chat": {"cap": 7, "mode": "steer"}}, default_policy={"ttl_ms": 9, "cap": 1}
    )
    session = await place.session()
    first = await place.send("a")
    await session.set_metadata(busy={"mode": "collect", "debounce_ms": 0})
    second = await place.send("b")
    third = await place.send("c", policy={"mode": "interrupt"})
    policies = [receipt.policy for receipt in (first, second, third)]
    assert [policy.mode for policy in policies] == ["steer", "collect", "interrupt"]
    assert {(policy.cap, policy.ttl_ms) for policy in policies} == {(7, 9)}
    events = [event for event in await log_of(session) if isinstance(event, UserMessageEvent)]
    assert events[2].busy == {"mode": "interrupt", "debounce_ms": 0, "cap": 7, "ttl_ms": 9}


async def test_a_wrong_policy_is_refused_with_its_level(open_place: Opener) -> None:
    """A policy that cannot be used is refused where it is given; one that the log has all the same refuses the message (C12)."""
    place = await open_place()
    session = await place.session()
    for wrong in ({"mode": "telepathy"}, "telepathy", {"cap": 0}):
        with pytest.raises(InvalidBusyPolicyError, match="session"):
            await session.set_metadata(busy=wrong)
        with pytest.raises(InvalidBusyPolicyError, match="session"):
            await place.manager.create_session(initial_context={"busy": wrong})
    await place.send("taken")
    await session.set_metadata(busy=None)
    await session.add_event(MetadataChangedEvent(set={"busy": {"mode": "telepathy"}}))
    with pytest.raises(InvalidBusyPolicyError, match="session") as caught:
        await place.send("x")
    assert caught.value.level == "session"
    assert len(session.head.waiting) == 1
    with pytest.raises(InvalidBusyPolicyError, match="channel"):
        MessageBus(place.manager, channel_policies={"chat": "telepathy"})


async def test_reject_is_told_and_only_the_refusal_is_logged(open_place: Opener) -> None:
    """A busy session refuses with the active turn and a hint; what was refused leaves a note, and no message (C12, EV-17)."""
    place = await open_place()
    session = await place.session()
    before = await place.send("before", source_message_id="m0")
    async with session.turn(take=1) as turn:
        with pytest.raises(MessageRejectedError) as caught:
            await place.send("not now", policy="reject", source_message_id="m1")
        assert (caught.value.active_turn, caught.value.session_id) == (turn.id, session.session_id)
        assert caught.value.retry_after_s > 0
        repeated = await place.send("before", policy="reject", source_message_id="m0")
        assert (repeated.seq, repeated.duplicate) == (before.seq, True)
    events = await log_of(session)
    (note,) = [event for event in events if isinstance(event, NoteEvent)]
    assert (note.kind, note.data["source_message_id"], note.data["active_turn"]) == ("kipu.refused", "m1", turn.id)
    assert not any(isinstance(event, UserMessageEvent) and event.content == "not now" for event in events)
    later = await place.send("now", policy="reject", source_message_id="m1")
    assert not later.duplicate


@pytest.mark.parametrize(
    ("policy", "mode"),
    [("interrupt", "interrupt"), ("rollback", "rollback"), ({"mode": "rollback", "forced": True}, "rollback_forced")],
)
async def test_interrupt_asks_the_turn_to_end_in_the_same_append(open_place: Opener, policy: Any, mode: str) -> None:
    """The wish to stop and the message are one append, also for a parked turn; without a turn there is no wish (C2, C12)."""
    place = await open_place()
    session = await place.session()
    quiet = await place.send("first", policy=policy)
    assert quiet.stopped is None
    turn = session.turn(take=1)
    await turn.__aenter__()
    receipt = await place.send("stop that", policy=policy, source_message_id="m1")
    assert receipt.stopped == turn.id
    events = await log_of(session)
    stop, message = events[-2:]
    assert isinstance(stop, StopRequestedEvent)
    assert (stop.turn_id, stop.mode) == (turn.id, mode)
    assert (message.seq, message.event_type) == (receipt.seq, "user_message")
    assert session.head.stop == turn.id
    again = await place.send("stop that", policy=policy, source_message_id="m1")
    assert (again.seq, again.duplicate, again.stopped) == (receipt.seq, True, None)
    assert len(await log_of(session)) == len(events)
    await turn.__aexit__(None, None, None)


async def test_dropping_the_oldest_is_seen(open_place: Opener) -> None:
    """A full mailbox drops its oldest in the same append as the new message, and says which (C12)."""
    place = await open_place(default_policy={"cap": 2, "on_full": "drop_oldest"})
    first, second = await place.send("1"), await place.send("2")
    third = await place.send("3")
    assert third.settled == (Settlement((first.seq,), "dropped"),)
    session = await place.session()
    assert session.head.waiting == (second.seq, third.seq)
    settled = [event for event in await log_of(session) if isinstance(event, MessageSettledEvent)]
    assert [(event.seqs, event.reason) for event in settled] == [([first.seq], "dropped")]


async def test_summarizing_tells_the_model_what_was_merged(open_place: Opener) -> None:
    """A full mailbox merges the sender's older messages into the new one, which tells of each, also twice over (C12, EV-15)."""
    place = await open_place(default_policy={"cap": 2, "on_full": "summarize"})
    seqs = [(await place.send(f"wish {number} " + "long " * 100)).seq for number in range(4)]
    session = await place.session()
    last = seqs[-1]
    assert session.head.waiting == (last,) or session.head.waiting == (seqs[2], last)
    await place.send("the last wish")
    events = [event for event in await log_of(session) if isinstance(event, UserMessageEvent)]
    await answer(session, "ok", consumes=session.head.waiting)
    window = (await session.get_context_for_llm("neutral"))[-2:]
    shown = str(window)
    for number in range(4):
        assert f"wish {number} " in shown
    assert "the last wish" in shown
    assert len(shown) < 4_000
    merged = [event for event in events if "kipu.merged" in event.metadata]
    assert merged
    assert text_of(events[0].content).count("long") == 100


async def test_a_full_mailbox_refuses(open_place: Opener) -> None:
    """At the cap, or at the bound of the bus, a new message is refused with its reason, and the old ones stay (C12)."""
    place = await open_place(max_waiting=3)
    await place.send("1")
    with pytest.raises(MessageRejectedError) as caught:
        await place.send("2", policy={"cap": 1})
    assert (caught.value.refusal, caught.value.active_turn) == ("full", None)
    await place.send("2")
    await place.send("3")
    with pytest.raises(MessageRejectedError, match="as many messages wait"):
        await place.send("4")
    assert len((await place.session()).head.waiting) == 3


async def test_collect_is_due_after_its_quiet_time_also_after_a_restart(open_place: Opener, bus_url: str) -> None:
    """The session wants no worker before the quiet time is over, and does then, whatever process looks (C12, A39)."""
    clock = FakeClock()
    place = await open_place(
        clock=clock, default_policy={"mode": "collect", "debounce_ms": 2_000, "max_wait_ms": 5_000}
    )
    receipt = await place.send("1")
    clock.advance(1.5)
    await place.send("2")
    if bus_url != "memory://":
        await place.manager.close()
        place = await open_place(
            clock=clock, default_policy={"mode": "collect", "debounce_ms": 2_000, "max_wait_ms": 5_000}
        )
    clock.advance(1.9)
    assert await place.due() == []
    third = await place.send("3")
    assert third.due_at == clock.iso(1.6)
    clock.advance(1.59)
    assert await place.due() == []
    clock.advance(0.01)
    assert await place.due() == [receipt.session_id]


async def test_a_followup_ends_the_quiet_time_and_collect_behind_one_delays_nothing(open_place: Opener) -> None:
    """A message with a turn of its own is due at once, whether it comes before or after one that waits for quiet (A39, C12)."""
    place = await open_place()
    await place.send("1", policy="collect")
    assert await place.due() == []
    receipt = await place.send("2")
    assert await place.due() == [receipt.session_id]
    await place.send("3", policy="collect")
    assert await place.due() == [receipt.session_id]


async def test_an_arrival_does_not_wake_a_parked_turn(open_place: Opener) -> None:
    """While a turn waits for a person, messages wait with it; a stop makes the session due (C12, C13, C15)."""
    place = await open_place()
    session = await place.session()
    await place.send("1")
    async with session.turn(take=1) as turn:
        await turn.park(["ap_1"], until=None)
    for policy in ("followup", "steer", {"mode": "collect", "debounce_ms": 0}):
        await place.send("2", policy=policy)
        place.clock.advance(60)
        assert await place.due() == []
    with pytest.raises(MessageRejectedError):
        await place.send("3", policy="reject")
    receipt = await place.send("4", policy="interrupt")
    assert receipt.stopped == turn.id
    assert await place.due() == [session.session_id]


async def test_a_key_is_no_right_to_a_session(open_place: Opener) -> None:
    """Somebody else's session does not take a message, and does not exist for them (A20, C19)."""
    place = await open_place()
    await place.bus.publish(said("mine"), Principal("ada", "acme"))
    with pytest.raises(SessionNotFoundError):
        await place.bus.publish(said("theirs"), Principal("eve", "acme"))
    other = await place.bus.publish(said("elsewhere"), Principal("eve", "other"))
    assert (await place.manager.open(other.session_id, principal=Principal("eve", "other"))).head.waiting
