"""Histories that users really got stuck with: each becomes a window that every provider accepts (situations.md 3.2, 3.3, 3.5)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kipu.context.item import Item
from kipu.context.policy import LADDER, WindowPolicy
from kipu.context.render import build_window, fit
from kipu.context.rendering import SHAPES, Rendering
from kipu.context.tokens import EstimateCounter, event_tokens
from kipu.context.window import Window
from kipu.events.boundary import CompactionEvent, RewindEvent
from kipu.events.content import ProviderMark, TextPart
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.testing.validators import validate

TARGETS = sorted(SHAPES)


def log_of(*events: SessionEvent) -> list[Item]:
    counter = EstimateCounter()
    return [
        Item(seq, event.model_copy(update={"seq": seq}), event_tokens(event, counter))
        for seq, event in enumerate(events, start=1)
    ]


def user(text: str = "hello", **fields: Any) -> UserMessageEvent:
    return UserMessageEvent(content=text, **fields)


def answer(text: str = "sure", **fields: Any) -> AgentMessageEvent:
    return AgentMessageEvent(content=text, **fields)


def call(call_id: str, **fields: Any) -> ToolCallEvent:
    return ToolCallEvent(tool_name="bash", tool_input={"cmd": "ls"}, tool_call_id=call_id, **fields)


def result(call_id: str, text: Any = None, **fields: Any) -> ToolResultEvent:
    return ToolResultEvent(tool_call_id=call_id, result=f"result {call_id}" if text is None else text, **fields)


SITUATIONS: dict[str, list[SessionEvent]] = {
    "18 interrupted while a tool ran": [user(), answer(), call("A"), user("stop")],
    "19 call only": [user(), call("A")],
    "19 result only": [user(), result("A")],
    "20 a parallel call is missing": [user(), answer(), call("A"), result("A"), result("B"), answer()],
    "22 one of three results": [user(), answer(), call("A"), call("B"), call("C"), result("B"), user("go on")],
    "23 a user message between": [user(), answer(), call("A"), user("wait"), result("A")],
    "25 result before its call": [user(), result("A"), answer(""), call("A"), answer()],
    "27 one id in every turn": [user(), call("call_0"), result("call_0", "one"), answer()] * 3,
    "29 empty texts": [user(" \n"), answer(""), user(""), AgentMessageEvent(content=[TextPart(text=" ")])],
    "34 roles out of order": [answer("first"), user("a"), user("b"), answer("c"), answer("d"), result("X"), user("e")],
    "two results for one call": [user(), call("A"), result("A", "first"), result("A", "second"), answer()],
    "65 control characters": [user("\x1b[2J\x07"), call("A"), result("A", "\x1b[31mred\x00"[:-1]), answer()],
}


def _complaints(rendering: Rendering, *, ladder: str = "normal") -> list[str]:
    found = validate(rendering.target, rendering.payload, may_end_with_model=ladder == "normal")
    return [str(violation) for violation in found]


@pytest.mark.parametrize("name", sorted(SITUATIONS))
@pytest.mark.parametrize("target", TARGETS)
def test_situations_make_accepted_windows(name: str, target: str) -> None:
    """Every situation is accepted on every rung of the ladder, says what was adjusted, and leaves the log alone (A2, C7, C8)."""
    items = log_of(*SITUATIONS[name])
    before = copy.deepcopy(items)
    renderings = [build_window(items, policy=WindowPolicy(ladder=ladder), target=target) for ladder in LADDER]
    assert [_complaints(shown, ladder=ladder) for shown, ladder in zip(renderings, LADDER, strict=True)] == [[]] * 4
    assert items == before
    assert renderings[-1].adjustments


def neutral(items: list[Item]) -> list[dict[str, Any]]:
    return build_window(items).messages


def told(items: list[Item]) -> list[tuple[str, list[Any]]]:
    """Return roles with texts, called ids and (id, text) of results."""
    shown = []
    for message in neutral(items):
        facts: list[Any] = []
        for block in message["content"]:
            if block["type"] == "tool_result":
                facts.append((block["id"], block["content"][0]["text"]))
            else:
                facts.append(block["text"] if block["type"] == "text" else block["id"])
        shown.append((message["role"], facts))
    return shown


def kinds(items: list[Item]) -> list[str]:
    return [adjustment.kind for adjustment in build_window(items).adjustments]


def test_open_calls_are_closed_in_place() -> None:
    """A call without a result is shown as interrupted, right behind it, and reported (situation 18)."""
    items = log_of(*SITUATIONS["18 interrupted while a tool ran"])
    shown = told(items)
    assert [role for role, _ in shown] == ["user", "assistant", "tool", "user"]
    assert "interrupted, outcome unknown" in shown[2][1][0][1]
    assert kinds(items) == ["call_closed"]


def test_user_messages_wait_for_the_results() -> None:
    """A user message that fell between a call and its result is shown behind the result (situation 23)."""
    items = log_of(*SITUATIONS["23 a user message between"])
    assert told(items)[1:] == [
        ("assistant", ["sure", "A"]),
        ("tool", [("A", "result A")]),
        ("user", ["wait"]),
    ]
    assert kinds(items) == ["user_deferred"]


def test_orphans_and_second_results_are_dropped_and_reported() -> None:
    """A result without a call is not shown, nor a second one; the first in the log wins (situations 19, 20)."""
    assert told(log_of(user(), result("A"))) == [("user", ["hello"])]
    assert kinds(log_of(user(), result("A"))) == ["orphan_dropped"]
    items = log_of(*SITUATIONS["two results for one call"])
    assert told(items)[2] == ("tool", [("A", "first")])
    assert kinds(items) == ["duplicate_result_dropped"]


def test_an_orphan_stays_reported_after_the_conversation_went_on() -> None:
    """A result that never met its call is told with every later rendering of the window that holds it (C8, situation 19)."""
    items = log_of(user(), result("A"), user("and?"), answer())
    assert [note.seq for note in build_window(items).adjustments if note.kind == "orphan_dropped"] == [2]


def test_equal_ids_within_one_answer_pair_in_order() -> None:
    """Two open calls of one id get their results in the order in which these came (A25, B17, situation 27)."""
    items = log_of(user(), call("call_0"), call("call_0"), result("call_0", "first"), result("call_0", "second"))
    (role, results) = told(items)[2]
    assert role == "tool"
    assert [text for _, text in results] == ["first", "second"]
    assert len({call_id for call_id, _ in results}) == 2


def test_repeated_provider_ids_keep_every_result() -> None:
    """An id that comes again in every turn is paired in order, and shown under ids that differ (situation 27)."""
    events = [
        event for turn in range(3) for event in (user(), call("call_0"), result("call_0", f"turn {turn}"), answer())
    ]
    shown = [facts[0] for role, facts in told(log_of(*events)) if role == "tool"]
    assert [text for _, text in shown] == ["turn 0", "turn 1", "turn 2"]
    assert len({call_id for call_id, _ in shown}) == 3
    # Growing adds ids and changes none.
    assert shown[:2] == [facts[0] for role, facts in told(log_of(*events[:8])) if role == "tool"]


def test_results_come_in_the_order_of_their_calls() -> None:
    """Parallel results are ordered by call, whenever they ended, and reported as reordered (A24, A25)."""
    items = log_of(user(), answer(), call("A"), call("B"), result("B"), result("A"), answer())
    assert told(items)[2] == ("tool", [("A", "result A"), ("B", "result B")])
    assert kinds(items) == ["result_reordered"]


def test_late_results_are_told_and_change_nothing_before() -> None:
    """A result that comes after the model went on is told at the end: what the model was shown stays (C9, situation 34b)."""
    before = [user(), answer(), call("A"), user("and?"), answer("no idea")]
    early, late = neutral(log_of(*before)), neutral(log_of(*before, result("A", "at last"), user("so?")))
    assert late[: len(early)] == early
    assert "at last" in str(late[len(early) :])


def test_compaction_never_cuts_an_exchange() -> None:
    """A summary whose first kept event is a result keeps the whole exchange (situation 24)."""
    pairs = [event for number in range(40) for event in (user(), answer(), call(f"c{number}"), result(f"c{number}"))]
    kept = 4 * 30 + 4
    compaction = CompactionEvent(from_seq=1, to_seq=kept - 1, summary="they talked", first_kept_seq=kept)
    items = log_of(*pairs, compaction)
    shown = told(items)
    assert shown[0] == ("user", ["Summary of the conversation so far:\nthey talked"])
    assert shown[1] == ("user", ["hello"])
    assert shown[3][1] == [("c30", "result c30")]
    for target in TARGETS:
        assert _complaints(build_window(items, target=target)) == []


def test_empty_summaries_change_nothing() -> None:
    """A summariser that returned nothing leaves the window as it was (situation 67)."""
    talk = [user("one"), answer(), user("two"), answer()]
    broken = CompactionEvent(from_seq=1, to_seq=2, summary=" ", first_kept_seq=3)
    assert neutral(log_of(*talk, broken)) == neutral(log_of(*talk))


def test_rewinds_between_call_and_result_leave_no_orphan() -> None:
    """What a rewind undid is not shown, and a call whose result it took is closed (situation 32)."""
    items = log_of(user(), answer(), call("A"), result("A"), answer("done"), RewindEvent(to_seq=3), user("again"))
    assert [role for role, _ in told(items)] == ["user", "assistant", "tool", "user"]
    assert kinds(items) == ["call_closed"]


def test_a_three_megabyte_result_stays_within_the_budget() -> None:
    """One huge result is shown by its head and tail, and the budget holds (situation 66)."""
    huge = "start " + "0123456789abcdef" * 200_000 + " end"
    items = log_of(user(), call("A"), result("A", huge))
    policy = WindowPolicy(max_tokens=20_000)
    rendering = build_window(items, policy=policy)
    text = rendering.messages[2]["content"][0]["content"][0]["text"]
    assert text.startswith("start ")
    assert text.endswith(" end")
    assert EstimateCounter().count(str(rendering.messages)) <= policy.max_tokens
    assert [adjustment.kind for adjustment in rendering.adjustments] == ["text_shortened"]


def test_long_turns_stay_within_the_budget_and_keep_their_question() -> None:
    """A turn of many big results is cut inside, at whole exchanges, behind its user message (A33, situation 66)."""
    steps = [event for n in range(60) for event in (answer(f"step {n}"), call(f"c{n}"), result(f"c{n}", "word " * 600))]
    items = log_of(user("the question"), *steps)
    policy = WindowPolicy(max_tokens=10_000)
    window = Window(policy)
    for item in items:
        window.extend([item])
        before = window.start_seq
        fit(window)
        assert window.tokens <= policy.max_tokens
        assert window.start_seq == before or window.tokens <= policy.low_water * policy.max_tokens
    shown = window.messages().messages
    assert shown[0]["content"][0]["text"] == "the question"
    assert shown[1]["role"] == "assistant"
    assert window.jump_record(window.start_seq)["user"] == [1]
    for target in TARGETS:
        assert _complaints(window.messages(target)) == []


def test_sealed_reasoning_goes_to_its_maker_only() -> None:
    """Thinking goes back to the provider and model that sealed it, and to nobody else (situation 31, C28)."""
    opaque = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    mark = ProviderMark(name="anthropic", model="m1", opaque=opaque)
    items = log_of(user(), answer("42", reasoning="hm", provider=mark), user("why?"))
    same = build_window(items, target="anthropic", provider="anthropic", model="m1")
    assert same.messages[1]["content"][0] == opaque
    for provider, model in (("anthropic", "m2"), ("other", "m1"), (None, None)):
        other = build_window(items, target="anthropic", provider=provider, model=model)
        assert [block["type"] for block in other.messages[1]["content"]] == ["text"]
        assert [adjustment.kind for adjustment in other.adjustments] == ["reasoning_dropped"]


_SEALED: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "encrypted_content": "c2VhbA=="}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "opaque",
    [
        {"thought_signature": "no base64!"},
        {"thought_signature": "x"},
        {**_SEALED, "id": "1"},
        {**_SEALED, "id": "rs 1"},
        {**_SEALED, "id": "rs_" + "1" * 64},
        {**_SEALED, "summary": 7},
    ],
)
def test_no_seal_makes_a_window_that_its_maker_refuses(opaque: Any, target: str) -> None:
    """A program may keep anything as a model's opaque reasoning: what its provider could not have made is not sent (C7)."""
    mark = ProviderMark(name="p", model="m", opaque=opaque)
    items = log_of(user(), answer("42", provider=mark), call("A", provider=mark), result("A"), user("why?"))
    shown = build_window(items, target=target, provider="p", model="m")
    assert _complaints(shown) == []
    assert "42" in str(shown.messages)


