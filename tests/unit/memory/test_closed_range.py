"""Where a memory boundary may be, for any history: checked against a plain reading of what is open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent, placed
from kipu.events.turn import MessageSettledEvent, TurnFinishedEvent, TurnStartedEvent
from kipu.memory.closed_range import closed_until

STEP = st.sampled_from(["say", "queue", "start", "answer", "call", "result", "finish", "settle"])


def history(steps: list[str]) -> list[SessionEvent]:
    """Return a log of these steps, as far as each is possible where it comes."""
    events: list[SessionEvent] = [placed(UserMessageEvent(content="first"), 2)]
    waiting: list[int] = []
    calls: list[str] = []
    turn: str | None = None
    for step in steps:
        seq = events[-1].seq + 1
        event: SessionEvent | None = None
        if step == "say" and turn is None:
            event = UserMessageEvent(content="q")
        elif step == "queue":
            event = UserMessageEvent(content="q", queued=True)
            waiting.append(seq)
        elif step == "start" and turn is None and waiting:
            turn = f"t{seq}"
            event = TurnStartedEvent(turn_id=turn, consumes=[waiting.pop(0)])
        elif step == "settle" and waiting:
            event = MessageSettledEvent(seqs=[waiting.pop()], reason="cancelled")
        elif step == "answer":
            event = AgentMessageEvent(content="a")
        elif step == "call":
            event = ToolCallEvent(tool_name="t", tool_call_id=f"c{seq}")
            calls.append(f"c{seq}")
        elif step == "result" and calls:
            event = ToolResultEvent(tool_call_id=calls.pop(), result="r")
        elif step == "finish" and turn is not None and not calls:
            event = TurnFinishedEvent(turn_id=turn, outcome="completed")
            turn = None
        if event is not None:
            events.append(placed(event, seq))
    return events


def is_closed(events: list[SessionEvent], boundary: int) -> bool:
    """Say by counting, whether nothing at or before the boundary is still open there."""
    before = [event for event in events if event.seq <= boundary]
    taken = {seq for event in before if isinstance(event, TurnStartedEvent) for seq in event.consumes}
    settled = {seq for event in before if isinstance(event, MessageSettledEvent) for seq in event.seqs}
    waits = {event.seq for event in before if isinstance(event, UserMessageEvent) and event.queued} - taken - settled
    started = sum(isinstance(event, TurnStartedEvent) for event in before)
    finished = sum(isinstance(event, TurnFinishedEvent) for event in before)
    return not waits and started == finished


@given(st.lists(STEP, max_size=40), st.integers(0, 4))
def test_boundaries_lie_where_nothing_is_open(steps: list[str], keep: int) -> None:
    """No boundary has a waiting message or an open turn before it, and the newest exchanges lie behind it (A60, A61)."""
    events = history(steps)
    boundary = closed_until(events, keep_exchanges=keep)
    if boundary is None:
        return
    assert is_closed(events, boundary)
    behind = [event for event in events if event.seq > boundary]
    messages = [event for event in behind if isinstance(event, UserMessageEvent)]
    assert len(messages) >= keep
    if behind and keep:
        assert isinstance(behind[0], UserMessageEvent), "what stays begins with a message"
    again = closed_until(events, keep_exchanges=keep + 1)
    assert again is None or again <= boundary


@given(st.lists(STEP, max_size=40))
def test_calls_and_results_stay_together(steps: list[str]) -> None:
    """No call whose result follows at once lies before a boundary without it (A60)."""
    events = history(steps)
    boundary = closed_until(events, keep_exchanges=1)
    if boundary is None:
        return
    results = {event.tool_call_id: event.seq for event in events if isinstance(event, ToolResultEvent)}
    starts = [event.seq for event in events if isinstance(event, UserMessageEvent)]
    for event in events:
        if isinstance(event, ToolCallEvent) and event.seq <= boundary and event.tool_call_id in results:
            result = results[event.tool_call_id]
            between = [seq for seq in starts if event.seq < seq <= result]
            assert result <= boundary or len(between) >= 2, "only what was given up over a whole exchange is parted"


def test_a_call_that_never_ends_does_not_stop_memory_for_ever() -> None:
    """A call whose result was lost is given up after another whole exchange."""
    events = history(["call", "say", "answer", "say", "answer", "say", "answer"])
    assert closed_until(events, keep_exchanges=1) == 7
    assert closed_until(events, keep_exchanges=3) is None


def test_what_follows_a_page_is_the_tail() -> None:
    """Where the events do not reach the end of the log, the boundary is before the last message read."""
    events = history(["answer", "say", "answer", "say", "answer"])
    assert closed_until(events, keep_exchanges=0, is_whole=False) == 5
    assert closed_until(events, keep_exchanges=0) == 7
