"""Which calls and results make one answer, and what is said about the others (A24, A25, B17, C8)."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.context.item import Item
from kipu.context.render import fit
from kipu.context.window import Window
from kipu.events.boundary import DamagedEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    MemoryRecalledEvent,
    ModelCallEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent
from tests.unit.context.test_window_boundaries import Log

PICTURE = {"type": "media", "media_type": "image/png", "blob": "b" * 64, "size": 9}


def _ask(text: str = "go") -> UserMessageEvent:
    return UserMessageEvent(content=text)


def _call(call_id: str, turn_id: str | None = None) -> ToolCallEvent:
    return ToolCallEvent(tool_name="bash", tool_call_id=call_id, turn_id=turn_id)


def _result(call_id: str, turn_id: str | None = None) -> ToolResultEvent:
    return ToolResultEvent(tool_call_id=call_id, result=f"result {call_id}", turn_id=turn_id)


def _said(text: str, turn_id: str | None = None) -> AgentMessageEvent:
    return AgentMessageEvent(content=text, turn_id=turn_id)


def _told(window: Window) -> list[list[str]]:
    """Return each message as its role and its parts: texts, called ids, and results by id and text."""
    told = []
    for message in window.messages().messages:
        facts = [message["role"]]
        for block in message["content"]:
            if block["type"] == "tool_result":
                facts.append(f"{block['id']}: {block['content'][0].get('text', 'a picture')}")
            else:
                facts.append(block["text"] if block["type"] == "text" else block["id"])
        told.append(facts)
    return told


def _notes(window: Window) -> list[tuple[str, int]]:
    return [(note.kind, note.seq) for note in window.messages().adjustments]


def _log(*events: SessionEvent) -> Log:
    log = Log()
    log.add(*events)
    return log


def test_a_text_behind_the_calls_of_its_answer_is_part_of_it() -> None:
    """What a model said after its calls, which nobody had answered, comes before them in the same message (A24, A2)."""
    log = _log(_ask(), _call("A", "t"), _call("B", "t"), _said("I look", "t"), _result("A", "t"), _result("B", "t"))
    assert _told(log.window) == [
        ["user", "go"],
        ["assistant", "I look", "A", "B"],
        ["tool", "A: result A", "B: result B"],
    ]
    assert _notes(log.window) == []


@pytest.mark.parametrize(
    "between",
    [
        [_call("A", "t"), _result("A", "t")],
        [_call("A", "t"), _call("B", "t"), _result("A", "t")],
        [_call("A", "t"), _ask("and?")],
        [_call("A", "other")],
        [_call("A")],
        [_said("first", "t"), _call("A", "t")],
    ],
)
def test_a_text_behind_anything_else_is_an_answer_of_its_own(between: list[SessionEvent]) -> None:
    """After a result, a message, a text of its own or another turn's calls, a text is the next answer (A24)."""
    log = _log(_ask(), *between, _said("I look", "t"))
    assert _told(log.window)[-1] == ["assistant", "I look"]


def test_a_text_without_a_turn_is_no_part_of_the_calls_before_it() -> None:
    """Where no turn says that they belong together, a text behind calls is the next answer, which closes them (A24, C8)."""
    log = _log(_ask(), _call("A"), _said("done"))
    assert _told(log.window)[-1] == ["assistant", "done"]
    assert _notes(log.window) == [("call_closed", 2)]


@pytest.mark.parametrize(("turn", "other", "together"), [("t", "t", 1), ("t", None, 1), (None, "t", 1), ("t", "u", 0)])
def test_calls_join_the_text_before_them_unless_it_is_another_turns(
    turn: str | None, other: str | None, together: int
) -> None:
    """A call right behind a text is part of that answer, but for one that another turn made (A24)."""
    log = _log(_ask(), _said("I look", turn), _call("A", other), _result("A", other))
    answers = [["assistant", "I look", "A"]] if together else [["assistant", "I look"], ["assistant", "A"]]
    assert _told(log.window) == [["user", "go"], *answers, ["tool", "A: result A"]]


def test_calls_of_one_turn_stay_together_around_a_message() -> None:
    """What somebody says between two calls of one turn comes behind both and their results (A24, A2)."""
    log = _log(_ask(), _call("A", "t"), _ask("hurry"), _call("B", "t"), _result("A", "t"), _result("B", "t"))
    shown = [["user", "go"], ["assistant", "A", "B"], ["tool", "A: result A", "B: result B"], ["user", "hurry"]]
    assert _told(log.window) == shown


