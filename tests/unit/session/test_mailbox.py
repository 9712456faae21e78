"""The mailbox, decision by decision (architecture §5, the table of policies)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kipu.events.content import ContentPart, TextPart
from kipu.events.conversation import UserMessageEvent
from kipu.session.busy import BusyPolicy
from kipu.session.mailbox import (
    MERGED,
    RETRY_BUSY_S,
    RETRY_PARKED_S,
    Arrival,
    Author,
    Reception,
    Settlement,
    address_of,
    arrival_of,
    joining,
    next_turn,
    on_arrival,
)

S = 1_000_000
NOW = 1_000 * S
ADA, BO = Author("p", "ada"), Author("p", "bo")


def arrival(seq: int, mode: Any = "followup", *, author: Author = ADA, chat: str = "1", **fields: Any) -> Arrival:
    """Return a message that arrived `seq` seconds after NOW."""
    arrived_us, due_us = fields.pop("arrived_us", NOW + seq * S), fields.pop("due_us", 0)
    text = fields.pop("text", f"message {seq}")
    address = address_of("chat", {"chat_id": chat})
    return Arrival(seq, author, address, BusyPolicy(mode, **fields), arrived_us, due_us, text)


def received(arriving: Arrival, *waiting: Arrival, open_turn: str | None = None, parked: bool = False) -> Reception:
    """Return what happens to a message that arrives now."""
    return on_arrival(
        arriving, waiting=waiting, open_turn=open_turn, parked=parked, now_us=max(NOW, arriving.arrived_us)
    )


def test_followup_is_first_in_first_out() -> None:
    """Each message gets a turn of its own, in order of arrival (A39, C12)."""
    plan = next_turn([arrival(1), arrival(2)], now_us=NOW)
    assert (plan.consumes, plan.mode, plan.settle, plan.due_us) == ((1,), "followup", (), None)


def test_nothing_waits() -> None:
    """Without messages there is no turn and no time to look again."""
    plan = next_turn([], now_us=NOW)
    assert (plan.consumes, plan.settle, plan.due_us) == ((), (), None)


def test_collect_waits_for_quiet_and_takes_all_of_one_sender() -> None:
    """Before the quiet time is over there is no turn; then one takes every message of that sender and address (C12)."""
    due_us = NOW + 9 * S
    waiting = [
        arrival(1, "collect", due_us=NOW + 7 * S),
        arrival(2, "collect", author=BO, due_us=NOW + 8 * S),
        arrival(3, "collect", due_us=due_us),
        arrival(4, "collect", chat="2", due_us=due_us),
    ]
    early = next_turn(waiting, now_us=due_us - 1)
    assert (early.consumes, early.due_us) == ((), due_us)
    assert next_turn(waiting, now_us=due_us).consumes == (1, 3)
    assert next_turn(waiting[1:], now_us=due_us).consumes == (2,)


def test_collect_is_over_when_a_message_with_a_turn_of_its_own_waits_behind() -> None:
    """A followup ends the quiet time of what it stands behind, and what comes after it is not taken before it (A39, C12)."""
    waiting = [
        arrival(1, "collect", due_us=NOW + 7 * S),
        arrival(2, author=BO),
        arrival(3, "collect", due_us=NOW + 9 * S),
    ]
    assert next_turn(waiting, now_us=NOW).consumes == (1,)
    assert next_turn(waiting[1:], now_us=NOW).consumes == (2,)


@pytest.mark.parametrize("mode", ["interrupt", "rollback"])
def test_an_interrupting_message_comes_before_what_waits(mode: str) -> None:
    """The message that ended a turn is the next one; what waited before it keeps its order behind it (C12)."""
    waiting = [arrival(1), arrival(2, mode), arrival(3, mode)]
    plan = next_turn(waiting, now_us=NOW)
    assert (plan.consumes, plan.mode) == ((2,), mode)


def test_a_steering_message_without_a_turn_gets_its_own() -> None:
    """A message that came too late to steer is not lost: it is the next turn (C12)."""
    plan = next_turn([arrival(1, "steer")], now_us=NOW)
    assert (plan.consumes, plan.mode) == ((1,), "steer")


def test_expired_messages_are_settled_and_never_run() -> None:
    """A message that waited longer than it may is settled as expired, also while others wait for quiet (C12)."""
    stale = arrival(1, ttl_ms=500, arrived_us=NOW)
    due = NOW + S
    waiting = [stale, arrival(2, "collect", due_us=due, arrived_us=NOW)]
    assert next_turn(waiting, now_us=NOW + S // 2 - 1).consumes == (1,)
    plan = next_turn(waiting, now_us=NOW + S // 2)
    assert (plan.consumes, plan.settle, plan.due_us) == ((), (Settlement((1,), "expired"),), due)


def test_the_next_look_is_no_later_than_an_expiry() -> None:
    """While messages wait for quiet, the one that expires first says when to look again."""
    waiting = [arrival(1, "collect", due_us=NOW + 9 * S, ttl_ms=2_000, arrived_us=NOW)]
    assert next_turn(waiting, now_us=NOW).due_us == NOW + 2 * S


def test_only_steering_messages_of_the_same_author_join() -> None:
    """At a boundary the steering messages of whoever started the turn join, in order; others wait, and that is said (C12)."""
    waiting = [arrival(1), arrival(2, "steer"), arrival(3, "steer", author=BO), arrival(4, "steer")]
    found = joining(waiting, started_by=ADA, now_us=NOW)
    assert (found.consumes, found.downgraded, found.settle) == ((2, 4), (3,), ())
    all_may = joining(waiting, started_by=ADA, now_us=NOW, may_steer=lambda _author, _started: True)
    assert (all_may.consumes, all_may.downgraded) == ((2, 3, 4), ())


def test_a_steering_message_joins_only_while_it_may_wait() -> None:
    """An expired message joins nothing: it is settled (C12)."""
    found = joining([arrival(1, "steer", ttl_ms=1, arrived_us=NOW)], started_by=ADA, now_us=NOW + 1_000)
    assert (found.consumes, found.downgraded, found.settle) == ((), (), (Settlement((1,), "expired"),))


@pytest.mark.parametrize("parked", [False, True])
def test_reject_is_refused_while_the_session_is_busy(parked: bool) -> None:
    """A turn that runs, or waits for a person, refuses the message with a hint when to try again (C12)."""
    reception = received(arrival(9, "reject"), open_turn="t", parked=parked)
    assert reception.refusal == "busy"
    assert reception.retry_after_s == (RETRY_PARKED_S if parked else RETRY_BUSY_S)
    assert received(arrival(9, "reject"), arrival(1)).refusal == "busy"
    assert received(arrival(9, "reject")) == Reception()


@pytest.mark.parametrize(
    ("mode", "forced", "stop"),
    [
        ("interrupt", False, "interrupt"),
        ("rollback", False, "rollback"),
        ("rollback", True, "rollback_forced"),
        ("followup", False, None),
        ("steer", False, None),
        ("collect", False, None),
    ],
)
def test_only_interrupt_and_rollback_stop_the_open_turn(mode: Any, forced: bool, stop: str | None) -> None:
    """They ask the open turn to end, also a parked one, and stop nothing where no turn is open (C12)."""
    arriving = arrival(9, mode, forced=forced)
    assert received(arriving, open_turn="t").stop == stop
    assert received(arriving, open_turn="t", parked=True).stop == stop
    assert received(arriving).stop is None


def test_collect_is_quiet_for_its_time_and_never_longer_than_it_may() -> None:
    """Each message moves the quiet time on, up to the longest wait after the first of them (C12)."""
    first = arrival(0, "collect", debounce_ms=1_000, max_wait_ms=2_500)
    assert received(first).due_us == NOW + S
    second = arrival(1, "collect", author=BO, debounce_ms=1_000, max_wait_ms=9_000)
    assert received(second, first).due_us == NOW + 2 * S
    third = arrival(2, "collect", debounce_ms=1_000, max_wait_ms=2_500)
    assert received(third, first, second).due_us == NOW + 2 * S + S // 2
    assert received(third, first, second).behind is None
    impatient = arrival(0, "steer", max_wait_ms=1)  # no message of the quiet time: it says nothing of its end
    assert received(third, impatient, second).due_us == NOW + 3 * S


def test_collect_behind_a_followup_says_so() -> None:
    """What waits without quiet time is due before it: the arrival then does not delay the session (C12)."""
    reception = received(arrival(9, "collect"), arrival(1), open_turn="t")
    assert (reception.behind, reception.due_us) == (1, NOW + 10 * S)


def test_what_gave_way_holds_no_quiet_time_up() -> None:
    """A message that is dropped for a new one neither stands before it nor counts for its quiet time (C12)."""
    arriving = arrival(9, "collect", cap=1, on_full="drop_oldest", max_wait_ms=5_000)
    assert received(arriving, arrival(1)).behind is None
    assert received(arriving, arrival(1, "collect", max_wait_ms=5_000)).due_us == NOW + 10 * S


def test_a_full_mailbox_refuses_drops_or_merges() -> None:
    """At its cap a mailbox gives way as `on_full` says, and names every message that does (C12)."""
    waiting = (arrival(1), arrival(2, author=BO), arrival(3))
    refused = received(arrival(9, "interrupt", cap=3), *waiting, open_turn="t")
    assert (refused.refusal, refused.stop) == ("full", None)
    dropped = received(arrival(9, cap=2, on_full="drop_oldest"), *waiting)
    assert dropped.settle == (Settlement((1, 2), "dropped"),)
    merged = received(arrival(9, cap=3, on_full="summarize"), *waiting)
    assert merged.settle == (Settlement((1, 3), "merged"),)
    assert [entry.text for entry in merged.merges] == ["message 1", "message 3"]
    assert received(arrival(9, cap=4), *waiting).refusal is None


@pytest.mark.parametrize("on_full", ["reject_new", "drop_oldest", "summarize"])
def test_nothing_gives_way_while_there_is_room(on_full: Any) -> None:
    """What is to happen at the cap happens at the cap only: no message is settled before (C12)."""
    taken = received(arrival(9, cap=3, on_full=on_full), arrival(1), arrival(2))
    assert (taken.refusal, taken.settle, taken.merges) == (None, (), ())


def test_others_words_are_not_merged() -> None:
    """Where only messages of others could be merged, the new one is refused: no address is told another's words (C12)."""
    waiting = (arrival(1, author=BO), arrival(2, chat="2"))
    refused = received(arrival(9, cap=2, on_full="summarize"), *waiting)
    assert (refused.refusal, refused.settle) == ("full", ())
    assert received(arrival(9, cap=1, on_full="summarize"), *waiting, arrival(3)).refusal == "full"


