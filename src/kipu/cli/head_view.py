"""Heads as lists show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kipu.ports.head import head_to_json
from kipu.ports.principal import LOCAL_ID

if TYPE_CHECKING:
    from kipu.ports.head import Head

COLUMNS = ("id", "status", "events", "last activity", "title")


def head_row(head: Head) -> tuple[str, ...]:
    """Return a head's line: id, status, number of events, last activity and title."""
    title, status = head.display_title, head.status
    if head.tags or head.pinned:
        title = ("pinned " if head.pinned else "") + "".join(f"#{tag} " for tag in head.tags) + title
    if head.owner not in ("", LOCAL_ID):
        title = f"@{head.owner} {title}"  # somebody else's, shared
    if head.waiting:
        status = f"{status} ({len(head.waiting)} waiting)"
    return head.session_id, status, str(head.event_count), moment(head.last_activity_at), title


def head_json(head: Head) -> dict[str, Any]:
    """Return a head as JSON: every field, and the title as shown."""
    return {**head_to_json(head), "display_title": head.display_title}


def moment(text: str) -> str:
    """Return a stored time to the second, for people; it stays UTC and says so."""
    return f"{text[:10]} {text[11:19]}Z" if len(text) >= 19 else text
