"""What of an event can be found, whatever form its text has in the log (B60)."""

from __future__ import annotations

import pytest

from kipu import (
    AgentMessageEvent,
    SessionEvent,
    SessionManager,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.content import TextPart

CALL = ToolCallEvent(tool_name="lookup", tool_call_id="c1", tool_input={"where": "pantry"})


@pytest.mark.parametrize(
    "event",
    [
        UserMessageEvent(content="a marzipan cake"),
        UserMessageEvent(content=[TextPart(text="a marzipan"), TextPart(text="cake")]),
        AgentMessageEvent(content="marzipan"),
        AgentMessageEvent(content=[TextPart(text="marzipan")]),
        ToolCallEvent(tool_name="marzipan", tool_call_id="c2"),
        ToolResultEvent(tool_call_id="c1", result="marzipan"),
        ToolResultEvent(tool_call_id="c1", result={"kinds": ["almond", {"sweet": "marzipan"}]}),
        ToolResultEvent(tool_call_id="c1", result="nothing", error_info="marzipan is out"),
        ToolResultEvent(tool_call_id="c1", result=None, error_info="marzipan is out"),
    ],
)
async def test_text_is_found_in_every_form(manager: SessionManager, event: SessionEvent) -> None:
    """Plain texts, parts, arguments, structured results and errors are found, each where it stands, and nothing else is."""
    session = await manager.get_or_create("test:1")
    await session.add_events([UserMessageEvent(content="before"), CALL, event, UserMessageEvent(content="after")])
    (hit,) = (await manager.search("marzipan")).items
    assert (await session.get_full_history())[hit.seq - 1].event_type == event.event_type
    assert [found.seq for found in (await manager.search("before")).items] == [hit.seq - 2]
