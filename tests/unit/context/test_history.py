"""The plain history and its cut (A22–A34)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kipu.context.history import doc_messages, get_history
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent

ROLES = st.sampled_from(["user", "assistant", "tool"])


def _messages(roles: list[str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": str(index)} for index, role in enumerate(roles)]


def _positions(messages: list[dict[str, Any]]) -> list[int]:
    return [int(message["content"]) for message in messages]


def test_history_starts_at_the_consolidation_boundary() -> None:
    """What memory has taken in is left out, by position and not by time (A29, A34)."""
    messages = _messages(["user", "assistant", "user", "assistant"])
    assert _positions(get_history(messages, 2)) == [2, 3]
    assert get_history(messages, 4) == []


def test_history_is_bounded() -> None:
    """At most max_messages are returned, 500 unless told otherwise (A30)."""
    messages = _messages(["user"] * 600)
    assert _positions(get_history(messages)) == list(range(100, 600))
    assert _positions(get_history(messages, max_messages=3)) == [597, 598, 599]


def test_history_skips_orphan_results_and_starts_with_a_user_message() -> None:
    """Results whose call was cut off are skipped, and then everything before the first user message (A31, A32)."""
    messages = _messages(["user", "assistant", "tool", "tool", "assistant", "user", "assistant"])
    assert _positions(get_history(messages, max_messages=5)) == [5, 6]
    assert _positions(get_history(_messages(["tool", "assistant", "assistant"]))) == [1, 2]


def test_history_keeps_the_newest_user_message_when_the_bound_would_cut_it() -> None:
    """A turn longer than the bound is returned whole: structure wins (A33)."""
    messages = _messages(["user", "assistant", "user", *["assistant", "tool"] * 5])
    assert _positions(get_history(messages, max_messages=3)) == list(range(2, 13))
    assert _positions(get_history(messages, max_messages=0)) == list(range(2, 13))


@given(roles=st.lists(ROLES, max_size=30), boundary=st.integers(0, 32), bound=st.integers(0, 32))
def test_history_is_what_the_design_document_draws(roles: list[str], boundary: int, bound: int) -> None:
    """Wherever its slice holds a user message, the result is the document's algorithm to the letter (A29–A32)."""
    messages = _messages(roles)
    rest = messages[boundary:]
    expected = rest[-bound:] if bound else []
    while expected and expected[0]["role"] == "tool":
        expected = expected[1:]
    users = [index for index, message in enumerate(expected) if message["role"] == "user"]
    shown = get_history(messages, boundary, max_messages=bound)
    if users:
        assert shown == expected[users[0] :]
    elif any(message["role"] == "user" for message in rest):
        assert shown[0]["role"] == "user"
        assert all(message["role"] != "user" for message in shown[1:])
    else:
        assert shown == expected


def test_events_become_messages_as_the_documents_draw_them() -> None:
    """An answer and its calls are one message; results name their call; sender and time with zone are kept (A23–A28, B32)."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    shown = doc_messages(
        [
            UserMessageEvent(content="list it", sender_id="ann", timestamp=moment),
            AgentMessageEvent(content="I look"),
            ToolCallEvent(tool_name="bash", tool_input={"cmd": "ls"}, tool_call_id="A"),
            ToolCallEvent(tool_name="bash", tool_call_id="B"),
            ToolResultEvent(tool_call_id="A", result={"files": 2}, tool_name="bash"),
            ToolResultEvent(tool_call_id="B", result="ok"),
            AgentMessageEvent(content="two files"),
        ]
    )
    assert [message["role"] for message in shown] == ["user", "assistant", "tool", "tool", "assistant"]
    assert shown[0]["sender_id"] == "ann"
    assert shown[0]["timestamp"] == "2026-01-02T03:04:05.000000Z"
    assert [each["id"] for each in shown[1]["tool_calls"]] == ["A", "B"]
    assert shown[1]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"cmd":"ls"}'}
    assert shown[2] == {"role": "tool", "content": '{"files":2}', "tool_call_id": "A", "name": "bash"}