def test_expired_messages_take_no_room() -> None:
    """What has expired and is not settled yet does not count against the cap."""
    stale = arrival(1, ttl_ms=1, arrived_us=NOW)
    assert received(arrival(9, cap=1), stale).refusal is None


def test_arrival_is_what_the_event_says() -> None:
    """An event gives sender, address, policy, times and text; which message is answered does not part addresses (C12)."""
    event = UserMessageEvent(
        seq=4,
        content="hi",
        principal="p",
        sender_id="ada",
        channel="chat",
        reply_to={"chat_id": "1", "message_id": "m1"},
        timestamp=datetime(2027, 1, 1, tzinfo=UTC),
        busy={"mode": "collect", "cap": 5, "due_at": "2027-01-01T00:00:01.500000Z"},
    )
    found = arrival_of(event)
    start_us = int(datetime(2027, 1, 1, tzinfo=UTC).timestamp()) * S
    assert found == Arrival(
        4, ADA, address_of("chat", {"chat_id": "1"}), BusyPolicy("collect", cap=5), start_us, start_us + 1_500_000, "hi"
    )
    other = event.model_copy(update={"reply_to": {"chat_id": "1", "thread_id": "t"}})
    assert arrival_of(other).address != found.address


@pytest.mark.parametrize("busy", [None, {}, {"mode": "telepathy"}, {"mode": "collect", "due_at": 7, "colour": 1}])
def test_arrival_with_an_unknown_policy_is_a_followup(busy: Any) -> None:
    """A message of an older or newer Kipu waits for a turn of its own: it is never lost for its policy (C18, EV-14)."""
    found = arrival_of(UserMessageEvent(content="x", busy=busy))
    assert (found.policy, found.due_us) == (BusyPolicy(), 0)


