"""What SQL may say so that engines which spread rows over machines take it too, told from the parsed statement (PG-16, PG-17)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, TypeAlias

from pglast import ast, parse_sql
from pglast.enums import ConstrType
from pglast.parser import ParseError

Node: TypeAlias = Any
"""A node of a parsed statement: what it has depends on its kind, and nearly all of it may be missing."""
PLACES = {
    "heads": {"session_id"}, "events": {"session_id"}, "blobs": {"session_id"}, "members": {"session_id"},
    "docs": {"session_id"}, "bindings": {"session_id", "key"}, "idempotency": {"session_id", "key"},
}  # fmt: skip
"""Tables whose rows belong to a session, and which of their columns say where a row is."""
KEYED_OTHERWISE = {
    "bindings": "a chat's key is looked up before its session is known; spread by key",
    "idempotency": "a key is unique over all sessions; spread by key",
    "meta": "one row for each fact about the schema; a copy on every node",
    "vault_meta": "one row for each fact about the vault",
    "vault_rotation": "one row for each rotation under way",
    "vault_gates": "one row for each gate",
    "memory_facts": "facts outlive the sessions they come from; spread by fact",
    "memory_sources": "of a fact; spread by fact",
    "memory_aliases": "an earlier name of a fact",
    "memory_terms": "of a fact; spread by fact",
    "memory_owners": "one row for each owner",
    "memory_meta": "one row for each fact about the memory",
}
"""Tables whose primary key does not begin with the session's id, and why."""
OVER_ALL = {
    r"heads.* ORDER BY due_at, ": "which sessions have work: an index of those alone, one LIMIT on each node",
    r"LEFT JOIN \{schema\}\.heads AS h ON h\.changed_at > ": "what changed since a moment: an index, asked of each node",
    r"AS moment FROM \{schema\}\.(heads|members) AS ": "a page of a list: one LIMIT on each node, merged",
    r"WHERE data IS (NOT )?NULL AND session_id > %s ORDER BY session_id LIMIT": "a walk over all, by the session's id itself",
    r"FROM \{schema\}\.docs AS d JOIN \{schema\}\.heads AS h ON h\.session_id = d\.session_id": "a search: each node its own",
    r"^DELETE FROM \{schema\}\.idempotency WHERE key IN": "old keys are forgotten a thousand at a time",
}
"""Statements that do not say of which sessions, and why they may."""
_BANNED_STATEMENTS = {
    ast.CreateSeqStmt: "a sequence",
    ast.AlterSeqStmt: "a sequence",
    ast.CreateTrigStmt: "a trigger",
    ast.CreateEventTrigStmt: "a trigger",
    ast.RuleStmt: "a rule",
    ast.CreateFunctionStmt: "a function or procedure",
    ast.CallStmt: "a function or procedure",
    ast.DoStmt: "a block of procedural code",
    ast.CreateExtensionStmt: "an extension",
    ast.CreatePLangStmt: "an extension",
    ast.LockStmt: "a lock by hand",
    ast.LockingClause: "rows held by a SELECT",
    ast.DeclareCursorStmt: "a cursor",
    ast.FetchStmt: "a cursor",
    ast.PrepareStmt: "what a pooler cannot keep",
    ast.TruncateStmt: "TRUNCATE",
    ast.ListenStmt: "LISTEN",
    ast.NotifyStmt: "NOTIFY",
    ast.UnlistenStmt: "LISTEN",
    ast.CreateForeignTableStmt: "a foreign table",
    ast.IntoClause: "a table made of a SELECT",
    ast.CreateTableAsStmt: "a table made of a SELECT",
}
_BANNED_CALLS = {
    "nextval": "a sequence",
    "currval": "a sequence",
    "lastval": "a sequence",
    "setval": "a sequence",
    "pg_notify": "NOTIFY",
    "clock_timestamp": "a time within the transaction",
    "timeofday": "a time within the transaction",
    "statement_timestamp": "a time within the transaction",
    "dblink": "an extension",
    "lo_create": "a large object",
    "lo_import": "a large object",
    "gen_random_uuid": "a value that the server makes up",
    "random": "a value that the server makes up",
}
_ADVISORY = re.compile(r"pg_(try_)?advisory")
_SERIAL = re.compile(r"(small|big)?serial[248]?")
_HIDDEN_COLUMNS = {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}


_SERVER_TIME = "floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The one place of that function: the server's clock itself is what is asked for (server_clock.py), whose transaction is short."""


def parsed(sql: str) -> list[Node]:
    """Return the statements of a text, with the driver's places as the server has them. Raises: ParseError."""
    count = iter(range(1, 10_000))
    text = re.sub(r"%[sb]", lambda _: f"${next(count)}", sql.replace("{schema}", "kipu"))
    return [statement.stmt for statement in parse_sql(text)]


def _is(node: Node, kind: type | UnionType) -> bool:
    return isinstance(node, kind)


def is_whole(sql: str) -> bool:
    """Return whether a text is one or more whole statements."""
    try:
        return bool(parsed(sql))
    except ParseError:
        return False


def banned_in(sql: str) -> list[str]:
    """Return what a text says that it must not, each thing once."""
    sql = sql.replace(_SERVER_TIME, "0::bigint")
    return sorted({what for statement in parsed(sql) for node in _nodes(statement) for what in _banned(node)})


