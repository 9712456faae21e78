"""The tables of what belongs to a store and is no session: its key vault, and its memory.

Wrapped keys are keyed by session like everything else. Facts are of people, and are spread by their own ids.
"""

from __future__ import annotations

from typing import Final

VAULT_GATES: Final = 64
"""How many may add keys at the same moment; a rotation shuts every gate (stores/postgres/vault.py)."""

_VAULT = f"""
CREATE TABLE IF NOT EXISTS {{schema}}.vault_keys(
  session_id text COLLATE "C" NOT NULL, epoch integer NOT NULL, kek text COLLATE "C" NOT NULL, wrapped bytea NOT NULL,
  PRIMARY KEY (session_id, epoch));
CREATE INDEX IF NOT EXISTS vault_keys_by_kek ON {{schema}}.vault_keys(kek);
CREATE TABLE IF NOT EXISTS {{schema}}.vault_blobs(
  session_id text COLLATE "C" NOT NULL, digest text COLLATE "C" NOT NULL, place text NOT NULL, PRIMARY KEY (session_id, digest));
CREATE TABLE IF NOT EXISTS {{schema}}.vault_shredded(session_id text COLLATE "C" PRIMARY KEY);
CREATE TABLE IF NOT EXISTS {{schema}}.vault_meta(
  name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL, version bigint NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS {{schema}}.vault_rotation(
  name text COLLATE "C" PRIMARY KEY, owner text NOT NULL, until timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS {{schema}}.vault_gates(
  gate integer PRIMARY KEY, passed bigint NOT NULL DEFAULT 0, retired text[] NOT NULL DEFAULT '{{}}') WITH (fillfactor = 20);
INSERT INTO {{schema}}.vault_gates(gate) SELECT generate_series(0, {VAULT_GATES - 1}) ON CONFLICT DO NOTHING
"""
_MEMORY = """
CREATE TABLE IF NOT EXISTS {schema}.memory_facts(
  fact_id text COLLATE "C" PRIMARY KEY, tenant text COLLATE "C" NOT NULL, owner text COLLATE "C" NOT NULL,
  scope text COLLATE "C" NOT NULL, subject text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, text text NOT NULL,
  fingerprint text COLLATE "C" NOT NULL, slot text COLLATE "C", confidence double precision NOT NULL,
  created_at text COLLATE "C" NOT NULL, origin text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL,
  findings text NOT NULL, superseded_by text COLLATE "C", reason text COLLATE "C", used_at text COLLATE "C",
  uses bigint NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS memory_facts_by_space
  ON {schema}.memory_facts(tenant, owner, scope, subject, status, created_at, fact_id);
CREATE INDEX IF NOT EXISTS memory_facts_by_time ON {schema}.memory_facts(created_at, fact_id);
CREATE INDEX IF NOT EXISTS memory_facts_by_successor ON {schema}.memory_facts(superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX IF NOT EXISTS memory_facts_of_tenants ON {schema}.memory_facts(tenant, status) WHERE scope = 'tenant';
CREATE INDEX IF NOT EXISTS memory_facts_of_sessions ON {schema}.memory_facts(subject) WHERE scope = 'session';
CREATE TABLE IF NOT EXISTS {schema}.memory_sources(
  fact_id text COLLATE "C" NOT NULL, session_id text COLLATE "C" NOT NULL, seq bigint NOT NULL,
  undone integer NOT NULL DEFAULT 0, PRIMARY KEY (fact_id, session_id, seq));
CREATE INDEX IF NOT EXISTS memory_sources_by_session ON {schema}.memory_sources(session_id, seq);
CREATE TABLE IF NOT EXISTS {schema}.memory_aliases(alias text COLLATE "C" PRIMARY KEY, fact_id text COLLATE "C" NOT NULL);
CREATE INDEX IF NOT EXISTS memory_aliases_by_fact ON {schema}.memory_aliases(fact_id);
CREATE TABLE IF NOT EXISTS {schema}.memory_terms(
  term text COLLATE "C" NOT NULL, fact_id text COLLATE "C" NOT NULL, PRIMARY KEY (fact_id, term));
CREATE INDEX IF NOT EXISTS memory_terms_by_term ON {schema}.memory_terms(term, fact_id);
CREATE TABLE IF NOT EXISTS {schema}.memory_progress(
  session_id text COLLATE "C" PRIMARY KEY, seq bigint NOT NULL, consolidated_seq bigint NOT NULL, rewind_seq bigint NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.memory_announced(
  session_id text COLLATE "C" NOT NULL, token bigint NOT NULL, PRIMARY KEY (session_id, token));
CREATE TABLE IF NOT EXISTS {schema}.memory_owners(
  tenant text COLLATE "C" NOT NULL, owner text COLLATE "C" NOT NULL, version bigint NOT NULL, PRIMARY KEY (tenant, owner));
CREATE TABLE IF NOT EXISTS {schema}.memory_meta(name text COLLATE "C" PRIMARY KEY, value text NOT NULL)
"""
VAULT_TABLES: Final = tuple(_VAULT.split(";"))
MEMORY_TABLES: Final = tuple(_MEMORY.split(";"))
