"""Events as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from kipu.cli.head_view import moment
from kipu.events.boundary import CompactionEvent, DamagedEvent
from kipu.events.codec import body_fields
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import ENVELOPE_FIELDS, SessionEvent, utc_text
from kipu.events.turn import TurnFinishedEvent
from kipu.session.terms import event_text

if TYPE_CHECKING:
    from kipu.cli.output import Output

LONGEST_RESULT = 2_000


def event_json(event: SessionEvent) -> dict[str, Any]:
    """Return an event as JSON: its envelope and body, as they are on disk and on the wire."""
    envelope = {name: getattr(event, name) for name in ENVELOPE_FIELDS}
    if event.timestamp is not None:
        envelope["timestamp"] = utc_text(event.timestamp)
    plain: dict[str, Any] = orjson.loads(
        orjson.dumps(
            body_fields(event), default=lambda value: value.model_dump(exclude_none=True), option=orjson.OPT_UTC_Z
        )
    )
    return {name: value for name, value in envelope.items() if value is not None} | plain


def event_line(event: SessionEvent) -> tuple[str, str, str, str]:
    """Return an event as one line of a table."""
    time = moment(utc_text(event.timestamp)) if event.timestamp else ""
    return str(event.seq), time, event.event_type, summary_of(event)[:300]


def summary_of(event: SessionEvent) -> str:
    """Return what an event says, as one text."""
    text = event_text(event)
    if text:
        return text
    fields = {name: value for name, value in event_json(event).items() if name not in ENVELOPE_FIELDS}
    return " ".join(f"{name}={value}" for name, value in fields.items())


def write_event(output: Output, event: SessionEvent) -> None:
    """Write an event of the conversation; the others say nothing."""
    if isinstance(event, UserMessageEvent):
        _said(output, f"{event.sender_id or 'user'} #{event.seq}", event_text(event), style="bold green")
    elif isinstance(event, AgentMessageEvent):
        state = " (interrupted)" if event.state == "interrupted" else ""
        _said(output, f"agent #{event.seq}{state}", event_text(event), style="bold blue")
    elif isinstance(event, ToolCallEvent):
        _said(output, f"calls {event.tool_name} #{event.seq}", event.raw or str(event.tool_input), style="yellow")
    elif isinstance(event, ToolResultEvent):
        mark = " (error)" if event.is_error else ""
        _said(output, f"result #{event.seq}{mark}", event_text(event)[:LONGEST_RESULT], style="yellow")
    elif isinstance(event, InstructionEvent):
        _said(output, f"instruction #{event.seq}", event.content, style="magenta")
    elif isinstance(event, CompactionEvent):
        _said(output, f"summary of {event.from_seq} to {event.to_seq}", event.summary, style="magenta")
    elif isinstance(event, DamagedEvent):
        _said(output, f"lost #{event.seq}", event.reason, style="red")
    elif isinstance(event, TurnFinishedEvent) and event.error:
        _said(output, f"turn {event.outcome}", event.error, style="red")


def _said(output: Output, who: str, text: str, *, style: str) -> None:
    output.line(who, style=style)
    output.line(text)
    output.line()
