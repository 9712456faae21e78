"""The tables of the SQLite references: the same shape as Kipu's own, and nothing around them."""

from __future__ import annotations

from pathlib import Path

import apsw

DDL = """
CREATE TABLE IF NOT EXISTS heads(
  session_id TEXT NOT NULL PRIMARY KEY, owner TEXT, key TEXT, title TEXT, status TEXT NOT NULL, preview TEXT,
  created_at INTEGER, last_event_at INTEGER, last_activity_at INTEGER, last_seq INTEGER NOT NULL,
  event_count INTEGER, token_count INTEGER, window_seq INTEGER, consolidated_seq INTEGER, indexed_seq INTEGER,
  work INTEGER, not_before INTEGER, lease_owner TEXT, lease_token INTEGER, lease_until INTEGER, metadata BLOB);
CREATE TABLE IF NOT EXISTS events(
  id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_id TEXT NOT NULL,
  event_type TEXT NOT NULL, timestamp TEXT NOT NULL, tokens INTEGER NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS events_by_session ON events(session_id, seq);
"""
UPDATE_HEAD = """
UPDATE heads SET last_seq = ?1, last_event_at = ?2, last_activity_at = ?2, event_count = event_count + 1,
  token_count = token_count + ?3, preview = ?4 WHERE session_id = ?5
"""
INSERT_EVENT = """
INSERT INTO events(session_id, seq, event_id, event_type, timestamp, tokens, body) VALUES (?, ?, ?, ?, ?, ?, ?)
"""


def connect(path: Path) -> apsw.Connection:
    """Open a database that loses nothing it has acknowledged: WAL and synchronous FULL."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(DDL)
    return connection


def add_head(connection: apsw.Connection, session_id: str) -> None:
    """Begin a session."""
    connection.execute(
        "INSERT INTO heads(session_id, status, last_seq, event_count, token_count) VALUES (?, 'active', 0, 0, 0)",
        (session_id,),
    )


def write_event(connection: apsw.Connection, event: dict[str, object], *, seq: int, body: bytes) -> None:
    """Update the head and insert the event; the caller holds the transaction."""
    session_id = event["session_id"]
    connection.execute(UPDATE_HEAD, (seq, seq, len(body) // 4, str(event["event_type"]), session_id))
    row = (session_id, seq, event["event_id"], event["event_type"], event["timestamp"], len(body) // 4, body)
    connection.execute(INSERT_EVENT, row)
