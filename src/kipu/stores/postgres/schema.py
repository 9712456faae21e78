"""The tables. Every one is keyed by session, so that an engine which spreads rows can spread them by it.

Text that is compared or ordered is COLLATE "C": its order is the order of its bytes, as in every other store. `data` is the head
as JSON, the truth; the columns beside it are what is filtered or ordered by. Own events up to `hidden_seq` are out of sight: shared
ones that a fork takes in, and those on their way back from an archive. An erased session's row stays without data, so that its id
is never used again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kipu.stores.postgres.own_tables import MEMORY_TABLES, VAULT_TABLES


class Migration(NamedTuple):
    """How tables come to a format: `widen` leaves the release before working, `narrow` waits until none of it runs."""

    format: int
    widen: tuple[str, ...]
    narrow: tuple[str, ...] = ()


FORMAT: Final = 2
"""What this version writes. `oldest` in `meta` is the oldest version that may still write to the tables as they are."""

_HEADS = """
CREATE TABLE IF NOT EXISTS {schema}.heads(
  session_id text COLLATE "C" PRIMARY KEY, version bigint NOT NULL, data text,
  tenant text COLLATE "C" NOT NULL DEFAULT '', owner text COLLATE "C" NOT NULL DEFAULT '', key text COLLATE "C",
  status text COLLATE "C" NOT NULL DEFAULT '', tags text COLLATE "C" NOT NULL DEFAULT '', pinned integer NOT NULL DEFAULT 0,
  forked_from text COLLATE "C", created_at text COLLATE "C" NOT NULL DEFAULT '',
  last_activity_at text COLLATE "C" NOT NULL DEFAULT '', due_at text COLLATE "C", lease_owner text COLLATE "C",
  lease_until text COLLATE "C", lagging integer NOT NULL DEFAULT 0, last_event_at text COLLATE "C" NOT NULL DEFAULT '',
  open_turn boolean NOT NULL DEFAULT false, hidden_seq bigint NOT NULL DEFAULT 0, last_seq bigint NOT NULL DEFAULT 0,
  metadata jsonb, changed_at timestamptz NOT NULL, erased_at text, removed text) WITH (fillfactor = 70)
"""
_EVENTS = """
CREATE TABLE IF NOT EXISTS {schema}.events(
  session_id text COLLATE "C" NOT NULL, seq bigint NOT NULL, event_id text NOT NULL, event_type text COLLATE "C" NOT NULL,
  timestamp text NOT NULL, tokens bigint NOT NULL, turn_id text, trace_id text, principal text, v integer NOT NULL,
  crc bigint NOT NULL, body bytea NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (session_id, seq))
"""
_KEYS = """
CREATE TABLE IF NOT EXISTS {schema}.bindings(key bytea PRIMARY KEY, session_id text COLLATE "C" NOT NULL);
CREATE INDEX IF NOT EXISTS bindings_by_session ON {schema}.bindings(session_id);
CREATE TABLE IF NOT EXISTS {schema}.idempotency(
  key bytea PRIMARY KEY, session_id text COLLATE "C" NOT NULL, first_seq bigint NOT NULL, last_seq bigint NOT NULL,
  at_us bigint NOT NULL);
CREATE INDEX IF NOT EXISTS idempotency_by_session ON {schema}.idempotency(session_id);
CREATE INDEX IF NOT EXISTS idempotency_by_age ON {schema}.idempotency(at_us)
"""
_HEAD_INDEXES = """
CREATE INDEX IF NOT EXISTS heads_by_activity ON {schema}.heads(last_activity_at, session_id) WHERE data IS NOT NULL;
CREATE INDEX IF NOT EXISTS heads_by_creation ON {schema}.heads(created_at, session_id) WHERE data IS NOT NULL;
CREATE INDEX IF NOT EXISTS heads_by_owner ON {schema}.heads(owner, last_activity_at, session_id) WHERE data IS NOT NULL;
CREATE INDEX IF NOT EXISTS heads_by_owner_creation ON {schema}.heads(owner, created_at, session_id) WHERE data IS NOT NULL;
CREATE INDEX IF NOT EXISTS heads_by_key ON {schema}.heads(key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS heads_by_origin ON {schema}.heads(forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX IF NOT EXISTS heads_due ON {schema}.heads(due_at, last_event_at, session_id) WHERE due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS heads_held ON {schema}.heads(lease_owner) WHERE due_at IS NOT NULL AND lease_owner IS NOT NULL;
CREATE INDEX IF NOT EXISTS heads_lagging ON {schema}.heads(created_at, session_id) WHERE lagging = 1;
CREATE INDEX IF NOT EXISTS heads_by_change ON {schema}.heads(changed_at)
"""
_BLOBS = """
CREATE TABLE IF NOT EXISTS {schema}.blobs(
  session_id text COLLATE "C" NOT NULL, digest text COLLATE "C" NOT NULL, data bytea NOT NULL, PRIMARY KEY (session_id, digest))
"""
_MEMBERS = """
CREATE TABLE IF NOT EXISTS {schema}.members(
  session_id text COLLATE "C" NOT NULL, member text COLLATE "C" NOT NULL, began_at text COLLATE "C" NOT NULL,
  active_at text COLLATE "C" NOT NULL, PRIMARY KEY (session_id, member));
CREATE INDEX IF NOT EXISTS members_by_activity ON {schema}.members(member, active_at, session_id);
CREATE INDEX IF NOT EXISTS members_by_creation ON {schema}.members(member, began_at, session_id)
"""
_SEARCH = """
CREATE TABLE IF NOT EXISTS {schema}.docs(
  session_id text COLLATE "C" NOT NULL, seq bigint NOT NULL, placed bigint NOT NULL, terms text COLLATE "C" NOT NULL,
  lexemes tsvector NOT NULL, PRIMARY KEY (session_id, seq));
CREATE INDEX IF NOT EXISTS docs_by_lexeme ON {schema}.docs USING gin(lexemes)
"""
# Bodies up to a page stay in their row, as they are: a window is read without looking elsewhere or unpacking.
_STORAGE = """
ALTER TABLE {schema}.events ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE {schema}.events SET (toast_tuple_target = 8160)
"""
_META = "CREATE TABLE IF NOT EXISTS {schema}.meta(name text PRIMARY KEY, value text NOT NULL)"
_SCRIPTS = (_HEADS, _HEAD_INDEXES, _EVENTS, _STORAGE, _KEYS, _BLOBS, _MEMBERS, _SEARCH, _META)
TABLES = (
    "CREATE SCHEMA IF NOT EXISTS {schema}",
    *(line for script in _SCRIPTS for line in script.split(";")),
    *VAULT_TABLES,
    *MEMORY_TABLES,
)
"""Statements that make every table where it is missing, in their order."""
FILL_META = """
INSERT INTO {schema}.meta(name, value) VALUES ('kind', 'kipu'), ('format', %s), ('oldest', %s) ON CONFLICT DO NOTHING
"""
# 2: the key vault and the memory came into the database; before, each machine had its own.
MIGRATIONS: Final[tuple[Migration, ...]] = (Migration(2, widen=(*VAULT_TABLES, *MEMORY_TABLES)),)
"""The steps from format 1 on, in their order. What they add is also in `TABLES`, for schemas that are new."""
READ_META = "SELECT name, value FROM {schema}.meta"
HAS_META = "SELECT to_regclass(%s) IS NOT NULL"
