"""Facts and rows of the memory file: the statements, each one noun's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import orjson

from kipu.ports.memory import Candidate, Fact, FactEntry, FactQuery, KeptFact, Source, Space
from kipu.ports.store import Phrase

_COLUMNS = (
    "fact_id, tenant, owner, scope, subject, kind, text, confidence, created_at, origin, status, slot, findings, "
    "superseded_by, reason, used_at, uses"
)
_LAST = "\U0010ffff"


def insert(connection: apsw.Connection, entry: FactEntry) -> None:
    """Keep a fact with its sources and terms."""
    fact = entry.fact
    connection.execute(
        """INSERT INTO facts (fact_id, tenant, owner, scope, subject, kind, text, fingerprint, slot, confidence, created_at,
           origin, status, findings, superseded_by, reason, used_at, uses) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)""",
        (
            fact.fact_id,
            *fact.space,
            fact.kind,
            fact.text,
            entry.fingerprint,
            fact.slot,
            fact.confidence,
            fact.created_at,
            fact.origin,
            fact.status,
            orjson.dumps(fact.findings).decode(),
            fact.superseded_by,
            fact.reason,
            fact.used_at,
            fact.uses,
        ),
    )
    add_sources(connection, fact.fact_id, sources=fact.sources)
    connection.executemany(
        "INSERT OR IGNORE INTO terms VALUES (?, ?)", ((term, fact.fact_id) for term in set(entry.terms))
    )


def add_sources(connection: apsw.Connection, fact_id: str, *, sources: Iterable[Source]) -> None:
    """Add events that a fact was learned from; one that was undone and is learned from again stands again."""
    connection.executemany(
        "INSERT OR REPLACE INTO sources (fact_id, session_id, seq) VALUES (?, ?, ?)",
        ((fact_id, *source) for source in sources),
    )


def by_id(connection: apsw.Connection, fact_id: str) -> Fact | None:
    """Return a fact by its id or alias."""
    sql = f"""SELECT {_COLUMNS} FROM facts
        WHERE fact_id = coalesce((SELECT fact_id FROM aliases WHERE alias = ?1), ?1)"""
    return next((_fact(connection, row) for row in connection.execute(sql, (fact_id,))), None)


def page(connection: apsw.Connection, query: FactQuery) -> list[Fact]:
    """Return one more fact than the query asks for, if there are so many, newest first."""
    where, values = _conditions(query)
    if query.cursor is not None:
        created_at, _, fact_id = query.cursor.partition(" ")
        where.append("(created_at, fact_id) < (?, ?)")
        values += [created_at, fact_id]
    sql = f"SELECT {_COLUMNS} FROM facts WHERE {' AND '.join(where)} ORDER BY created_at DESC, fact_id DESC LIMIT ?"
    return [_fact(connection, row) for row in connection.execute(sql, (*values, query.limit + 1)).fetchall()]


def _conditions(query: FactQuery) -> tuple[list[str], list[Any]]:
    where, values = ["1"], []
    if query.spaces is not None:
        condition, parameters = in_spaces(query.spaces)
        where.append(condition)
        values += parameters
    for name, value in (("tenant", query.tenant), ("owner", query.owner)):
        if value is not None:
            where.append(f"{name} = ?")
            values.append(value)
    for name, words in (("status", query.statuses), ("kind", query.kinds)):
        if words is not None:
            where.append(f"{name} IN ({', '.join('?' * len(words))})")
            values += sorted(words)
    if query.session_id is not None:
        where.append("fact_id IN (SELECT fact_id FROM sources WHERE session_id = ?)")
        values.append(query.session_id)
    for phrase in query.phrases:
        conditions, parameters = _holding(phrase)
        where += conditions
        values += parameters
    return where, values


def _holding(phrase: Phrase) -> tuple[list[str], list[Any]]:
    where, values = [], []
    for at, term in enumerate(phrase.terms):
        if phrase.prefix and at == len(phrase.terms) - 1:
            where.append("fact_id IN (SELECT fact_id FROM terms WHERE term >= ? AND term < ?)")
            values += [term, term + _LAST]
        else:
            where.append("fact_id IN (SELECT fact_id FROM terms WHERE term = ?)")
            values.append(term)
    return where, values


def in_spaces(spaces: Sequence[Space]) -> tuple[str, list[Any]]:
    """Return the condition that a fact is in one of the spaces."""
    if not spaces:
        return "0", []
    parts: list[str] = []
    values: list[Any] = []
    for space in spaces:
        if space.scope == "tenant":
            parts.append("(tenant = ? AND scope = 'tenant')")
            values.append(space.tenant)
        else:
            parts.append("(tenant = ? AND owner = ? AND scope = ? AND subject = ?)")
            values += space
    return f"({' OR '.join(parts)})", values


def candidates(
    connection: apsw.Connection, spaces: Sequence[Space], *, terms: Sequence[str], limit: int
) -> list[Candidate]:
    """Return active facts with any of the terms, and which they have."""
    if not spaces or not terms:
        return []
    condition, values = in_spaces(spaces)
    sql = f"""SELECT facts.fact_id, json_group_array(term) FROM terms CROSS JOIN facts USING (fact_id)
        WHERE term IN ({", ".join("?" * len(terms))}) AND status = 'active' AND {condition}
        GROUP BY facts.fact_id ORDER BY count(*) DESC, created_at DESC, facts.fact_id LIMIT ?"""
    found = connection.execute(sql, (*terms, *values, limit)).fetchall()
    facts = ((by_id(connection, str(fact_id)), orjson.loads(str(held))) for fact_id, held in found)
    return [Candidate(fact, frozenset(held)) for fact, held in facts if fact is not None]


def frequencies(
    connection: apsw.Connection, spaces: Sequence[Space], *, terms: Sequence[str]
) -> tuple[int, dict[str, int]]:
    """Return how many active facts there are, and how many have each term."""
    condition, values = in_spaces(spaces)
    total = connection.execute(f"SELECT count(*) FROM facts WHERE status = 'active' AND {condition}", values).get
    if not terms:
        return int(total), {}
    sql = f"""SELECT term, count(*) FROM terms CROSS JOIN facts USING (fact_id)
        WHERE term IN ({", ".join("?" * len(terms))}) AND status = 'active' AND {condition} GROUP BY term"""
    return int(total), {str(term): int(str(count)) for term, count in connection.execute(sql, (*terms, *values))}


def kept(connection: apsw.Connection, *, after: str, limit: int) -> list[KeptFact]:
    """Return facts by their ids with all there is to them, but terms."""
    sql = f"SELECT {_COLUMNS}, fingerprint FROM facts WHERE fact_id > ? ORDER BY fact_id LIMIT ?"
    found = []
    for row in connection.execute(sql, (after, limit)).fetchall():
        fact = _fact(connection, row)
        undone = connection.execute("SELECT session_id, seq FROM sources WHERE fact_id = ? AND undone", (row[0],))
        aliases = connection.execute("SELECT alias FROM aliases WHERE fact_id = ? ORDER BY alias", (row[0],))
        found.append(
            KeptFact(
                FactEntry(fact, (), str(row[-1])),
                frozenset(Source(str(session_id), int(str(seq))) for session_id, seq in undone.fetchall()),
                tuple(str(alias) for (alias,) in aliases.fetchall()),
            )
        )
    return found


def restore(connection: apsw.Connection, found: KeptFact) -> None:
    """Keep a fact as another memory kept it."""
    fact_id = found.entry.fact.fact_id
    for table in ("terms", "sources", "aliases", "facts"):
        connection.execute(f"DELETE FROM {table} WHERE fact_id = ?", (fact_id,))
    insert(connection, found.entry)
    connection.executemany(
        "UPDATE sources SET undone = 1 WHERE fact_id = ? AND session_id = ? AND seq = ?",
        ((fact_id, *source) for source in found.undone),
    )
    connection.executemany(
        "INSERT OR REPLACE INTO aliases VALUES (?, ?)", ((alias, fact_id) for alias in found.aliases)
    )


def remove(connection: apsw.Connection, fact_id: str) -> None:
    """Remove every row of one fact."""
    for table in ("terms", "sources", "aliases", "facts"):
        connection.execute(f"DELETE FROM {table} WHERE fact_id = ?", (fact_id,))
    connection.execute("UPDATE facts SET superseded_by = NULL WHERE superseded_by = ?", (fact_id,))


def _fact(connection: apsw.Connection, row: Sequence[Any]) -> Fact:
    sources = connection.execute(
        "SELECT session_id, seq FROM sources WHERE fact_id = ? ORDER BY session_id, seq", (row[0],)
    )
    return Fact(
        fact_id=row[0],
        space=Space(*row[1:5]),
        kind=row[5],
        text=row[6],
        sources=tuple(Source(str(session_id), int(str(seq))) for session_id, seq in sources.fetchall()),
        confidence=row[7],
        created_at=row[8],
        origin=row[9],
        status=row[10],
        slot=row[11],
        findings=tuple(orjson.loads(row[12])),
        superseded_by=row[13],
        reason=row[14],
        used_at=row[15],
        uses=row[16],
    )