def test_another_turns_call_closes_those_that_are_open() -> None:
    """Calls of two turns are never one answer, though the first one still waits (A24, C8)."""
    log = _log(_ask(), _call("A", "t"), _call("B", "u"), _result("B", "u"))
    assert [facts[:2] for facts in _told(log.window) if facts[0] == "assistant"] == [
        ["assistant", "A"],
        ["assistant", "B"],
    ]
    assert _notes(log.window) == [("call_closed", 2)]


def test_a_result_before_its_call_is_shown_with_it() -> None:
    """What was recorded out of order within a turn is in order to the model, and told (A25, C8)."""
    log = _log(_ask(), _result("A"), _call("A"), _said("done"))
    assert _told(log.window) == [["user", "go"], ["assistant", "A"], ["tool", "A: result A"], ["assistant", "done"]]
    assert _notes(log.window) == [("result_reordered", 2)]


def test_a_result_before_its_call_answers_it_though_its_id_was_used_before() -> None:
    """An id that was answered in an earlier turn waits for its own turn's call (A25, situations 25 and 27)."""
    log = _log(_ask(), _call("A"), _result("A"), _said("done"), _ask("again"))
    log.add(ToolResultEvent(tool_call_id="A", result="the second"), _call("A"))
    assert _told(log.window)[-1] == ["tool", "A-2: the second"]
    assert _notes(log.window) == [("id_changed", 7), ("result_reordered", 6)]


def test_a_result_before_its_call_answers_no_call_behind_the_next_message() -> None:
    """A result that came before its call counts until somebody says the next thing (A25, C8)."""
    log = _log(_ask(), _result("A"), _ask("again"), _call("A"))
    assert "result A" not in log.texts()
    assert sorted(_notes(log.window)) == [("call_closed", 4), ("orphan_dropped", 2)]


def test_no_window_starts_between_a_result_and_the_call_that_came_after_it() -> None:
    """A jump within a turn leaves no result behind that a later call needs (A2, A33)."""
    log = Log(max_messages=4)
    log.add(_ask(), _call("A"), _result("B"), _result("A"), _call("B"))
    fit(log.window)
    assert log.window.start_seq == 2
    assert "result B" in log.texts()


def test_what_comes_after_a_model_call_changes_nothing_before_it() -> None:
    """A result that the model was not shown is told at the end, and what it was shown stays (C8, C9)."""
    log = _log(_ask(), _call("A"), _call("B"), _result("A"), ModelCallEvent(model="m", window={}))
    before = log.window.messages().messages
    log.add(_result("B"))
    assert log.window.messages().messages[:-1] == before
    assert _told(log.window)[-1][-1] == "result B"
    assert _notes(log.window) == [("call_closed", 3), ("result_late", 6)]
    log.add(_result("B"))
    assert log.texts().count("result B") == 1


def test_a_late_picture_is_shown() -> None:
    """What a late result brings is shown as that of any other (C8)."""
    log = _log(_ask(), _call("A"), _said("waiting"), ToolResultEvent(tool_call_id="A", result=[PICTURE]))
    assert log.window.messages().messages[-1]["content"][1] == PICTURE
    assert log.window.media() == ("b" * 64,)


def test_a_call_counts_before_its_result_is_there() -> None:
    """An open call takes room in the window: its result may be long in coming (B36)."""
    log = _log(_ask())
    log.add(_call("A"), tokens=70)
    assert log.window.tokens > 80


def test_a_lost_event_is_told() -> None:
    """A model is shown nothing of an event that was lost, and whoever asks is told why (C8, C16)."""
    log = _log(_ask(), DamagedEvent(reason="torn"))
    assert _told(log.window) == [["user", "go"]]
    (note,) = log.window.messages().adjustments
    assert (note.kind, note.seq, note.detail) == ("damaged_skipped", 2, "torn")


def test_memory_that_recalled_nothing_is_not_shown() -> None:
    """Without facts there is no text of memory in the window (C9)."""
    log = _log(_ask(), MemoryRecalledEvent(facts=[]))
    assert _told(log.window) == [["user", "go"]]


def test_a_pinned_call_without_a_result_stays_as_it_was_shown() -> None:
    """What stands before the start for being pinned never changes, whatever comes (B36, C9)."""
    pinned = [Item(2, _call("A").model_copy(update={"seq": 2}), 10)]
    window = Window(Log().window.policy, start_seq=5, pinned={2: pinned})
    window.extend([Item(5, _ask().model_copy(update={"seq": 5}), 10)])
    before: list[Any] = window.messages().messages
    window.extend([Item(6, _result("A").model_copy(update={"seq": 6}), 10)])
    assert window.messages().messages == before
