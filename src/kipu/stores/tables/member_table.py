"""Who shares which session, in the order of lists: for a member a page costs what it costs for an owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import apsw

from kipu.ports.store import SearchQuery, SessionQuery

# A row for each member of a shared session, with its session's place in each order: deep pages stay comparisons of rows.
# Its columns are called otherwise than those of `heads`, with which it is joined.
SCHEMA = """
CREATE TABLE IF NOT EXISTS members(
  session INTEGER NOT NULL, member TEXT NOT NULL, shared_id TEXT NOT NULL, began_at TEXT NOT NULL, active_at TEXT NOT NULL,
  PRIMARY KEY(session, member)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS members_by_activity ON members(member, active_at, shared_id);
CREATE INDEX IF NOT EXISTS members_by_creation ON members(member, began_at, shared_id);
"""
ORDERS: Mapping[str, str] = {"last_activity_at": "active_at", "created_at": "began_at"}
_NOBODY = "\x1f"
_ADD = "INSERT INTO members(session, member, shared_id, began_at, active_at) VALUES (?, ?, ?, ?, ?)"
_MOVE = "UPDATE members SET began_at = ?, active_at = ? WHERE session = ?"


QueryT = TypeVar("QueryT", SessionQuery, SearchQuery)


def readable(connection: apsw.Connection, query: QueryT) -> QueryT:
    """Return the query as this database can answer it: one of an earlier version, opened for reading, shares nothing."""
    visible_to = query.visible_to
    if visible_to is None or connection.table_exists("main", "members"):
        return query
    return replace(query, visible_to=None, owner=visible_to if query.owner in {None, visible_to} else _NOBODY)


def follow(connection: apsw.Connection, number: int, *, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Bring the rows of a session to what its head says after a change. A session that nobody shares costs two lookups."""
    members = after.get("members")
    if not members and not before.get("members"):
        return
    times = (after.get("created_at", ""), after.get("last_activity_at", ""))
    if members == before.get("members"):
        if times != (before.get("created_at", ""), before.get("last_activity_at", "")):
            connection.execute(_MOVE, (*times, number))
        return
    remove(connection, number)
    for member in members or ():
        connection.execute(_ADD, (number, member, after["session_id"], *times))


def remove(connection: apsw.Connection, number: int) -> None:
    """Forget who shares a session."""
    connection.execute("DELETE FROM members WHERE session = ?", (number,))
