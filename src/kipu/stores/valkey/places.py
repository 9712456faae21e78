"""Where a head stands: the sorted sets it is listed in, and the text that says all it can be filtered by.

Members of a set are a value, the character zero and the session's id, so that their order as bytes is the order of a list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import orjson

from kipu.stores.valkey.key_names import KeyNames

Place: TypeAlias = tuple[str, str]
ORDERS: Mapping[str, str] = {"last_activity_at": "active", "created_at": "created"}
FENCE = "\x1f"  # JSON never holds it unescaped, so that between two of them stands exactly one token
EVERY = "*"
_LONGEST = 64


def places_of(keys: KeyNames, row: Mapping[str, Any]) -> frozenset[Place]:
    """Return every sorted set that a session is in, with the member it is there."""
    session_id = row["session_id"]
    found = [
        (keys.listed(short, facet), member(row.get(order), session_id))
        for order, short in ORDERS.items()
        for facet in _facets(row)
    ]
    due_at = row.get("due_at")
    if due_at is not None:
        work = member(due_at, member(row.get("last_event_at"), session_id))
        until = row.get("lease_until")
        is_held = bool(row.get("lease_owner")) and bool(until)
        found.append((keys.held, member(until, work)) if is_held else (keys.due, work))
    return frozenset(found)


def member(value: str | None, rest: str) -> str:
    """Return a member of a sorted set."""
    return f"{(value or '').replace(chr(0), '')}\0{rest}"


def tokens_of(row: Mapping[str, Any]) -> str:
    """Return all that a session can be filtered by, as one text in which each token can be found whole."""
    owner = row.get("owner", "")
    tokens = [
        token("t", row.get("tenant", "")),
        token("o", owner),
        token("s", row.get("status", "active")),
        *(token("v", one) for one in dict.fromkeys([owner, *(row.get("members") or ())])),
        *(token("g", tag) for tag in row.get("tags", ())),
        *(metadata_token(name, value) for name, value in (row.get("metadata") or {}).items() if value is not None),
    ]
    if row.get("key") is not None:
        tokens.append(token("k", row["key"]))
    if row.get("forked_from") is not None:
        tokens.append(token("f", row["forked_from"]))
    tokens += [name for name, holds in _flags(row).items() if holds]
    return FENCE + FENCE.join(tokens) + FENCE


def _flags(row: Mapping[str, Any]) -> Mapping[str, bool]:
    return {
        "p": bool(row.get("pinned")),
        "w": bool(row.get("open_turn")),
        "u": row.get("indexed_seq", 0) < row["last_seq"],
    }


def token(kind: str, text: str) -> str:
    """Return what says that a session has a value."""
    return f"{kind}:{_escaped(text)}"


def metadata_token(name: str, value: Any) -> str:
    """Return what says that a session's metadata has this value, equal values having equal texts."""
    text = orjson.dumps(_canonical(value), option=orjson.OPT_SORT_KEYS).decode()
    if len(text) > _LONGEST:
        text = hashlib.sha256(text.encode()).hexdigest()
    return f"{metadata_name(name)}{text}"


def metadata_name(name: str) -> str:
    """Return how every token of a name in the metadata begins."""
    return f"m:{orjson.dumps(name).decode()}="


def _escaped(text: str) -> str:
    return orjson.dumps(text).decode()[1:-1]


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {str(name): _canonical(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(one) for one in value]
    return value


def _facets(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lists that a session is in beside the one of all: those that a page is likely to be asked of."""
    yield EVERY
    for one in dict.fromkeys([row.get("owner", ""), *(row.get("members") or ())]):
        if one:
            yield token("v", one)
    for kind, name in (("t", "tenant"), ("k", "key"), ("f", "forked_from")):
        if row.get(name):
            yield token(kind, row[name])
    if row.get("status", "active") != "active":
        yield token("s", row["status"])
    for tag in dict.fromkeys(row.get("tags", ())):
        yield token("g", tag)
    if row.get("pinned"):
        yield "p"
    if row.get("open_turn"):
        yield "w"
