"""The session picker: a full-screen list that filters as you type, with a preview. Loaded only when it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kipu.cli.head_view import moment
from kipu.errors import MissingExtraError
from kipu.interop.printable import printable, printable_line
from kipu.ports.store import SessionQuery

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.ports.head import Head

PREVIEWED_EVENTS = 12
PREVIEWED_CHARACTERS = 400
SHOWN_ROWS = 500  # of what matches: nobody scrolls further, and typing narrows it


async def pick_session(manager: SessionManager) -> str | None:
    """Let a person pick one of their sessions; None when they leave without one.

    Raises:
        MissingExtraError: textual is not installed.
    """
    try:
        from kipu.cli.picker_screen import Picker
    except ImportError as error:
        raise MissingExtraError(feature="The session picker", package="textual", extra="tui") from error
    heads = [head async for head in manager.heads(SessionQuery(limit=1000))]
    return await Picker(heads, lambda session_id: preview(manager, session_id)).run_async()


def matching(heads: list[Head], words: str) -> list[Head]:
    """Return the heads whose title, first message, tags, key, status or id hold every word."""
    wanted = words.casefold().split()
    if not wanted:
        return heads
    return [head for head in heads if all(word in _haystack(head) for word in wanted)]


def _haystack(head: Head) -> str:
    parts = (
        head.display_title,
        head.first_text or "",
        " ".join(head.tags),
        head.key or "",
        head.status,
        head.session_id,
    )
    return "\n".join(parts).casefold()


def row_of(head: Head) -> tuple[str, str, str]:
    """Return a head's row: last activity, events, title."""
    mark = "★ " if head.pinned else ""
    return moment(head.last_activity_at), str(head.event_count), mark + printable_line(head.display_title)[:200]


async def preview(manager: SessionManager, session_id: str) -> str:
    """Return the facts and the last messages of a session, from its tail alone."""
    from kipu.cli.show import facts_of
    from kipu.cli.transcript import event_json
    from kipu.session.branch import visible
    from kipu.session.terms import event_text

    session = await manager.open(session_id)
    lines = [f"{name}: {printable_line(str(value))}" for name, value in facts_of(session) if value not in (None, "")]
    lines.append("")
    for event in visible(await session.get_recent_events(4 * PREVIEWED_EVENTS))[-PREVIEWED_EVENTS:]:
        text = event_text(event)
        if text and event.event_type in ("user_message", "agent_message", "tool_call", "tool_result", "compaction"):
            who = event_json(event).get("sender_id") or event.event_type.replace("_", " ")
            lines += [f"── {who} #{event.seq}", printable(text[:PREVIEWED_CHARACTERS]), ""]
    return "\n".join(lines)