@pytest.mark.parametrize("due_at", ["soon", "", "2027-13-01T00:00:00Z"])
def test_arrival_whose_time_cannot_be_read_is_due_at_once(due_at: str) -> None:
    """A message whose quiet time nobody understands still gets its turn: it holds up neither itself nor its session."""
    assert arrival_of(UserMessageEvent(content="x", busy={"mode": "collect", "due_at": due_at})).due_us == 0


def test_an_address_is_the_same_in_any_order_of_its_parts() -> None:
    """The order of an address's parts, and one that says nothing, part no messages of one chat (C12)."""
    address = address_of("chat", {"chat_id": "1", "thread_id": "t"})
    assert address_of("chat", {"thread_id": "t", "chat_id": "1"}) == address
    assert address_of("chat", {"chat_id": "1", "thread_id": "t", "user": None}) == address


def test_a_message_carries_what_was_merged_into_it_and_nothing_of_its_own() -> None:
    """Only the first part of a message that says so tells of others, a line each under its heading; the rest is its own (C12)."""
    parts: list[ContentPart] = [TextPart(text="heading\n- one\n- two"), TextPart(text="mine"), TextPart(text="too")]
    merging = arrival_of(UserMessageEvent(content=parts, metadata={MERGED: [1, 2]}))
    assert (merging.carried, merging.text) == (("- one", "- two"), "mine\ntoo")
    short = arrival_of(UserMessageEvent(content=parts[:2], metadata={MERGED: [1, 2]}))
    assert (short.carried, short.text) == (("- one", "- two"), "mine")
    plain = arrival_of(UserMessageEvent(content=parts))
    assert (plain.carried, plain.text) == ((), "heading\n- one\n- two\nmine\ntoo")
    for content in (
        "heading\n- one",
        parts[:1],
    ):  # metadata is anybody's: where nothing of its own is left, all of it is
        alone = arrival_of(UserMessageEvent(content=content, metadata={MERGED: [1]}))
        assert alone.carried == ()
        assert alone.text.startswith("heading")
