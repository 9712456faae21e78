"""The tables of the SQLite references: written down anew in the shape of Kipu's own, with nothing around them."""

from __future__ import annotations

from pathlib import Path

import apsw

DDL = """
CREATE TABLE IF NOT EXISTS heads(
  id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, owner TEXT NOT NULL,
  key TEXT, status TEXT NOT NULL, tags TEXT NOT NULL, pinned INTEGER NOT NULL, forked_from TEXT,
  created_at TEXT NOT NULL, last_activity_at TEXT NOT NULL, due_at TEXT, lease_owner TEXT, lease_until TEXT,
  lagging INTEGER NOT NULL, data TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS heads_by_activity ON heads(last_activity_at, session_id);
CREATE INDEX IF NOT EXISTS heads_by_owner ON heads(owner, last_activity_at, session_id);
CREATE INDEX IF NOT EXISTS heads_by_creation ON heads(created_at, session_id);
CREATE TABLE IF NOT EXISTS events(
  id INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL, event_id TEXT NOT NULL,
  event_type TEXT NOT NULL, timestamp TEXT NOT NULL, tokens INTEGER NOT NULL, turn_id TEXT, trace_id TEXT,
  principal TEXT, v INTEGER NOT NULL, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS events_by_session ON events(session, seq);
"""
INSERT_HEAD = """
INSERT INTO heads(session_id, tenant, owner, key, status, tags, pinned, created_at, last_activity_at, lagging, data, crc)
VALUES (?, '', ?, ?, ?, '', 0, ?, ?, 0, ?, 0)
"""
UPDATE_HEAD = "UPDATE heads SET last_activity_at = ?, lagging = 1, data = ?, crc = 0 WHERE id = ?"
INSERT_EVENT = """
INSERT INTO events(session, seq, event_id, event_type, timestamp, tokens, turn_id, principal, v, crc, body)
VALUES (?, ?, ?, ?, ?, ?, ?, 'local', 1, 0, ?)
"""
# What a head says, as long as Kipu's: the numbers in it change with every event.
HEAD_TEXT = (
    '{"session_id":"sess_raw","owner":"local","title":"Title of a session in the list","status":"active","metadata":{},'
    '"created_at":"2026-11-29T12:00:00.000000Z","last_event_at":"2026-11-29T12:00:00.000000Z","event_count":%d,'
    '"last_activity_at":"2026-11-29T12:00:00.000000Z","last_seq":%d,"token_count":%d,"window_seq":0,"indexed_seq":0,'
    '"first_text":"the build server reports that module cache was stale so we cleared it and ran tests again",'
    '"previews":[[1,"user_message","the build server reports that module cache was stale so we cleared it and ran"],'
    '[2,"agent_message","the build server reports that module cache was stale so we cleared it and ran"]]}'
)


def connect(path: Path) -> apsw.Connection:
    """Open a database that loses nothing it has acknowledged: WAL and synchronous FULL."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(DDL)
    return connection


def add_head(connection: apsw.Connection, session_id: str) -> int:
    """Begin a session and return its number."""
    now = "2026-11-29T12:00:00.000000Z"
    connection.execute(INSERT_HEAD, (session_id, "local", None, "active", now, now, HEAD_TEXT % (0, 0, 0)))
    return connection.last_insert_rowid()


def write_event(connection: apsw.Connection, event: dict[str, object], *, session: int, seq: int, body: bytes) -> None:
    """Update the head and insert the event; the caller holds the transaction."""
    moment = f"2026-11-29T12:00:00.{seq:06d}Z"
    connection.execute(UPDATE_HEAD, (moment, HEAD_TEXT % (seq, seq, seq * 300), session))
    row = (session, seq, event["event_id"], event["event_type"], moment, len(body) // 4, event["turn_id"], body)
    connection.execute(INSERT_EVENT, row)
