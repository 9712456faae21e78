"""Terms by event. The index finds candidates by cut terms, and the whole terms decide: its limits then harm nothing.

A `tsvector` holds at most 256 places of a lexeme and 1 MB in all, and knows no prefix of a phrase; so it is given every
term once, cut, without places, and whether terms follow one another is asked of the text beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kipu.errors import InvalidQueryError
from kipu.ports.store import Hit, IndexEntry, Page, Phrase, SearchQuery
from kipu.stores.paging import decode_cursor, encode_cursor, page_size
from kipu.stores.postgres.database import Connection, Database, run
from kipu.stores.postgres.heads import sql

CUT_CHARACTERS = 8
_MOST_BYTES = 900_000  # of lexemes in one event, below the server's limit
_GAP = "\x1f"  # between terms, in which a control character cannot be
_PUT = (
    "INSERT INTO {schema}.docs(session_id, seq, placed, terms, lexemes)"
    " SELECT d.session_id, d.seq, coalesce(nullif(floor(extract(epoch FROM"
    " nullif(e.at, '-infinity')) * 1000000), 0), 0)::bigint, d.terms, array_to_tsvector(%s::text[])"
    " FROM (VALUES (%s::text, %s::bigint, %s::text)) AS d(session_id, seq, terms)"
    " JOIN {schema}.heads AS h ON h.session_id = d.session_id AND h.data IS NOT NULL AND d.seq <= h.last_seq"
    " LEFT JOIN {schema}.events AS e ON e.session_id = d.session_id AND e.seq = d.seq ON CONFLICT DO NOTHING"
)


async def put_terms(connection: Connection, database: Database, *, entries: Sequence[IndexEntry]) -> None:
    """Take in terms, each event's once; of sessions and events that are gone nothing is kept."""
    text = sql(_PUT, database)
    for entry in entries:
        await run(connection, text, values=(_lexemes(entry.terms), entry.session_id, entry.seq, _text(entry.terms)))


async def find(database: Database, query: SearchQuery) -> Page[Hit]:
    """Return events that hold every phrase, newest first. Raises: InvalidQueryError without words."""
    if not query.phrases or not all(phrase.terms for phrase in query.phrases):
        raise InvalidQueryError(reason="it has no words to look for")
    limit = page_size(query.limit)
    conditions, values = ["d.lexemes @@ %s::text::tsquery"], [" & ".join(map(_asked, query.phrases))]
    for phrase in query.phrases:
        if needs_look(phrase):
            conditions.append("strpos(d.terms, %s) > 0")
            values.append(_text(phrase.terms, is_open=phrase.prefix))
    _narrow(query, conditions, values)
    if query.cursor is not None:
        conditions.append("(d.placed, d.session_id, d.seq) < (%s, %s, %s)")
        values += decode_cursor(query.cursor, int, str, int)
    text = (
        "SELECT d.placed, d.session_id, d.seq FROM {schema}.docs AS d JOIN {schema}.heads AS h ON h.session_id = d.session_id"
        f" WHERE {' AND '.join(conditions)} ORDER BY d.placed DESC, d.session_id DESC, d.seq DESC LIMIT %s"
    )
    rows = await database.rows(sql(text, database), (*values, limit + 1))
    cursor = encode_cursor(*rows[limit - 1]) if len(rows) > limit else None
    return Page(tuple(Hit(row[1], row[2]) for row in rows[:limit]), cursor)


def needs_look(phrase: Phrase) -> bool:
    """Return True where the index alone cannot tell: several terms, or one that was cut."""
    return len(phrase.terms) > 1 or len(phrase.terms[0]) >= CUT_CHARACTERS


def _narrow(query: SearchQuery, conditions: list[str], values: list[Any]) -> None:
    conditions.append("h.data IS NOT NULL")
    for column, value in (("h.tenant", query.tenant), ("h.owner", query.owner), ("d.session_id", query.session_id)):
        if value is not None:
            conditions.append(f"{column} = %s")
            values.append(value)
    if query.visible_to is not None:
        member = "SELECT 1 FROM {schema}.members AS m WHERE m.session_id = d.session_id AND m.member = %s"
        conditions.append(f"(h.owner = %s OR EXISTS ({member}))")
        values += [query.visible_to, query.visible_to]
    if query.statuses is not None:
        conditions.append("h.status = ANY(%s)")
        values.append(sorted(query.statuses))


def _asked(phrase: Phrase) -> str:
    cut = [_quoted(term) for term in phrase.terms]
    if phrase.prefix:
        cut[-1] += ":*"
    return " & ".join(cut)


def _quoted(term: str) -> str:
    return "'" + _clean(term)[:CUT_CHARACTERS].replace("\\", "\\\\").replace("'", "''") + "'"


def _lexemes(terms: Sequence[str]) -> list[str]:
    cut, size = dict.fromkeys(_clean(term)[:CUT_CHARACTERS] for term in terms), 0
    kept: list[str] = []
    for term in cut:
        size += len(term.encode()) + 4
        if size > _MOST_BYTES:
            break
        kept.append(term or " ")
    return kept


def _text(terms: Sequence[str], *, is_open: bool = False) -> str:
    text = _GAP + _GAP.join(map(_clean, terms))
    return text if is_open else text + _GAP


def _clean(term: str) -> str:
    """Return a term without the two characters that cannot be in the text."""
    return term.replace("\x00", "\ufffd").replace(_GAP, "\ufffd")
