"""What a stretch of history says as text: nothing of it is told otherwise than a window shows it (A61)."""

from __future__ import annotations

import pytest

from kipu.context.extract import chunks, extract_summary, transcript
from kipu.events.content import MediaPart, TextPart
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent

PLENTY = 10_000
PICTURE = MediaPart(media_type="image/png", data="aGVsbG9v", name="plan.png")


def call(number: int = 1, **arguments: object) -> ToolCallEvent:
    return ToolCallEvent(tool_call_id=f"c{number}", tool_name="shell", tool_input=arguments)


def test_each_message_call_and_result_is_a_paragraph() -> None:
    """Who said it, which tool was called and what it gave stand before the text; an empty answer beside calls is none."""
    events: list[SessionEvent] = [
        UserMessageEvent(content="修复测试"),
        AgentMessageEvent(content=" "),
        call(command="make"),
        ToolResultEvent(tool_call_id="c1", result={"passed": 3}),
        AgentMessageEvent(content="已经修好了"),
    ]
    assert transcript(events) == [
        "USER: 修复测试",
        'CALL shell: {"command":"make"}',
        'RESULT shell: {"passed":3}',
        "ASSISTANT: 已经修好了",
    ]


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (ToolResultEvent(tool_call_id="c1", is_error=True, error_info="disk full"), "ERROR shell: disk full"),
        (
            ToolResultEvent(tool_call_id="c1", result="half", is_error=True, error_info="disk full"),
            "ERROR shell: half\ndisk full",
        ),
        (
            ToolResultEvent(tool_call_id="c1", synthetic="interrupted"),
            "RESULT shell: [interrupted, outcome unknown]",
        ),
        (
            ToolResultEvent(tool_call_id="c1", result=[{"type": "text", "text": "seen"}, PICTURE.model_dump()]),
            "RESULT shell: seen\n[image/png 'plan.png', 6 bytes, not shown]",
        ),
        (ToolResultEvent(tool_call_id="c1", tool_name="bash", result="ok"), "RESULT bash: ok"),
        (ToolResultEvent(tool_call_id="gone", result="ok"), "RESULT : ok"),
    ],
)
def test_a_result_says_what_a_window_shows_of_it(result: ToolResultEvent, wanted: str) -> None:
    """An error's words, the reason of a result that no tool wrote, and the name of a picture are told, and no base64 (B14)."""
    assert transcript([call(), result])[-1] == wanted


def test_a_call_that_did_not_parse_is_told_as_it_was_written() -> None:
    """What the model wrote is what is to be understood, not that nothing was asked (B13)."""
    written = ToolCallEvent(tool_call_id="c1", tool_name="shell", raw='{"command": "make', parse_error="unfinished")
    assert transcript([written]) == ['CALL shell: {"command": "make']


def test_a_picture_is_told_by_what_it_is() -> None:
    """A message of nothing but a picture is not told as one that says nothing."""
    shown = UserMessageEvent(content=[PICTURE, TextPart(text="what is it?")])
    told = "[image/png 'plan.png', 6 bytes, not shown]"
    assert transcript([shown]) == [f"USER: {told}\nwhat is it?"]
    assert f"- {told} what is it?" in extract_summary([shown], max_characters=PLENTY)


def test_long_texts_are_told_by_head_and_tail() -> None:
    """A long result or argument is cut in its middle, a message is not: chunks do that."""
    text = "first " + "x" * 5_000 + " last"
    given, result = transcript([call(command=text), ToolResultEvent(tool_call_id="c1", result=text)])
    assert given.startswith('CALL shell: {"command":"first x')
    assert given.endswith('x last"}')
    assert result.startswith("RESULT shell: first x")
    assert result.endswith("x last")
    assert len(given) < 700
    assert len(result) < 1_600
    assert transcript([UserMessageEvent(content=text)]) == [f"USER: {text}"]


def test_chunks_hold_every_paragraph_once_and_in_order() -> None:
    """What a model is given piece by piece is the whole, each piece within its bound (C7)."""
    paragraphs = [f"{number} " + "字" * (number * 7 % 40) for number in range(60)]
    found = chunks(paragraphs, max_characters=100)
    assert "\n\n".join(found) == "\n\n".join(paragraphs)
    assert max(map(len, found)) <= 100
    assert len(found) > 10
    assert chunks([], max_characters=100) == []


def test_summary_by_rules_lists_what_happened() -> None:
    """What was asked, touched, run and what failed is listed once each, with the last three answers (A61)."""
    events: list[SessionEvent] = [UserMessageEvent(content="改一下\n  配置"), UserMessageEvent(content="")]
    for number in range(5):
        events += [
            call(number, path="src/a.py", command=f"make {number // 2}"),
            ToolResultEvent(
                tool_call_id=f"c{number}", is_error=number == 3, error_info="no space" if number == 3 else None
            ),
            AgentMessageEvent(content=f"answer {number}"),
        ]
    assert extract_summary(events, max_characters=PLENTY, previous="earlier on").split("\n\n") == [
        "Summary by rules, no model was asked.",
        "Before that:\nearlier on",
        "The person asked:\n- 改一下 配置",
        "Files in calls:\n- src/a.py",
        "Commands:\n- make 0\n- make 1\n- make 2",
        "Calls that failed:\n- shell: no space",
        "Last answers:\n- answer 2\n- answer 3\n- answer 4",
    ]


def test_summary_by_rules_says_how_many_it_leaves_out() -> None:
    """The newest forty of a kind are listed, and that there were more is said."""
    asked = [UserMessageEvent(content=f"question {number}") for number in range(43)]
    _, listed = extract_summary(asked, max_characters=PLENTY).split("\n\n")
    assert listed.split("\n")[:3] == ["The person asked:", "- (3 earlier ones left out)", "- question 3"]
    assert listed.endswith("- question 42")


def test_summary_by_rules_is_within_its_bound() -> None:
    """Neither a file's content where its name is looked for nor many long lines make it longer than it may be (C7)."""
    contents = [call(number, file=f"{number} " + "data " * 40_000) for number in range(3)]
    assert len(extract_summary(contents, max_characters=PLENTY)) < 1_000
    asked = [UserMessageEvent(content=f"{number} " + "请改配置" * 60) for number in range(40)]
    summary = extract_summary([*asked, *contents], max_characters=500, previous="earlier on " * 1_000)
    assert len(summary) < 550
    for kind in (
        "Summary by rules",
        "Before that:\nearlier",
        "The person asked:\n- 0 请改",
        "Files in calls:\n- 0 data",
    ):
        assert kind in summary
