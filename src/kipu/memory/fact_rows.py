"""Facts as rows: the statements, each one noun's, for every database that keeps facts (`memory.statements`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from kipu.memory.statements import Row, Statement, Steps, places
from kipu.ports.memory import Candidate, Fact, FactEntry, FactQuery, KeptFact, Source, Space
from kipu.ports.store import Phrase

_COLUMNS = (
    "fact_id, tenant, owner, scope, subject, kind, text, confidence, created_at, origin, status, slot, findings, "
    "superseded_by, reason, used_at, uses"
)
_LAST = "\U0010ffff"
_TOGETHER = 100  # rows in one statement
_OF_FACT = ("terms", "sources", "aliases", "facts")


def insert(entry: FactEntry) -> Steps[None]:
    """Keep a fact with its sources and terms."""
    fact = entry.fact
    values = (
        fact.fact_id,
        *fact.space,
        fact.kind,
        fact.text,
        fact.confidence,
        fact.created_at,
        fact.origin,
        fact.status,
        fact.slot,
        orjson.dumps(fact.findings).decode(),
        fact.superseded_by,
        fact.reason,
        fact.used_at,
        fact.uses,
        entry.fingerprint,
    )
    yield Statement(f"INSERT INTO @facts ({_COLUMNS}, fingerprint) VALUES ({places(values)})", values)
    yield from add_sources(fact.fact_id, fact.sources)
    rows = [(term, fact.fact_id) for term in sorted(set(entry.terms))]
    yield from _put("@terms (term, fact_id)", rows, conflict="ON CONFLICT DO NOTHING")


def add_sources(fact_id: str, sources: Iterable[Source]) -> Steps[None]:
    """Add events that a fact was learned from; one that was undone and is learned from again stands again."""
    rows = [(fact_id, *source, 0) for source in dict.fromkeys(sources)]
    conflict = "ON CONFLICT (fact_id, session_id, seq) DO UPDATE SET undone = 0"
    yield from _put("@sources (fact_id, session_id, seq, undone)", rows, conflict=conflict)


def add_aliases(fact_id: str, aliases: Iterable[str]) -> Steps[None]:
    """Let other ids lead to the fact."""
    rows = [(alias, fact_id) for alias in dict.fromkeys(aliases)]
    conflict = "ON CONFLICT (alias) DO UPDATE SET fact_id = excluded.fact_id"
    yield from _put("@aliases (alias, fact_id)", rows, conflict=conflict)


def _put(table: str, rows: Sequence[tuple[Any, ...]], *, conflict: str) -> Steps[None]:
    for at in range(0, len(rows), _TOGETHER):
        some = rows[at : at + _TOGETHER]
        every = ", ".join(f"({places(row)})" for row in some)
        yield Statement(f"INSERT INTO {table} VALUES {every} {conflict}", [value for row in some for value in row])


def by_id(fact_id: str) -> Steps[Fact | None]:
    """Return a fact by its id or alias."""
    sql = f"SELECT {_COLUMNS} FROM @facts WHERE fact_id = coalesce((SELECT fact_id FROM @aliases WHERE alias = ?), ?)"
    rows = yield Statement(sql, (fact_id, fact_id))
    found = yield from _facts(rows)
    return found[0] if found else None


def page(query: FactQuery) -> Steps[list[Fact]]:
    """Return one more fact than the query asks for, if there are so many, newest first."""
    where, values = _conditions(query)
    if query.cursor is not None:
        created_at, _, fact_id = query.cursor.partition(" ")
        where.append("(created_at, fact_id) < (?, ?)")
        values += [created_at, fact_id]
    sql = f"SELECT {_COLUMNS} FROM @facts WHERE {' AND '.join(where)} ORDER BY created_at DESC, fact_id DESC LIMIT ?"
    rows = yield Statement(sql, (*values, query.limit + 1))
    return (yield from _facts(rows))


def _conditions(query: FactQuery) -> tuple[list[str], list[Any]]:
    where, values = ["1 = 1"], []
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
            where.append(f"{name} IN ({places(sorted(words))})" if words else "1 = 0")
            values += sorted(words)
    if query.session_id is not None:
        where.append("fact_id IN (SELECT fact_id FROM @sources WHERE session_id = ?)")
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
            where.append("fact_id IN (SELECT fact_id FROM @terms WHERE term >= ? AND term < ?)")
            values += [term, term + _LAST]
        else:
            where.append("fact_id IN (SELECT fact_id FROM @terms WHERE term = ?)")
            values.append(term)
    return where, values


def in_spaces(spaces: Sequence[Space]) -> tuple[str, list[Any]]:
    """Return the condition that a fact is in one of the spaces."""
    if not spaces:
        return "1 = 0", []
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


def candidates(spaces: Sequence[Space], *, terms: Sequence[str], limit: int) -> Steps[list[Candidate]]:
    """Return active facts with any of the terms, and which they have."""
    if not spaces or not terms:
        return []
    condition, values = in_spaces(spaces)
    sql = f"""SELECT f.fact_id FROM @terms AS t CROSS JOIN @facts AS f
        WHERE f.fact_id = t.fact_id AND t.term IN ({places(terms)}) AND f.status = 'active' AND {condition}
        GROUP BY f.fact_id ORDER BY count(*) DESC, f.created_at DESC, f.fact_id LIMIT ?"""
    rows = yield Statement(sql, (*terms, *values, limit))
    if not rows:
        return []
    ids = [row[0] for row in rows]
    rows = yield Statement(f"SELECT {_COLUMNS} FROM @facts WHERE fact_id IN ({places(ids)})", ids)
    facts = {fact.fact_id: fact for fact in (yield from _facts(rows))}
    sql = f"SELECT fact_id, term FROM @terms WHERE fact_id IN ({places(ids)}) AND term IN ({places(terms)})"
    held: dict[str, set[str]] = {}
    for fact_id, term in (yield Statement(sql, (*ids, *terms))):
        held.setdefault(fact_id, set()).add(term)
    return [Candidate(facts[fact_id], frozenset(held[fact_id])) for fact_id in ids]


def frequencies(spaces: Sequence[Space], *, terms: Sequence[str]) -> Steps[tuple[int, dict[str, int]]]:
    """Return how many active facts there are, and how many have each term."""
    condition, values = in_spaces(spaces)
    rows = yield Statement(f"SELECT count(*) FROM @facts WHERE status = 'active' AND {condition}", values)
    total = int(rows[0][0])
    if not terms:
        return total, {}
    sql = f"""SELECT t.term, count(*) FROM @terms AS t CROSS JOIN @facts AS f
        WHERE f.fact_id = t.fact_id AND t.term IN ({places(terms)}) AND f.status = 'active' AND {condition}
        GROUP BY t.term"""
    rows = yield Statement(sql, (*terms, *values))
    return total, {str(term): int(count) for term, count in rows}


def kept(*, after: str, limit: int) -> Steps[list[KeptFact]]:
    """Return facts by their ids with all there is to them, but terms."""
    sql = f"SELECT {_COLUMNS}, fingerprint FROM @facts WHERE fact_id > ? ORDER BY fact_id LIMIT ?"
    rows = yield Statement(sql, (after, limit))
    found = []
    for fact, row in zip((yield from _facts(rows)), rows, strict=True):
        values = (fact.fact_id,)
        undone = yield Statement("SELECT session_id, seq FROM @sources WHERE fact_id = ? AND undone = 1", values)
        aliases = yield Statement("SELECT alias FROM @aliases WHERE fact_id = ? ORDER BY alias", values)
        gone = frozenset(Source(session_id, int(seq)) for session_id, seq in undone)
        found.append(KeptFact(FactEntry(fact, (), row[-1]), gone, tuple(alias for (alias,) in aliases)))
    return found


def restore(found: KeptFact) -> Steps[None]:
    """Keep a fact as another memory kept it."""
    fact_id = found.entry.fact.fact_id
    for table in _OF_FACT:
        yield Statement(f"DELETE FROM @{table} WHERE fact_id = ?", (fact_id,))
    yield from insert(found.entry)
    for source in sorted(found.undone):
        sql = "UPDATE @sources SET undone = 1 WHERE fact_id = ? AND session_id = ? AND seq = ?"
        yield Statement(sql, (fact_id, *source))
    yield from add_aliases(fact_id, found.aliases)


def remove(fact_id: str) -> Steps[None]:
    """Remove every row of one fact."""
    for table in _OF_FACT:
        yield Statement(f"DELETE FROM @{table} WHERE fact_id = ?", (fact_id,))
    yield Statement("UPDATE @facts SET superseded_by = NULL WHERE superseded_by = ?", (fact_id,))


def _facts(rows: Sequence[Row]) -> Steps[list[Fact]]:
    """Return the facts of rows that begin with `_COLUMNS`, each with its sources."""
    if not rows:
        return []
    ids = [row[0] for row in rows]
    sources: dict[str, list[Source]] = {}
    sql = f"SELECT fact_id, session_id, seq FROM @sources WHERE fact_id IN ({places(ids)}) ORDER BY session_id, seq"
    for fact_id, session_id, seq in (yield Statement(sql, ids)):
        sources.setdefault(fact_id, []).append(Source(session_id, int(seq)))
    return [_fact(row, tuple(sources.get(row[0], ()))) for row in rows]


def _fact(row: Row, sources: tuple[Source, ...]) -> Fact:
    return Fact(
        fact_id=row[0],
        space=Space(*row[1:5]),
        kind=row[5],
        text=row[6],
        sources=sources,
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
