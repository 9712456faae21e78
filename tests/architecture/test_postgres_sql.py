"""The PostgreSQL store keeps to the SQL that engines which spread rows over machines have too.

Its texts are found in the parsed source and read by PostgreSQL's own parser. What is put together while the program runs is read
off a real server in tests/conformance/test_partitioned.py, by the same rules.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import pytest

from kipu.stores.postgres import schema
from tests.architecture.sql_rules import (
    KEYED_OTHERWISE,
    PLACES,
    banned_in,
    columns_of_tables,
    is_whole,
    keys_of_tables,
    unplaced,
)
from tests.architecture.sql_source import HOLE, SqlText, sql_texts, texts_of

MAY = {
    ("src/kipu/stores/postgres/news.py", "NOTIFY"): "notices are optional: without them followers look often",
    ("src/kipu/stores/postgres/news.py", "LISTEN"): "notices are optional: without them followers look often",
}
"""What is banned and is used all the same, in one file each, and why."""
FORBIDDEN = {
    "CREATE SEQUENCE s": "a sequence", "SELECT nextval('s')": "a sequence", "CREATE TABLE t(a bigserial)": "a sequence",
    "CREATE TABLE t(a int GENERATED ALWAYS AS IDENTITY)": "a sequence",
    "CREATE TABLE t(a int, b int GENERATED ALWAYS AS (a) STORED)": "a generated column",
    "CREATE TRIGGER t BEFORE INSERT ON x EXECUTE FUNCTION f()": "a trigger", "DO $$ BEGIN END $$": "a block of procedural code",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'": "a function or procedure", "CALL f()": "a function or procedure",
    "CREATE RULE r AS ON INSERT TO t DO NOTHING": "a rule", "SELECT 1 FROM t FOR UPDATE": "rows held by a SELECT",
    "SELECT 1 FROM t FOR NO KEY UPDATE SKIP LOCKED": "rows held by a SELECT",
    "SELECT 1 FROM (SELECT 1 FROM t FOR SHARE) AS s": "rows held by a SELECT",
    "SELECT pg_advisory_xact_lock(1)": "an advisory lock", "SELECT pg_try_advisory_lock(1)": "an advisory lock",
    "LOCK TABLE t": "a lock by hand", "CREATE TEMP TABLE t(a int)": "a temporary or unlogged table",
    "CREATE UNLOGGED TABLE t(a int)": "a temporary or unlogged table", "SELECT 1 INTO TEMP t": "a temporary or unlogged table",
    "CREATE TABLE t AS SELECT 1": "a table made of a SELECT", "CREATE TABLE t(a int REFERENCES x)": "a foreign key",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1": "a cursor", "PREPARE p AS SELECT 1": "what a pooler cannot keep",
    "SET search_path = x": "what a pooler cannot keep", "CREATE EXTENSION x": "an extension", "LISTEN x": "LISTEN", "NOTIFY x": "NOTIFY",
    "WITH a AS (SELECT pg_notify('x', 'y')) SELECT 1 FROM a": "NOTIFY", "SELECT clock_timestamp()": "a time within the transaction",
    "TRUNCATE t": "TRUNCATE", "SELECT ctid FROM t": "a column of the server's own", "SELECT current_user": "a value of the connection",
    "SELECT random()": "a value that the server makes up",
}  # fmt: skip


def _statements() -> list[SqlText]:
    """Return the whole statements of the source; the beginning of a longer one is none."""
    texts = sql_texts()
    known = {one.text for one in texts}
    longer = {text for text in known if any(other != text and other.startswith(text) for other in known)}
    return [one for one in texts if HOLE not in one.text and one.text not in longer and is_whole(one.text)]


def test_postgres_uses_nothing_that_is_banned() -> None:
    """No statement of the store uses what other engines lack or a pooler cannot keep, but for what stands in a short list (PG-16)."""
    statements = _statements()
    assert len(statements) > 40
    used = {(one.file, what): one.text for one in statements for what in banned_in(one.text)}
    strays = [f"{file}: {what}: {text[:80]}" for (file, what), text in used.items() if (file, what) not in MAY]
    assert not strays, "\n".join(strays)


def test_postgres_says_of_which_session_every_statement_is() -> None:
    """Every statement about rows of sessions names the session, or the key, or stands in a list of those over all (PG-17)."""
    strays = [f"{one.file}: {name}: {one.text[:100]}" for one in _statements() for name in unplaced(one.text)]
    assert not strays, "\n".join(strays)


def test_postgres_keeps_rows_by_session() -> None:
    """Every table holds the session's id in byte order and begins its key with it, but for three, said why (PG-17)."""
    keys: dict[str, tuple[str, ...]] = {}
    columns: dict[str, Mapping[str, str]] = {}
    for statement in schema.TABLES:
        keys |= keys_of_tables(statement)
        columns |= columns_of_tables(statement)
    assert set(PLACES) <= set(keys)
    assert {name for name, key in keys.items() if key[:1] != ("session_id",)} == set(KEYED_OTHERWISE)
    for name in PLACES:
        assert columns[name]["session_id"] == "C", name


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_banned_forms_are_found(sql: str) -> None:
    """What is banned is found wherever it stands in a statement (PG-16)."""
    assert FORBIDDEN[sql] in banned_in(sql)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1 FROM {schema}.heads", ["heads"]),
        ("SELECT 1 FROM {schema}.heads WHERE owner = %s", ["heads"]),
        (
            "SELECT 1 FROM {schema}.heads AS h JOIN {schema}.events AS e ON e.session_id = h.session_id",
            ["events", "heads"],
        ),
        (
            "SELECT 1 FROM {schema}.heads AS h WHERE h.session_id = %s AND EXISTS (SELECT 1 FROM {schema}.docs)",
            ["docs"],
        ),
        ("WITH a AS (DELETE FROM {schema}.blobs RETURNING 1) SELECT 1 FROM a", ["blobs"]),
        ("UPDATE {schema}.heads SET owner = %s WHERE session_id <> %s", ["heads"]),
        ("SELECT 1 FROM {schema}.bindings WHERE key = %b", []),
        (
            "SELECT 1 FROM {schema}.heads AS h JOIN {schema}.events AS e ON e.session_id = h.session_id WHERE h.session_id = %s",
            [],
        ),
        ("DELETE FROM {schema}.docs WHERE session_id = ANY(%s)", []),
    ],
)
def test_statements_about_all_sessions_are_found(sql: str, tables: list[str]) -> None:
    """A statement that does not say of which sessions is found, in its parts too; one that does is not (PG-17)."""
    assert unplaced(sql) == tables


def test_texts_are_put_together() -> None:
    """A text is found as its module puts it together, and not a docstring; what is only known later leaves a hole."""
    tree = ast.parse('"""SELECT no."""\ndef f(x):\n  """SELECT no."""\n  return A + f" WHERE {B} = {x}" "!"')
    assert list(texts_of(tree, {"A": "SELECT 1", "B": "b"})) == [f"SELECT 1 WHERE b = {HOLE}!"]
