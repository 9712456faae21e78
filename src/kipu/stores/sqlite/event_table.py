"""Events as rows, each with a checksum over all that it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apsw

from kipu.ports.store import Record, StoredEvent
from kipu.stores.event_row import FIELDS, event_of, row_of
from kipu.stores.follow import FollowPage

_FIELDS = ", ".join(FIELDS)
_INSERT = f"INSERT INTO events(session, {_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADOPT = f"INSERT INTO events(id, session, {_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_BRING_BACK = _ADOPT.replace("INSERT", "INSERT OR IGNORE", 1)
_NEXT_TAKEN_OVER = """
SELECT max(seq) FROM (SELECT seq FROM events WHERE session = ? ORDER BY seq LIMIT 200) HAVING count(*) > 0
"""
_TAKE_OVER = "UPDATE events SET session = ? WHERE session = ? AND seq <= ?"
# Shared events stand under the negative number of their session until they are its own, and below every other id: whoever
# follows all sessions has no news of them, and a search gives them last.
_ROOM_BITS = 32
_FORWARDS = f"SELECT {_FIELDS} FROM events WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq"
_ONE = f"SELECT {_FIELDS} FROM events WHERE session = ? AND seq = ?"
_COMMITTED = f"""
SELECT events.id, heads.session_id, {_FIELDS.replace("crc", "events.crc")} FROM events
CROSS JOIN heads ON heads.id = events.session
WHERE events.id > ? ORDER BY events.id LIMIT ?
"""
END = (1 << 63) - 1


def insert(
    connection: apsw.Connection, number: int, *, session_id: str, first_seq: int, records: Sequence[Record]
) -> None:
    """Add records as the events from `first_seq` on."""
    seq = first_seq
    for record in records:
        connection.execute(_INSERT, (number, *row_of(session_id, record, seq=seq)))
        seq += 1


def adopted(connection: apsw.Connection, number: int) -> tuple[int, list[int]]:
    """Return the seq of the last shared event taken in, and the tokens of each."""
    rows = connection.execute("SELECT seq, tokens FROM events WHERE session = ? ORDER BY seq", (-number,)).fetchall()
    return (int(str(rows[-1][0])) if rows else 0), [int(str(tokens)) for _, tokens in rows]


def adopt(
    connection: apsw.Connection, number: int, *, session_id: str, first_seq: int, records: Sequence[Record]
) -> None:
    """Take in shared events, out of sight."""
    seq = first_seq
    for record in records:
        connection.execute(_ADOPT, (old_place(number, seq), -number, *row_of(session_id, record, seq=seq)))
        seq += 1


def bring_back(connection: apsw.Connection, number: int, *, session_id: str, events: Sequence[StoredEvent]) -> None:
    """Take in, out of sight, events that were let go of; those that are there already stay."""
    for seq, _, record in events:
        connection.execute(_BRING_BACK, (old_place(number, seq), -number, *row_of(session_id, record, seq=seq)))


def old_place(number: int, seq: int) -> int:
    """Return an id below every commit's, the same for the same event of the same session."""
    return seq - (number << _ROOM_BITS)


def take_over(connection: apsw.Connection, number: int) -> None:
    """Make the shared events that were taken in the session's own."""
    # A few at a time, within the caller's transaction: one statement over all of them keeps their pages in memory.
    while row := connection.execute(_NEXT_TAKEN_OVER, (-number,)).fetchone():
        connection.execute(_TAKE_OVER, (number, -number, row[0]))


def read(
    connection: apsw.Connection, number: int, *, session_id: str, after: int, until: int, limit: int, backwards: bool
) -> list[StoredEvent]:
    """Return at most `limit` events that are whole; a damaged one hides only itself (A53)."""
    found: list[StoredEvent] = []
    try:
        for row in connection.execute(_FORWARDS + " DESC" * backwards, (number, after, until)):
            event = event_of(session_id, row)
            if event is not None:
                found.append(event)
                if len(found) == limit:
                    break
    except (apsw.CorruptError, UnicodeDecodeError):
        return _read_singly(
            connection, number, session_id=session_id, after=after, until=until, limit=limit, backwards=backwards
        )
    return found


def _read_singly(
    connection: apsw.Connection, number: int, *, session_id: str, after: int, until: int, limit: int, backwards: bool
) -> list[StoredEvent]:
    """Read event by event around what cannot be read. The numbers come from the head, not from damaged pages."""
    row = connection.execute(
        "SELECT json_extract(data, '$.base_seq'), json_extract(data, '$.last_seq') FROM heads WHERE id = ?", (number,)
    ).fetchone()
    base, last = (int(value or 0) for value in row) if row else (0, 0)
    seqs = range(max(after, base) + 1, min(until, last) + 1)
    found: list[StoredEvent] = []
    for seq in reversed(seqs) if backwards else seqs:
        event = read_one(connection, number, session_id=session_id, seq=seq)
        if event is not None:
            found.append(event)
            if len(found) == limit:
                break
    return found


def read_one(connection: apsw.Connection, number: int, *, session_id: str, seq: int) -> StoredEvent | None:
    """Return one event, or None when it is not there or not whole."""
    try:
        row = connection.execute(_ONE, (number, seq)).fetchone()
    except (apsw.CorruptError, UnicodeDecodeError):
        return None
    return None if row is None else event_of(session_id, row)


def committed_after(connection: apsw.Connection, place: int, *, limit: int) -> FollowPage[int]:
    """Return what was committed after a place, of all sessions; damaged events are passed over, however many there are."""
    rows: list[Any] = connection.execute(_COMMITTED, (place, limit)).fetchall()
    events = [event_of(row[1], row[2:]) for row in rows]
    found = [event for event in events if event is not None]
    return FollowPage(found, int(rows[-1][0]) if rows else place, len(rows) == limit)


def last_place(connection: apsw.Connection) -> int:
    """Return the place of the newest commit."""
    row = connection.execute("SELECT max(id) FROM events").fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


def sequence_numbers(connection: apsw.Connection, number: int) -> Iterator[int]:
    """Yield the `seq` of every row of a session, in order."""
    for (seq,) in connection.execute("SELECT seq FROM events WHERE session = ? ORDER BY seq", (number,)):
        yield seq


def remove_session(connection: apsw.Connection, number: int) -> int:
    """Remove a session's events and return how many; the newest id is kept from being used again.

    A follower of the whole store remembers an id; an id used twice would make it skip an event.
    """
    newest = last_place(connection)
    connection.execute("DELETE FROM events WHERE session IN (?, ?)", (number, -number))
    removed = connection.changes()
    connection.execute("DELETE FROM events WHERE session = 0")
    connection.execute(
        "INSERT INTO events(id, session, seq, event_id, event_type, timestamp, tokens, v, crc, body)"
        " VALUES (?, 0, 0, '', '', '', 0, 0, 0, x'')",
        (newest + 1,),
    )
    return removed
