"""The database's own tables, its marks, and how a new file gets them."""

from __future__ import annotations

import apsw

from kipu.errors import StoreUrlError
from kipu.stores.tables import schema as shared
from kipu.stores.tables.engine import check_secure_search

FORMAT = 1
APPLICATION_ID = 0x4B697075  # "Kipu"

# `id` is the order of commits. Session 0 marks an id that an erasure must not free for use again (erasure.py).
# `crc` covers the session's id, every other column but `id`, and the body.
EVENTS = """
CREATE TABLE events(
  id INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL, event_id TEXT NOT NULL,
  event_type TEXT NOT NULL, timestamp TEXT NOT NULL, tokens INTEGER NOT NULL, turn_id TEXT, trace_id TEXT,
  principal TEXT, v INTEGER NOT NULL, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX events_by_session ON events(session, seq);
CREATE TABLE blobs(
  id INTEGER PRIMARY KEY, session INTEGER NOT NULL, digest TEXT NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX blobs_by_session ON blobs(session, digest);
"""
# One row at most, while the store's sessions move to or from another one; databases of earlier versions lack it.
MARKS = "CREATE TABLE IF NOT EXISTS marks(id INTEGER PRIMARY KEY CHECK (id = 1), said TEXT NOT NULL)"


def found_format(connection: apsw.Connection, *, url: str) -> int | None:
    """Return the format of the database, or None when it is empty. Raises: StoreUrlError for a foreign one."""
    application = _number(connection, "application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application == 0 and tables == (0,):
        return None
    if application != APPLICATION_ID:
        raise StoreUrlError(url=url, reason="the file is a database of another program, and was left as it is")
    return _number(connection, "user_version")


def create_if_empty(connection: apsw.Connection, *, url: str) -> None:
    """Make all tables in one transaction, or those that are missing, unless another process has just done so."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if found_format(connection, url=url) is None:
            shared.create(connection)
            connection.execute(EVENTS)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        shared.complete(connection)
        connection.execute(MARKS)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    check_secure_search(connection)


def _number(connection: apsw.Connection, pragma: str) -> int:
    row = connection.execute(f"PRAGMA {pragma}").fetchone()
    return 0 if row is None or not isinstance(row[0], int) else row[0]
