"""What a jump keeps, what an instruction or a summary that waits asks of it, and what was shown before meanwhile (C9, A33, B33)."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.render import fit
from kipu.context.window import Window
from kipu.events.boundary import ConsolidationEvent, NoteEvent
from kipu.events.conversation import AgentMessageEvent, InstructionEvent, ModelCallEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from tests.unit.context.test_window_boundaries import Log
from tests.unit.context.test_window_records import items, summed, texts


def at(seq: int, event: SessionEvent) -> Item:
    """Return an event where it stands."""
    return Item(seq, event.model_copy(update={"seq": seq}), 10)


def jumped(seq: int, *, start: int, users: list[Any]) -> Item:
    """Return the record of a jump."""
    return at(seq, NoteEvent(kind="kipu.window", data={"from": start, "user": users}))


def opened(*more: Item) -> Window:
    """Return a window that was opened at 6, in the middle of a turn, with these items behind an answer."""
    window = Window(WindowPolicy(), start_seq=6)
    window.extend([at(6, AgentMessageEvent(content="working")), at(7, UserMessageEvent(content="and this")), *more])
    return window


def test_an_opened_window_asks_for_the_message_that_its_jump_kept() -> None:
    """The question that a jump kept stands first again after opening, and what stands in the window stands there once (A33, B33)."""
    window = opened(jumped(8, start=6, users=[2, 7]))
    assert list(window.missing) == [2]
    window.extend([at(2, UserMessageEvent(content="the question"))])
    assert list(window.missing) == []
    assert texts(window) == ["the question", "working", "and this"]


def test_only_the_record_of_its_own_jump_tells_what_a_window_keeps() -> None:
    """An older jump's record, met later or of another start, keeps nothing that the last one did not (B33)."""
    assert list(opened(jumped(8, start=3, users=[1])).missing) == []
    assert list(opened(jumped(8, start=6, users=[2]), jumped(9, start=6, users=[4])).missing) == [4]
    window = opened(jumped(9, start=6, users=[4]))
    window.extend([jumped(8, start=6, users=[2])])
    assert list(window.missing) == [4]


def test_an_instruction_replaced_before_anything_was_said_is_shown_at_once() -> None:
    """Also to whom the one before it was rendered already: nothing was said under it (C9)."""
    window = Window(WindowPolicy())
    window.extend(items(InstructionEvent(content="be brief"), UserMessageEvent(content="hi")))
    assert texts(window) == ["be brief", "hi"]
    window.extend([at(3, InstructionEvent(content="be kind"))])
    assert texts(window) == ["be kind", "hi"]


def test_what_a_model_was_asked_under_stays_until_the_jump() -> None:
    """A model call is enough to have been shown an instruction: the next one waits, though nobody has answered yet (C6, C9)."""
    window = Window(WindowPolicy())
    window.extend(items(InstructionEvent(content="be brief"), UserMessageEvent(content="hi")))
    window.extend([at(3, ModelCallEvent(model="m", window={})), at(4, InstructionEvent(content="be kind"))])
    assert texts(window) == ["be brief", "hi"]
    fit(window)
    assert texts(window) == ["be kind", "hi"]


def test_a_greeting_that_was_shown_goes_when_somebody_speaks() -> None:
    """A window that was rendered with nothing but an answer starts with the message once there is one (A32)."""
    window = Window(WindowPolicy())
    window.extend(items(AgentMessageEvent(content="welcome")))
    assert "welcome" in texts(window)
    window.extend([at(2, UserMessageEvent(content="hi"))])
    assert texts(window) == ["hi"]


def test_a_summary_of_what_lies_before_the_window_takes_effect() -> None:
    """Where nothing has to go for it, the window stays, and the summary stands before it (C11)."""
    log = Log(max_tokens=400)
    log.turn(0)
    log.add(summed("before", kept=1))
    assert log.window.overflow() == 1
    fit(log.window)
    assert log.texts()[:2] == ["Summary of the conversation so far:\nbefore", "question 0"]
    assert log.window.overflow() is None


def test_a_new_instruction_lets_nothing_go_that_has_room() -> None:
    """Between its share and its bounds a window keeps all it has when a new instruction takes effect (C9)."""
    log = Log(max_tokens=400)
    for number in range(8):
        log.turn(number)
    log.add(InstructionEvent(content="be kind"))
    assert log.window.overflow() == 1
    fit(log.window)
    assert log.texts()[:2] == ["be kind", "question 0"]


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_cut_leaves_as_much_as_was_asked(share: float) -> None:
    """What is to be summarised is all before the newest exchanges that fit into the share, from a message on (C11, A61)."""
    log = Log(max_tokens=400)
    assert log.window.cut(keep_share=share) is None
    for number in range(8):
        log.turn(number)
    assert log.window.cut(keep_share=share) == (25 if share < 0.5 else 13)


def test_a_cut_leaves_nothing_that_is_in_memory() -> None:
    """What a consolidation took in is summarised, though it would fit into the share (A61)."""
    log = Log(max_tokens=400)
    for number in range(8):
        log.turn(number)
    log.add(ConsolidationEvent(to_seq=20))
    assert log.window.cut(keep_share=0.5) == 21
    assert log.window.cut(keep_share=0.2) == 25


def test_a_summary_stands_for_the_one_before_it_too() -> None:
    """What a summary would take the place of is all before its first kept event, and the last summary (A61)."""
    log = Log(max_tokens=400)
    for number in range(4):
        log.turn(number)
    assert [log.window.tokens_before(seq) for seq in (5, 9)] == [40, 80]
    log.add(summed("so far", kept=9), tokens=7)
    fit(log.window)
    assert [log.window.tokens_before(seq) for seq in (9, 13)] == [7, 47]
