"""Where windows are cut and calls paired in the cases at the edge of the rules (A2, A25, A29, A30, A33, C8)."""

from __future__ import annotations

from kipu.context.render import fit
from kipu.context.window import Window
from kipu.events.boundary import CompactionEvent, ConsolidationEvent, EventPinnedEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from tests.unit.context.test_window_boundaries import Log


def _call(call_id: str, turn_id: str | None = None) -> ToolCallEvent:
    return ToolCallEvent(tool_name="bash", tool_call_id=call_id, turn_id=turn_id)


def _result(call_id: str, turn_id: str | None = None) -> ToolResultEvent:
    return ToolResultEvent(tool_call_id=call_id, result=f"result {call_id}", turn_id=turn_id)


def _kinds(window: Window) -> list[str]:
    return [note.kind for note in window.messages().adjustments]


def _roles(window: Window) -> list[str]:
    return [str(message["role"]) for message in window.messages().messages]


def test_a_call_behind_a_message_is_an_answer_of_its_own_where_no_turn_says_otherwise() -> None:
    """Without turns, what a user said between two calls stands between them, though the first one still waits (A2, C8)."""
    log = Log()
    log.add(UserMessageEvent(content="a"), _call("A"), UserMessageEvent(content="rather b"), _call("B"), _result("B"))
    assert _roles(log.window) == ["user", "assistant", "tool", "user", "assistant", "tool"]


def test_a_result_of_another_turn_is_not_taken_for_that_of_a_later_call() -> None:
    """An id that comes again pairs within its own turn: what one turn left behind answers no call of another (A25)."""
    log = Log()
    log.add(UserMessageEvent(content="go"), _result("A", "t1"), _call("A", "t2"))
    assert "result A" not in log.texts()
    assert sorted(_kinds(log.window)) == ["call_closed", "orphan_dropped"]


def test_a_message_that_waits_for_several_results_is_reported_once() -> None:
    """However many results it waited for, one adjustment says that a message stands later than it came (C8)."""
    log = Log()
    log.add(UserMessageEvent(content="go"), _call("A"), _call("B"), UserMessageEvent(content="wait"))
    log.add(_result("A"), _result("B"))
    assert _kinds(log.window) == ["user_deferred"]


def test_a_second_result_is_told_as_one_while_other_calls_of_its_answer_wait() -> None:
    """A message in between ends no turn whose calls are open: what comes twice is a duplicate, and no orphan (A25, C8)."""
    log = Log()
    log.add(UserMessageEvent(content="go"), _call("A"), _call("B"), _result("A"), UserMessageEvent(content="wait"))
    log.add(_result("A"), _result("B"))
    assert "duplicate_result_dropped" in _kinds(log.window)
    assert "orphan_dropped" not in _kinds(log.window)


def test_a_summary_never_cuts_behind_a_call_that_waits() -> None:
    """A summary that says to keep only what came after an open call leaves the call to its result (A2, A60)."""
    log = Log()
    log.turn(0)
    log.add(UserMessageEvent(content="do it"), _call("slow"))
    log.add(*[UserMessageEvent(content=f"and {number}") for number in range(5)])
    log.add(CompactionEvent(from_seq=1, to_seq=9, summary="so far", first_kept_seq=10))
    fit(log.window)
    log.add(_result("slow"))
    assert "result slow" in log.texts()
    assert not {"orphan_dropped", "result_late", "call_closed"} & set(_kinds(log.window))


def test_a_summary_of_a_long_turn_lets_its_beginning_go() -> None:
    """Where what is kept and its turn's question do not fit together, the summary's word counts, and the question is kept (A33, A61)."""
    log = Log(max_tokens=400)
    log.add(UserMessageEvent(content="the question"))
    for number in range(14):
        log.add(_call(f"c{number}"), _result(f"c{number}"))
    log.add(CompactionEvent(from_seq=1, to_seq=21, summary="so far", first_kept_seq=22))
    fit(log.window)
    assert log.window.start_seq == 22
    assert "the question" in log.texts()
    assert "result c9" not in log.texts()
    assert "result c10" in log.texts()


