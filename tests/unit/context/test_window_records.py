"""What a window takes of records of jumps, of an instruction, a summary and a pin, and what of them it leaves alone (C9, B36)."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.render import fit
from kipu.context.window import Window
from kipu.events.boundary import CompactionEvent, ConsolidationEvent, EventPinnedEvent, NoteEvent, RewindEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    ModelCallEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent
from tests.unit.context.test_window_boundaries import Log


def items(*events: SessionEvent, tokens: int = 10) -> list[Item]:
    """Return events as items whose seq counts up."""
    return [Item(seq, event.model_copy(update={"seq": seq}), tokens) for seq, event in enumerate(events, 1)]


def texts(window: Window) -> list[str]:
    """Return the texts of its messages, in order."""
    return [block["text"] for message in window.messages().messages for block in message["content"]]


def summed(text: str, *, kept: int, seq: int = 0) -> CompactionEvent:
    """Return a summary of all before `kept`."""
    return CompactionEvent(seq=seq, summary=text, from_seq=1, to_seq=kept - 1, first_kept_seq=kept)


SAID: tuple[SessionEvent, ...] = (
    UserMessageEvent(content="one"),
    AgentMessageEvent(content="1"),
    UserMessageEvent(content="two"),
    AgentMessageEvent(content="2"),
)


@pytest.mark.parametrize("start", ["3", True, 3.0, [3], None, -1, 6])
@pytest.mark.parametrize("by_note", [True, False])
def test_a_record_of_no_start_moves_no_window(start: Any, by_note: bool) -> None:
    """What a program wrote in the place of a start, and is no seq, is none: the window stays where it is, and is shown (C7)."""
    data = {"from": start, "user": [1]}
    record = NoteEvent(kind="kipu.window", data=data) if by_note else ModelCallEvent(model="m", window=data)
    window = Window(WindowPolicy())
    window.extend(items(*SAID, record))
    assert (window.start_seq, texts(window)) == (0, ["one", "1", "two", "2"])


def test_a_note_of_another_kind_moves_no_window() -> None:
    """Only Kipu's own note of a jump is one; a program's `from` is its own affair, and a note of a jump moves (B33)."""
    window = Window(WindowPolicy())
    window.extend(items(*SAID, NoteEvent(kind="mail", data={"from": 3})))
    assert window.start_seq == 0
    window.extend([Item(6, NoteEvent(seq=6, kind="kipu.window", data={"from": 3}), 0)])
    assert (window.start_seq, texts(window)) == (3, ["two", "2"])


@pytest.mark.parametrize("users", [["1", True, None, 1.0], "1", 1, {"1": 1}])
def test_kept_messages_that_are_no_seqs_are_left_out(users: Any) -> None:
    """A record that names nothing readable as kept keeps nothing, and is no error (C7)."""
    window = Window(WindowPolicy())
    window.extend(items(*SAID, NoteEvent(kind="kipu.window", data={"from": 4, "user": users})))
    assert window.start_seq == 4
    assert texts(window)[-1] == "2"
    assert window.missing == ()


def test_an_instruction_and_a_summary_are_counted() -> None:
    """What stands before all messages takes of the budget, from the jump on with which it takes effect (B36, C9)."""
    window = Window(WindowPolicy())
    window.extend(items(InstructionEvent(content="be brief"), *SAID))
    assert window.tokens == 50
    window.extend([Item(6, summed("so far", kept=4, seq=6), 7)])
    assert window.tokens == 50
    fit(window)
    assert (window.start_seq, window.tokens) == (4, 37)
    window.extend([Item(7, UserMessageEvent(seq=7, content="three"), 10)])
    window.jump(7)  # another jump takes neither away
    assert window.tokens == 27
    assert texts(window) == ["be brief", "Summary of the conversation so far:\nso far", "three"]


def test_a_summary_without_words_is_none() -> None:
    """An empty summary moves no window and replaces none that says something (C11)."""
    window = Window(WindowPolicy())
    window.extend(items(*SAID, summed("so far", kept=3)))
    fit(window)
    window.extend([Item(6, summed(" \n", kept=4, seq=6), 7)])
    assert window.overflow() is None
    assert texts(window)[0].endswith("so far")


@pytest.mark.parametrize(("tokens", "start"), [(10, 17), (200, 18)])
def test_the_summary_that_waits_is_counted_before_it_takes_effect(tokens: int, start: int) -> None:
    """A jump to a summary takes the question of what is kept along only where the summary itself leaves room for it (C9)."""
    log = Log(max_tokens=400)
    for number in range(9):
        log.turn(number)
    log.add(summed("so far", kept=18), tokens=tokens)
    assert log.window.overflow() == start


def test_a_pin_within_the_window_that_is_taken_back_later_keeps_nothing() -> None:
    """A jump before which a pin stands takes nothing along for it: it may be taken back before its exchange leaves (B36)."""
    log = Log(max_tokens=400)
    for number in range(11):
        log.turn(number)
    log.add(EventPinnedEvent(seqs=[35]), tokens=0)  # a result of the eighth turn
    fit(log.window)
    assert 0 < log.window.start_seq < 33
    log.add(EventPinnedEvent(seqs=[35], on=False), tokens=0)
    for number in range(11, 22):
        log.turn(number)
    fit(log.window)
    assert log.window.start_seq > 36
    assert "result 8" not in log.texts()


def test_a_later_boundary_of_memory_is_never_moved_back_by_an_older_one() -> None:
    """The next jump starts behind what memory has, whichever of two boundaries was recorded last (A29, A34, A68)."""
    log = Log(max_tokens=400)
    for number in range(10):
        log.turn(number)
    log.add(ConsolidationEvent(from_seq=1, to_seq=32), ConsolidationEvent(from_seq=1, to_seq=4), tokens=0)
    log.turn(10)
    start = log.window.overflow()
    assert start == 33


@pytest.mark.parametrize("to_seq", [2, 6])
def test_a_rewind_to_before_a_jump_asks_for_what_was_there(to_seq: int) -> None:
    """Only where it leads before what last changed the window's beginning must it be read anew, from where it started then (C11)."""
    window = Window(WindowPolicy())
    jump = NoteEvent(kind="kipu.window", data={"from": 3})
    window.extend(items(*SAID, jump, *SAID))
    window.extend([Item(10, RewindEvent(seq=10, to_seq=to_seq, window_seq=1), 0)])
    assert window.reload_from == (1 if to_seq == 2 else None)
    # One that was undone itself leads nowhere any more.
    window = Window(WindowPolicy())
    undone = (RewindEvent(to_seq=2, window_seq=1), *SAID[:2], RewindEvent(to_seq=9, window_seq=3))
    window.extend(items(*SAID, jump, *SAID, *undone))
    assert window.reload_from is None


def test_a_message_of_a_turn_kept_whole_keeps_its_call_and_result() -> None:
    """After a jump within a turn, its question stands before the calls that are kept, once (A33, A2)."""
    log = Log(max_tokens=200)
    log.add(UserMessageEvent(content="work"))
    for number in range(12):
        log.add(
            ToolCallEvent(tool_name="bash", tool_call_id=f"c{number}"),
            ToolResultEvent(tool_call_id=f"c{number}", result=f"result {number}"),
        )
        fit(log.window)
    assert log.window.start_seq > 1
    assert log.texts().count("work") == 1
    assert log.texts()[0] == "work"
    assert log.texts()[-1] == "result 11"
