"""Where a window starts after a jump: as much stays as the share says, and what belongs together is counted together (A30–A33, C9)."""

from __future__ import annotations

import base64

import pytest

from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.render import fit
from kipu.context.window import Window
from kipu.events.boundary import ConsolidationEvent, EventPinnedEvent, RewindEvent
from kipu.events.content import MediaPart, TextPart
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent
from kipu.events.turn import MessageSettledEvent, TurnStartedEvent
from tests.unit.context.test_window_boundaries import Log
from tests.unit.context.test_window_records import items, summed, texts

PICTURE = base64.b64encode(b"x" * 1_000).decode()


def picture() -> UserMessageEvent:
    """Return a message with a picture of 1,000 bytes."""
    parts: list[TextPart | MediaPart] = [MediaPart(media_type="image/png", data=PICTURE)]
    return UserMessageEvent(content=parts)


def test_a_long_turn_keeps_as_much_as_its_share() -> None:
    """Cut within a turn, the question and the newest calls fill the share, and no call more is let go (A33, C9)."""
    log = Log(max_tokens=200)
    log.add(UserMessageEvent(content="the question"))
    for number in range(10):
        log.add(
            ToolCallEvent(tool_name="bash", tool_call_id=f"c{number}"),
            ToolResultEvent(tool_call_id=f"c{number}", result=f"result {number}"),
        )
    fit(log.window)
    assert log.texts() == ["the question", *(f"result {number}" for number in range(5, 10))]
    assert log.window.tokens == 110


def test_messages_that_one_turn_took_are_counted_together() -> None:
    """A window may start at all messages of a turn or at none: a long one among them goes with the others (A32, C9)."""
    log = Log(max_tokens=400)
    for number in range(3):
        log.turn(number)
    log.add(UserMessageEvent(content="long", queued=True), tokens=100)
    log.add(UserMessageEvent(content="short", queued=True))
    log.add(TurnStartedEvent(turn_id="t", consumes=[13, 14]), tokens=0)
    log.add(AgentMessageEvent(content="answer"))
    for number in range(3, 8):
        log.turn(number)
    fit(log.window)
    assert log.texts()[0] == "question 3"
    assert log.window.tokens == 200


def test_the_bytes_of_pictures_are_a_bound_too() -> None:
    """A window over its bytes of media keeps the share of them, however few its tokens are (A30, C9)."""
    log = Log(media_max_total_bytes=10_500, max_tokens=100_000)
    for _ in range(10):
        log.add(picture(), AgentMessageEvent(content="seen"))
    assert log.window.overflow() is None
    log.add(picture())
    fit(log.window)
    assert log.window.start_seq == 11  # 6 of the 11 stay
    assert str(log.window.messages().messages).count("image/png") == 6


def test_the_bytes_of_pictures_are_a_bound_within_a_turn() -> None:
    """A turn that shows more than the bytes allow is cut within, as it is by its tokens (A33, C9)."""
    log = Log(media_max_total_bytes=10_500, max_tokens=100_000)
    log.add(UserMessageEvent(content="look"))
    for number in range(11):
        shot = {"type": "media", "media_type": "image/png", "data": PICTURE}
        log.add(
            ToolCallEvent(tool_name="screen", tool_call_id=f"s{number}"),
            ToolResultEvent(tool_call_id=f"s{number}", result=[shot]),
        )
    fit(log.window)
    assert log.texts() == ["look"]
    assert log.window.start_seq == 12  # 6 of the 11 stay, behind the question


def test_a_boundary_within_a_turn_starts_the_window_at_the_next_message() -> None:
    """What memory has taken in ends anywhere; the window starts at a message behind it (A29, A32)."""
    log = Log(max_tokens=400)
    for number in range(10):
        log.turn(number)
    log.add(ConsolidationEvent(from_seq=1, to_seq=29), tokens=0)
    log.turn(10)
    assert log.window.overflow() == 33