def test_a_boundary_behind_every_message_leaves_the_newest_one() -> None:
    """Though all was consolidated, the newest question and what follows it stay; what is in memory goes with the jump (A29, A33)."""
    log = Log(max_tokens=400)
    for number in range(10):
        log.turn(number)
    log.add(ConsolidationEvent(to_seq=40), tokens=0)
    log.add(AgentMessageEvent(content="one more thing"))
    fit(log.window)
    assert log.texts()[0] == "question 9"


def test_a_turn_of_more_messages_than_the_window_may_hold_is_cut_within() -> None:
    """The count bounds a window also inside one turn, its question kept before what is newest (A30, A33)."""
    log = Log(max_messages=20)
    log.add(UserMessageEvent(content="the question"))
    for number in range(30):
        log.add(_call(f"c{number}"), _result(f"c{number}"))
        fit(log.window)
        assert log.window.message_count <= 20
    assert log.texts()[0] == "the question"
    assert log.texts()[-1] == "result c29"


def test_a_new_instruction_is_counted_before_it_takes_effect() -> None:
    """A jump for a longer instruction leaves room for it: the window is not over its budget right behind the jump (C9)."""
    log = Log(max_tokens=400)
    log.add(InstructionEvent(content="short"))
    for number in range(9):
        log.turn(number)
    log.add(InstructionEvent(content="long"), tokens=260)
    log.turn(9)
    start = log.window.overflow()
    assert start is not None
    log.window.jump(start)
    assert log.window.tokens <= 400
    assert log.window.overflow() is None


def test_pins_that_a_jump_takes_along_are_counted_before_it() -> None:
    """A jump leaves room for the pinned exchanges that come with it: the window is within its budget right behind it (B36, C9)."""
    log = Log(max_tokens=400)
    for number in range(5):
        log.turn(number)
        log.add(EventPinnedEvent(seqs=[5 * number + 1]), tokens=0)
    for number in range(5, 11):
        log.turn(number)
    start = log.window.overflow()
    assert start is not None
    log.window.jump(start)
    assert log.window.tokens <= 0.6 * 400
    assert log.texts()[0] == "question 0"


def test_pins_beyond_their_share_take_no_room_of_the_conversation() -> None:
    """What is dropped of the pins for being too much is not counted: the newest turns keep the rest of the window (B36)."""
    log = Log(max_tokens=400, pin_share=0.25)
    for number in range(8):
        log.turn(number)
        log.add(EventPinnedEvent(seqs=[5 * number + 2]), tokens=0)
    for number in range(8, 11):
        log.turn(number)
    fit(log.window)
    assert [text for text in log.texts() if text.startswith("question")] == ["question 8", "question 9", "question 10"]


def test_a_message_that_waits_is_not_shown_for_the_sake_of_another_pin() -> None:
    """What waited when the window left it behind is shown with the turn that takes it, and not before (B36, C12)."""
    log = Log(max_tokens=200)
    log.add(UserMessageEvent(content="still waiting", queued=True))
    for number in range(8):
        log.turn(number)
        fit(log.window)
    log.add(EventPinnedEvent(seqs=[2]), tokens=0)
    assert log.window.missing_pins == (2,)
    log.window.bring(2, log.items[1:2])
    fit(log.window)
    assert "question 0" in log.texts()
    assert "still waiting" not in log.texts()


def test_a_question_that_is_pinned_stays_though_newer_pins_take_their_whole_share() -> None:
    """In a turn longer than the window its question is kept for the turn's sake, whatever becomes of its pin (A33, B36)."""
    log = Log(max_tokens=200, pin_share=0.2)
    log.add(UserMessageEvent(content="the question"))
    log.add(EventPinnedEvent(seqs=[1]), tokens=0)
    for number in range(20):
        log.add(_call(f"c{number}"), _result(f"c{number}"))
        if number in (2, 4):
            log.add(EventPinnedEvent(seqs=[len(log.items)]), tokens=0)
        fit(log.window)
    assert "pin_dropped" in _kinds(log.window)
    assert log.texts().count("the question") == 1
    assert log.texts()[-1] == "result c19"
