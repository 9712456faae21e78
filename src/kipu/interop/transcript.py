"""What people read of a session: one entry per event that says something, whatever page it is put on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from kipu.events import access, boundary, conversation, turn
from kipu.events.codec import body_fields
from kipu.events.content import Content, MediaPart, TextPart
from kipu.events.event import SessionEvent, utc_text
from kipu.manager.redacting import redact_event
from kipu.manager.session import Session
from kipu.ports.head import Head
from kipu.ports.principal import Principal

if TYPE_CHECKING:
    from kipu.security.redaction.redactor import Redactor


@dataclass(frozen=True, slots=True)
class Fold:
    """Something long or technical, shown when it is asked for."""

    summary: str
    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was said or done. `role` is user, agent, tool, system or mark (a line between the others)."""

    role: str
    seq: int
    time: str
    heading: str
    text: str = ""
    folds: tuple[Fold, ...] = ()


async def entries(
    session: Session, *, redactor: Redactor | None = None, principal: Principal | None = None
) -> AsyncIterator[Entry]:
    """Yield the entries of a session, oldest first; undone ones too, with a mark where they were undone.

    With a `redactor` they are without the secrets that it finds.
    """
    async for event in session.events(principal=principal):
        entry = entry_of(event if redactor is None else redact_event(redactor, event))
        if entry is not None:
            yield entry


def title_of(head: Head, *, redactor: Redactor | None = None) -> str:
    """Return a session's title as it is exported."""
    return head.display_title if redactor is None else str(redactor.redact(head.display_title, places=False).value)


def facts(head: Head, *, redactor: Redactor | None = None) -> list[tuple[str, str]]:
    """Return what stands at the top: names and values."""
    given = [
        ("Session", head.session_id),
        ("Key", head.key or ""),
        ("Created", head.created_at),
        ("Last event", head.last_event_at),
        ("Status", head.status),
        ("Tags", ", ".join(head.tags)),
        ("Forked from", f"{head.forked_from} at {head.base_seq}" if head.forked_from else ""),
        ("Events", str(head.event_count)),
    ]
    if redactor is not None:
        given = [(name, str(redactor.redact(value, places=False).value)) for name, value in given]
    return [(name, value) for name, value in given if value]


def entry_of(event: SessionEvent) -> Entry | None:
    """Return what an event looks like to people, or None for one that only machines need."""
    said = _message(event) or _tool(event) or _mark(event)
    if said is None:
        return None
    role, heading, text, folds = said
    time = utc_text(event.timestamp) if event.timestamp else ""
    return Entry(role, event.seq, time, heading, text, tuple(folds))


_Said = tuple[str, str, str, list[Fold]]


def _message(event: SessionEvent) -> _Said | None:
    if isinstance(event, conversation.UserMessageEvent):
        via = f" via {event.channel}" if event.channel else ""
        return "user", f"{event.sender_id or 'User'}{via}", _shown(event.content), []
    if isinstance(event, conversation.AgentMessageEvent):
        model = f" ({event.provider.model})" if event.provider and event.provider.model else ""
        cut = " – interrupted" if event.state == "interrupted" else ""
        folds = [Fold("Reasoning", event.reasoning)] if event.reasoning else []
        return "agent", f"Agent{model}{cut}", _shown(event.content), folds
    if isinstance(event, conversation.InstructionEvent):
        return "system", "Instruction", "", [Fold("Instruction", event.content)]
    if isinstance(event, boundary.CompactionEvent):
        return "system", f"Summary of events {event.from_seq} to {event.to_seq}", "", [Fold("Summary", event.summary)]
    if isinstance(event, conversation.MemoryRecalledEvent):
        return "system", "Memory", "", [Fold("Recalled", _json(event.facts), "json")]
    return None


def _tool(event: SessionEvent) -> _Said | None:
    if isinstance(event, conversation.ToolCallEvent):
        if event.raw is not None:
            return "tool", f"Call of {event.tool_name}", "", [Fold(f"Arguments ({event.parse_error})", event.raw)]
        return "tool", f"Call of {event.tool_name}", "", [Fold("Arguments", _json(event.tool_input), "json")]
    if isinstance(event, conversation.ToolResultEvent):
        failed = " – error" if event.is_error else ""
        made = f" – {event.synthetic}" if event.synthetic else ""
        is_text = isinstance(event.result, str)
        text = event.result if is_text else _json(event.result)
        folds = [Fold("Result", text, "" if is_text else "json")]
        if event.error_info:
            folds.append(Fold("Error", event.error_info))
        return "tool", f"Result of {event.tool_name or event.tool_call_id}{failed}{made}", "", folds
    if isinstance(event, turn.ApprovalRequestEvent):
        return "tool", "Approval asked for", "", [Fold("Shown", _json(event.shown), "json")]
    return None


def _mark(event: SessionEvent) -> _Said | None:
    text = _mark_text(event)
    if text is not None:
        return "mark", text, "", []
    if isinstance(event, boundary.GenericEvent) or _is_application_note(event):
        return "system", event.event_type, "", [Fold("Fields", _json(body_fields(event)), "json")]
    return None


def _is_application_note(event: SessionEvent) -> bool:
    return isinstance(event, boundary.NoteEvent) and (
        not event.kind.startswith("kipu.") or event.kind.startswith("kipu.import")
    )


def _mark_text(event: SessionEvent) -> str | None:
    if isinstance(event, turn.TurnStartedEvent):
        return "Turn"
    if isinstance(event, turn.TurnFinishedEvent):
        return (
            None
            if event.outcome == "completed"
            else f"Turn {event.outcome}" + (f": {event.error}" if event.error else "")
        )
    if isinstance(event, turn.ApprovalDecisionEvent):
        return f"Approval: {event.decision} by {event.by}"
    if isinstance(event, boundary.RewindEvent):
        return f"Rewound: events {event.to_seq + 1} to {event.seq - 1} are undone"
    if isinstance(event, boundary.StatusChangedEvent):
        return f"Status: {event.status}" + (f" ({event.reason})" if event.reason else "")
    if isinstance(event, boundary.DamagedEvent):
        return f"A record is lost here: {event.reason}"
    if isinstance(event, boundary.MetadataChangedEvent) and "title" in event.set:
        return f"Title: {event.set['title']}"
    if isinstance(event, access.MembersChangedEvent):
        shared = [f"shared with {who} as {role}" for who, role in event.roles.items()]
        return "Members: " + ", ".join([*shared, *(f"no longer shared with {who}" for who in event.revoked)])
    return None


def _shown(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(part.text if isinstance(part, TextPart) else _media(part) for part in content)


def _media(part: MediaPart) -> str:
    where = f", blob {part.blob}" if part.blob else ""
    name = f"{part.name}: " if part.name else ""
    return f"[{name}{part.media_type}, {part.size} bytes{where}]"


def _json(value: Any) -> str:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z).decode()


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else str(value)
