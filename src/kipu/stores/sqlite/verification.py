"""Looking for damage: pages, checksums, gaps, blobs. Nothing is changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress

import apsw

from kipu.errors import SessionNotFoundError, StoreCorruptError
from kipu.ports.store import Damage
from kipu.stores.sqlite import event_table
from kipu.stores.tables import head_table

_MAX_PAGE_REPORTS = 100


def verify(connection: apsw.Connection, session_id: str | None, *, store: str) -> list[Damage]:
    """Return what is damaged in one session, or in the whole database. Raises: SessionNotFoundError."""
    if session_id is not None:
        if head_table.number_of(connection, session_id) is None:
            raise SessionNotFoundError(session_id=session_id)
        return list(_session(connection, session_id, store=store))
    found = list(_pages(connection))
    try:
        for name in head_table.session_ids(connection):
            found.extend(_session(connection, name, store=store))
    except (apsw.CorruptError, UnicodeDecodeError) as error:
        found.append(Damage(None, "page", "heads", detail=str(error)))
    return found


def _pages(connection: apsw.Connection) -> Iterator[Damage]:
    try:
        with connection:  # one state of the file for both questions
            with suppress(apsw.Error):  # asked itself, the search index forgets how it was when it was last looked at
                connection.execute("SELECT rowid FROM search LIMIT 1").fetchall()
            lines = connection.execute(f"PRAGMA integrity_check({_MAX_PAGE_REPORTS})").fetchall()
        for (line,) in lines:
            if line != "ok":
                yield Damage(None, "page", "database", detail=str(line))
    except (apsw.CorruptError, UnicodeDecodeError) as error:
        yield Damage(None, "page", "database", detail=str(error))


def _session(connection: apsw.Connection, session_id: str, *, store: str) -> Iterator[Damage]:
    number = head_table.number_of(connection, session_id)
    if number is None:
        return
    try:
        row = head_table.load(connection, session_id, store=store)
    except (StoreCorruptError, UnicodeDecodeError) as error:
        yield Damage(session_id, "checksum", "heads", detail=str(error))
        row = None
    yield from _events(connection, session_id, number, row)
    yield from _blobs(connection, session_id, number)


def _events(
    connection: apsw.Connection, session_id: str, number: int, row: head_table.HeadRow | None
) -> Iterator[Damage]:
    expected = max(row.data["base_seq"], row.data.get("offloaded_seq", 0)) + 1 if row is not None else None
    try:
        seqs = list(event_table.sequence_numbers(connection, number))
    except apsw.CorruptError as error:
        yield Damage(session_id, "page", "events", detail=str(error))
        seqs = list(range(expected, row.data["last_seq"] + 1)) if row is not None and expected is not None else []
    for seq in seqs:
        if expected is not None and seq > expected:
            yield Damage(session_id, "gap", "events", seq=expected, length=seq - expected)
        expected = seq + 1
        if event_table.read_one(connection, number, session_id=session_id, seq=seq) is None:
            yield Damage(session_id, "checksum", "events", seq=seq)
    if row is not None and expected is not None and expected <= row.data["last_seq"]:
        yield Damage(session_id, "gap", "events", seq=expected, length=row.data["last_seq"] + 1 - expected)


def _blobs(connection: apsw.Connection, session_id: str, number: int) -> Iterator[Damage]:
    try:
        digests = connection.execute("SELECT id, digest FROM blobs WHERE session = ?", (number,)).fetchall()
        for identity, digest in digests:
            data = connection.execute("SELECT data FROM blobs WHERE id = ?", (identity,)).fetchone()
            if data is None or not isinstance(data[0], bytes) or hashlib.sha256(data[0]).hexdigest() != digest:
                yield Damage(session_id, "checksum", "blobs", detail=str(digest))
    except (apsw.CorruptError, UnicodeDecodeError) as error:
        yield Damage(session_id, "page", "blobs", detail=str(error))
