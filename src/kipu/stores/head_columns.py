"""What lists are filtered and ordered by, beside the head's JSON: the columns that the SQL stores share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

COLUMNS = (
    "tenant",
    "owner",
    "key",
    "status",
    "tags",
    "pinned",
    "forked_from",
    "created_at",
    "last_activity_at",
    "due_at",
    "lease_owner",
    "lease_until",
    "lagging",
)
# A tag as JSON never holds this character unescaped, so that between two of them stands exactly one tag.
TAG_FENCE = "\x1f"


def columns_of(data: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of `COLUMNS` for a head row."""
    get = data.get
    tags = get("tags")
    return (
        get("tenant", ""),
        get("owner", ""),
        get("key"),
        get("status", "active"),
        tag_text(tags) if tags else "",
        int(get("pinned", False)),
        get("forked_from"),
        get("created_at", ""),
        get("last_activity_at", ""),
        get("due_at"),
        get("lease_owner"),
        get("lease_until"),
        int(get("indexed_seq", 0) < data["last_seq"]),
    )


def tag_text(tags: Sequence[str]) -> str:
    """Return tags as one text in which each can be found whole."""
    return TAG_FENCE + TAG_FENCE.join(orjson.dumps(tag).decode() for tag in tags) + TAG_FENCE
