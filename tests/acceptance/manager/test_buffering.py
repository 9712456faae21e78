"""What never waits in a write buffer, and what is recorded once (B53, C9)."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.events.boundary import NoteEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    ToolStartedEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent
from kipu.events.turn import ApprovalDecisionEvent, ApprovalRequestEvent, StopRequestedEvent
from kipu.ports.store import Appended
from kipu.stores.wrapper import WrappedStore
from tests.acceptance.manager.conftest import Opener
from tests.acceptance.manager.test_window_of_session import SMALL, exchange


class UrgencyStore(WrappedStore):
    """A store that remembers which types came as urgent."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.urgent: dict[str, bool] = {}

    async def append(self, session_id: str, records: Any, **how: Any) -> Appended:
        self.urgent.update({record.event_type: record.urgent for record in records})
        return await super().append(session_id, records, **how)


@pytest.mark.parametrize(
    ("event", "urgent"),
    [
        (ToolCallEvent(tool_name="send", tool_call_id="a"), True),
        (ToolStartedEvent(tool_call_id="a"), True),
        (ToolResultEvent(tool_call_id="a", result="sent"), True),
        (ApprovalRequestEvent(approval_id="p", tool_call_id="a", arguments_hash="h"), True),
        (ApprovalDecisionEvent(approval_id="p", decision="approved", by="ann"), True),
        (StopRequestedEvent(turn_id="t"), True),
        (UserMessageEvent(content="hi"), False),
        (AgentMessageEvent(content="hello"), False),
    ],
    ids=lambda value: value.event_type if isinstance(value, SessionEvent) else "",
)
async def test_calls_with_effects_are_never_buffered(opener: Opener, event: SessionEvent, *, urgent: bool) -> None:
    """A call, its start, its result, an approval and a stop go to the medium at once, talk may wait (B53)."""
    manager = await opener()
    store = manager.store = UrgencyStore(manager.store)
    session = await manager.get_or_create("cli:p")
    await session.add_event(event)
    assert store.urgent[event.event_type] is urgent


async def test_a_jump_is_recorded_once(opener: Opener) -> None:
    """One note per jump stands in the log, and none after an append that had nothing to record (C9, C11)."""
    session = await (await opener(policy=SMALL)).get_or_create("cli:p")
    starts: list[int] = []
    for number in range(30):
        await exchange(session, number)
        if session.history.window.start_seq not in {0, 1, *starts}:
            starts.append(session.history.window.start_seq)
    noted = [event.data["from"] for event in await session.get_full_history() if isinstance(event, NoteEvent)]
    assert len(noted) == len(set(noted))
    assert set(noted) <= set(starts)
    assert len(noted) >= len(starts) - 1 > 2
