"""Terms by event, found by phrases. Terms are opaque: each is one token, whatever characters it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import apsw

from kipu.errors import InvalidQueryError
from kipu.ports.store import Hit, Page, Phrase, SearchQuery
from kipu.stores.paging import decode_cursor, encode_cursor, page_size
from kipu.stores.tables import member_table

# What the tokenizer would fold or split at, what ends a quoted string, and the escape itself.
_SPECIAL = re.compile(r"[A-Z\x00-\x1f\x7f\"'%]")
_SPECIAL_BYTES = bytes(byte for byte in range(128) if byte != 0x20 and _SPECIAL.match(chr(byte)))
_KEEP = "INSERT OR IGNORE INTO search_docs(id, session, seq, terms) VALUES (?, ?, ?, ?)"
_ADD = "INSERT INTO search(rowid, terms, session) VALUES (?, ?, ?)"
_REMOVE = "INSERT INTO search(search, rowid, terms, session) VALUES ('delete', ?, ?, ?)"
_FIND = """
SELECT docs.id, heads.session_id, docs.seq
FROM search CROSS JOIN search_docs AS docs ON docs.id = search.rowid CROSS JOIN heads ON heads.id = docs.session
WHERE search MATCH ? AND search.rowid < ? {filters} ORDER BY search.rowid DESC LIMIT ?
"""
_NEWEST = 1 << 62


def add(
    connection: apsw.Connection, session: int, *, seq: int, terms: Sequence[str], document: int | None = None
) -> None:
    """Take in the terms of one event once. `document` orders hits, higher being newer; without it, later is newer."""
    text = joined(terms)
    connection.execute(_KEEP, (document, session, seq, text.encode()))
    if connection.changes():
        connection.execute(_ADD, (connection.last_insert_rowid(), text, str(session)))


def find(connection: apsw.Connection, query: SearchQuery) -> Page[Hit]:
    """Return events that hold every phrase, newest first."""
    limit = page_size(query.limit)
    session: int | None = None
    if query.session_id is not None:
        row = connection.execute("SELECT id FROM heads WHERE session_id = ?", (query.session_id,)).fetchone()
        if row is None:
            return Page(())
        session = row[0]
    below = decode_cursor(query.cursor, int)[0] if query.cursor is not None else _NEWEST
    filters, bindings = _filters(member_table.readable(connection, query))
    sql = _FIND.format(filters=filters)
    found = connection.execute(sql, (match_text(query.phrases, session), below, *bindings, limit + 1)).fetchall()
    rows = cast("list[tuple[int, str, int]]", found)
    cursor = encode_cursor(rows[limit - 1][0]) if len(rows) > limit else None
    return Page(tuple(Hit(row[1], row[2]) for row in rows[:limit]), cursor)


def remove_session(connection: apsw.Connection, session: int) -> int:
    """Remove every term of a session, leaving no byte of them; return of how many events."""
    kept = connection.execute("SELECT id, terms FROM search_docs WHERE session = ?", (session,)).fetchall()
    rows = cast("list[tuple[int, bytes]]", kept)
    for document, text in rows:
        connection.execute(_REMOVE, (document, text.decode(), str(session)))
    connection.execute("DELETE FROM search_docs WHERE session = ?", (session,))
    return len(rows)


def clear(connection: apsw.Connection) -> None:
    """Forget every term."""
    connection.execute("INSERT INTO search(search) VALUES ('delete-all')")
    connection.execute("DELETE FROM search_docs")


def match_text(phrases: Sequence[Phrase], session: int | None) -> str:
    """Return the phrases as a full-text expression. Raises: InvalidQueryError when there is nothing to look for."""
    if not phrases or not all(phrase.terms for phrase in phrases):
        raise InvalidQueryError(reason="it has no words to look for")
    quoted = [f'"{joined(phrase.terms)}"' + ("*" if phrase.prefix else "") for phrase in phrases]
    found = f"terms : ({' AND '.join(quoted)})"
    return found if session is None else f'{found} AND session : "{session}"'


def joined(terms: Sequence[str]) -> str:
    """Return terms as text that the tokenizer takes apart into exactly them."""
    text = " ".join(terms)
    plain = text.count(" ") == len(terms) - 1 and "  " not in text and text[:1] != " " and text[-1:] not in {" ", ""}
    raw = text.encode()
    if plain and len(raw.translate(None, _SPECIAL_BYTES)) == len(raw):
        return text
    return " ".join(_SPECIAL.sub(_escape, term).replace(" ", "%20") or "%" for term in terms)


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02x}"


def _filters(query: SearchQuery) -> tuple[str, tuple[Any, ...]]:
    conditions: list[str] = []
    bindings: list[Any] = []
    for column, value in (("tenant", query.tenant), ("owner", query.owner)):
        if value is not None:
            conditions.append(f"AND heads.{column} = ?")
            bindings.append(value)
    if query.visible_to is not None:
        shared = "EXISTS (SELECT 1 FROM members WHERE members.session = heads.id AND members.member = ?)"
        conditions.append(f"AND (heads.owner = ? OR {shared})")
        bindings += (query.visible_to, query.visible_to)
    if query.statuses is not None:
        conditions.append(f"AND heads.status IN ({', '.join('?' * len(query.statuses))})")
        bindings.extend(sorted(query.statuses))
    return " ".join(conditions), tuple(bindings)
