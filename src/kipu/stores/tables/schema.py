"""The shared tables. `heads.id` is the session's number, by which every other table names it."""

from __future__ import annotations

import apsw

from kipu.stores.tables import member_table

# AUTOINCREMENT, so that the number of an erased session never means another one.
# `data` is the head as JSON, the truth; the other columns are what is filtered or ordered by. `crc` covers `data`.
HEADS = """
CREATE TABLE heads(
  id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, owner TEXT NOT NULL,
  key TEXT, status TEXT NOT NULL, tags TEXT NOT NULL, pinned INTEGER NOT NULL, forked_from TEXT,
  created_at TEXT NOT NULL, last_activity_at TEXT NOT NULL, due_at TEXT, lease_owner TEXT, lease_until TEXT,
  lagging INTEGER NOT NULL, data TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE INDEX heads_by_activity ON heads(last_activity_at, session_id);
CREATE INDEX heads_by_owner ON heads(owner, last_activity_at, session_id);
CREATE INDEX heads_by_creation ON heads(created_at, session_id);
CREATE INDEX heads_by_key ON heads(key) WHERE key IS NOT NULL;
CREATE INDEX heads_by_origin ON heads(forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX heads_due ON heads(due_at) WHERE due_at IS NOT NULL;
CREATE INDEX heads_lagging ON heads(id) WHERE lagging = 1;
"""

# So that a page of somebody's sessions by creation costs what one by activity does; databases of earlier versions lack it.
OWNED = "CREATE INDEX IF NOT EXISTS heads_by_owner_creation ON heads(owner, created_at, session_id)"

KEYS = """
CREATE TABLE bindings(key TEXT PRIMARY KEY, session INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX bindings_by_session ON bindings(session);
CREATE TABLE idempotency(
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, session INTEGER NOT NULL,
  first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, at_us INTEGER NOT NULL);
CREATE INDEX idempotency_by_session ON idempotency(session);
CREATE TABLE tombstones(
  session_id TEXT PRIMARY KEY, erased_at TEXT NOT NULL, removed TEXT NOT NULL, done INTEGER NOT NULL) WITHOUT ROWID;
"""

# Terms come encoded (search_table), so that every character the tokenizer could split at or fold is gone from them.
# Contentless needs a document's own terms to remove it, and with secure-delete nothing of it stays: hence search_docs.
SEARCH = r"""
CREATE VIRTUAL TABLE search USING fts5(
  terms, session, content='', columnsize=0,
  tokenize="ascii tokenchars '!#$%&()*+,-./:;<=>?@[\]^_`{|}~'");
INSERT INTO search(search, rank) VALUES('secure-delete', 1);
CREATE TABLE search_docs(
  id INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL, terms BLOB NOT NULL);
CREATE UNIQUE INDEX search_docs_by_session ON search_docs(session, seq);
"""


def create(connection: apsw.Connection) -> None:
    """Make the shared tables in a database that has none of them; the caller holds the transaction."""
    for script in (HEADS, KEYS, SEARCH):
        connection.execute(script)
    complete(connection)


def complete(connection: apsw.Connection) -> None:
    """Make the table and the index that a database of an earlier version lacks; in none of those was anything shared."""
    connection.execute(member_table.SCHEMA)
    connection.execute(OWNED)