def test_what_was_in_effect_already_wants_no_jump() -> None:
    """Opened with its instruction and summary, a window that meets them again, or a first instruction, jumps for neither (B33, C9)."""
    said = (UserMessageEvent(content="one"), AgentMessageEvent(content="1"))
    found = items(*said, InstructionEvent(content="be brief"), summed("so far", kept=2))
    window = Window(WindowPolicy(), start_seq=1, instruction=found[2], summary=found[3])
    window.extend(found)
    assert window.overflow() is None
    fresh = Window(WindowPolicy())
    fresh.extend(items(InstructionEvent(content="be brief"), *said))
    assert fresh.overflow() is None


def test_the_order_and_number_of_deliveries_change_no_window() -> None:
    """What is given twice counts once, and what comes late stands where its seq says (B31, C9)."""
    events: list[SessionEvent] = [UserMessageEvent(content="one"), AgentMessageEvent(content="1")]
    events += [UserMessageEvent(content="two"), AgentMessageEvent(content="2")]
    found = items(*events)
    window = Window(WindowPolicy())
    window.extend([*found[:2], found[3]])
    window.extend([*found, found[0]])
    window.extend(found)
    assert texts(window) == ["one", "1", "two", "2"]
    assert window.tokens == 40


def test_a_message_from_before_the_start_is_shown_when_it_comes() -> None:
    """A message that a turn in the window consumed is asked for, and stands where it was consumed once it is given (C5, C8)."""
    early = Item(2, UserMessageEvent(seq=2, content="waited", queued=True), 10)
    window = Window(WindowPolicy(), start_seq=5)
    window.extend([Item(5, TurnStartedEvent(seq=5, turn_id="t", consumes=[2]), 0)])
    window.extend([Item(6, AgentMessageEvent(seq=6, content="done"), 10)])
    assert list(window.missing) == [2]
    window.extend([early])
    assert list(window.missing) == []
    assert (texts(window), window.tokens) == (["waited", "done"], 20)


@pytest.mark.parametrize("settled", [False, True])
def test_a_rewind_takes_back_neither_an_arrival_nor_a_pin_nor_a_settlement(settled: bool) -> None:
    """What happened to a message beside the turn that was undone still stands: it may be consumed later, or never (C11, C12)."""
    log = Log(max_tokens=400)
    log.turn(0)
    log.add(UserMessageEvent(content="undo this"), UserMessageEvent(content="later", queued=True))
    log.add(EventPinnedEvent(seqs=[3]), tokens=0)
    log.add(*[MessageSettledEvent(seqs=[6], reason="cancelled")] if settled else [AgentMessageEvent(content="ok")])
    log.add(RewindEvent(to_seq=4), tokens=0)
    log.add(TurnStartedEvent(turn_id="t", consumes=[6]), AgentMessageEvent(content="done"), tokens=0)
    assert "undo this" not in log.texts()
    assert ("later" in log.texts()) is not settled
    for number in range(1, 12):
        log.turn(number)
    fit(log.window)
    assert log.window.start_seq > 10
    assert "result 0" in log.texts()


def test_a_turn_that_took_messages_together_is_cut_behind_them_all() -> None:
    """Where a turn that took several messages is too long, all of them are kept before its newest answers (A33, C9)."""
    log = Log(max_messages=10)
    log.add(*[UserMessageEvent(content=f"ask {number}", queued=True) for number in range(3)])
    log.add(TurnStartedEvent(turn_id="t", consumes=[1, 2, 3]))
    log.add(*[AgentMessageEvent(content=f"answer {number}") for number in range(8)])
    fit(log.window)
    assert log.texts() == ["ask 0", "ask 1", "ask 2", "answer 5", "answer 6", "answer 7"]


def test_an_instruction_that_was_undone_takes_no_effect_later() -> None:
    """What a rewind undid does not wait for the next jump (C11)."""
    log = Log(max_tokens=400)
    log.turn(0)
    log.add(InstructionEvent(content="be brief"))
    assert log.window.overflow() is not None
    log.add(RewindEvent(to_seq=4))
    assert log.window.overflow() is None
    log.window.jump(log.window.start_seq)
    assert log.texts()[0] == "question 0"


def test_a_cut_of_what_fits_already_is_behind_the_newest_question() -> None:
    """Whoever asks for less, where everything is little, lets all go but the newest question and what came of it (A61)."""
    log = Log()
    log.turn(0)
    log.turn(1)
    assert log.window.cut(keep_share=0.9) == 6