@pytest.mark.parametrize("signature", ["c2ln", "-_-_", "c2lnbg"])
def test_a_signature_in_either_alphabet_goes_back_to_its_maker(signature: str) -> None:
    """Base64 as JSON mappings write it has two alphabets, and padding or none (C7, C28)."""
    mark = ProviderMark(name="p", model="m", opaque={"thought_signature": signature})
    shown = build_window(log_of(user(), answer("42", provider=mark)), target="gemini", provider="p", model="m")
    assert shown.messages[1]["parts"] == [{"text": "42", "thoughtSignature": signature}]


def test_a_reasoning_item_goes_back_once_with_what_it_tells() -> None:
    """Responses gets an item under its id, with its summary; where two answers hold it, in the first place only (C7, C28)."""
    told = {**_SEALED, "summary": [{"type": "summary_text", "text": "weighed it"}, {"text": " "}, 7]}
    mark = ProviderMark(name="p", model="m", opaque={"items": [told]})
    items = log_of(user(), answer("42", provider=mark), answer("43", provider=mark))
    shown = build_window(items, target="openai_responses", provider="p", model="m")
    assert [item["type"] for item in shown.messages] == ["message", "reasoning", "message", "message"]
    assert shown.messages[1]["summary"] == [{"type": "summary_text", "text": "weighed it"}]


def test_arguments_that_did_not_parse_are_shown_safely() -> None:
    """Broken arguments reach every target as an object that holds their text (C7)."""
    broken = ToolCallEvent(tool_name="bash", tool_call_id="A", raw='{"cmd": "l', parse_error="unterminated")
    items = log_of(user(), broken, result("A", "no", is_error=True), answer())
    for target in TARGETS:
        rendering = build_window(items, target=target)
        assert _complaints(rendering) == []
        assert "cmd" in str(rendering.messages)