def _banned(node: Node) -> Iterator[str]:
    what = _BANNED_STATEMENTS.get(type(node))
    if what is not None:
        yield what
    if _is(node, ast.RangeVar) and node.relpersistence != "p":
        yield "a temporary or unlogged table"
    if _is(node, ast.FuncCall):
        name = node.funcname[-1].sval
        if name in _BANNED_CALLS:
            yield _BANNED_CALLS[name]
        if _ADVISORY.match(name):
            yield "an advisory lock"
    if _is(node, ast.Constraint) and node.contype == ConstrType.CONSTR_FOREIGN:
        yield "a foreign key"
    if _is(node, ast.Constraint) and node.contype in {ConstrType.CONSTR_IDENTITY, ConstrType.CONSTR_GENERATED}:
        yield "a sequence" if node.contype == ConstrType.CONSTR_IDENTITY else "a generated column"
    if _is(node, ast.TypeName) and _SERIAL.fullmatch(node.names[-1].sval):
        yield "a sequence"
    if _is(node, ast.VariableSetStmt) and not node.is_local:
        yield "what a pooler cannot keep"
    if _is(node, ast.ColumnRef) and getattr(node.fields[-1], "sval", None) in _HIDDEN_COLUMNS:
        yield "a column of the server's own"
    if _is(node, ast.SQLValueFunction) and node.op.name != "SVFOP_CURRENT_TIMESTAMP":
        yield "a value of the connection"


def keys_of_tables(sql: str) -> dict[str, tuple[str, ...]]:
    """Return the primary key of every table that a text makes; () where it has none."""
    found: dict[str, tuple[str, ...]] = {}
    for statement in parsed(sql):
        if _is(statement, ast.CreateStmt):
            key: tuple[str, ...] = ()
            for element in statement.tableElts or ():
                if _is(element, ast.Constraint) and element.contype == ConstrType.CONSTR_PRIMARY:
                    key = tuple(one.sval for one in element.keys)
                elif _is(element, ast.ColumnDef) and any(
                    one.contype == ConstrType.CONSTR_PRIMARY for one in element.constraints or ()
                ):
                    key = (element.colname,)
            found[statement.relation.relname] = key
    return found


def columns_of_tables(sql: str) -> dict[str, dict[str, str]]:
    """Return the columns of every table that a text makes, each with its collation or ""."""
    found: dict[str, dict[str, str]] = {}
    for statement in parsed(sql):
        if _is(statement, ast.CreateStmt):
            found[statement.relation.relname] = {
                element.colname: element.collClause.collname[-1].sval if element.collClause else ""
                for element in statement.tableElts or ()
                if _is(element, ast.ColumnDef)
            }
    return found


def unplaced(sql: str) -> list[str]:
    """Return the tables of sessions that a text reads or changes without saying of which sessions, where it may not.

    A table is placed where the part that names it compares the column that says where its rows are with a value, with a row that is
    none of these tables', or with a table that is placed.
    """
    text = " ".join(sql.split())
    if any(re.search(pattern, text) for pattern in OVER_ALL):
        return []
    return sorted({name for statement in parsed(sql) for name in _unplaced(statement)})


def _unplaced(statement: Node) -> Iterator[str]:
    if _is(statement, ast.CreateStmt | ast.IndexStmt | ast.AlterTableStmt | ast.CreateSchemaStmt):
        return
    for part in _parts(statement):
        if _is(part, ast.InsertStmt):  # a row that is put in says where it goes
            continue
        own = list(_own_nodes(part))
        tables = {
            (node.alias.aliasname if node.alias else node.relname): node.relname
            for node in own
            if _is(node, ast.RangeVar) and node.relname in PLACES and node.schemaname is not None
        }
        pairs = [pair for node in own if _is(node, ast.A_Expr) for pair in _equals(node, tables)]
        placed: set[str] = set()
        for _ in tables:
            placed |= {alias for alias, other in pairs if other is None or other in placed}
        yield from (name for alias, name in tables.items() if alias not in placed)


def _equals(node: Node, tables: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yield each table that a comparison places, with the table it would be placed by, or None for a value."""
    if not node.name or node.name[-1].sval != "=":
        return
    sides = [_table_of(side, tables) for side in (node.lexpr, node.rexpr)]
    for here, there in (sides, sides[::-1]):
        if here is not None:
            yield here, there


def _table_of(side: Node, tables: Mapping[str, str]) -> str | None:
    """Return which of the tables a column that places its rows belongs to."""
    if not _is(side, ast.ColumnRef) or not hasattr(side.fields[-1], "sval"):
        return None
    names = [field.sval for field in side.fields]
    alias = names[-2] if len(names) > 1 else (next(iter(tables)) if len(tables) == 1 else "")
    return alias if alias in tables and names[-1] in PLACES[tables[alias]] else None


def _parts(node: Node) -> Iterator[Node]:
    """Yield every SELECT, INSERT, UPDATE and DELETE within, the statement itself first."""
    for one in _nodes(node):
        if _is(one, ast.SelectStmt | ast.InsertStmt | ast.UpdateStmt | ast.DeleteStmt):
            yield one


def _own_nodes(part: Node) -> Iterator[Node]:
    """Yield the nodes of a part that are not within another part of it."""
    yield part
    for child in _children(part):
        if not _is(child, ast.SelectStmt | ast.InsertStmt | ast.UpdateStmt | ast.DeleteStmt):
            yield from _own_nodes(child)


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in _children(node):
        yield from _nodes(child)


def _children(node: Node) -> Iterator[Node]:
    for name in node:
        yield from _within(getattr(node, name))


def _within(value: Any) -> Iterator[Node]:
    if isinstance(value, ast.Node):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _within(one)
