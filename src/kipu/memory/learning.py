"""How a fact comes to stand among others, and how a rewind undoes it: by statements of one transaction."""

from __future__ import annotations

import apsw

from kipu.memory import fact_rows
from kipu.ports.memory import FactEntry, Origin, Undone

_MOST_CONFIDENCE = 0.99
_AGAIN = 0.05
# Whose facts a fact may take the place of: an agent may have been told what to note by a page that it read.
_WEAKER: dict[Origin, tuple[Origin, ...]] = {
    "person": ("person", "consolidation", "agent"),
    "consolidation": ("consolidation", "agent"),
    "agent": ("agent",),
}


def learn(connection: apsw.Connection, entry: FactEntry) -> str:
    """Keep a fact, or make it a source of the equal one that stands; return the id that it is found under."""
    fact = entry.fact
    known = fact_rows.by_id(connection, fact.fact_id)
    if known is not None:
        return known.fact_id
    equal = _equal(connection, entry)
    if equal is not None:
        fact_rows.add_sources(connection, equal, sources=fact.sources)
        connection.execute(
            "UPDATE facts SET confidence = min(?, max(confidence, ?) + ?) WHERE fact_id = ?",
            (_MOST_CONFIDENCE, fact.confidence, _AGAIN, equal),
        )
        connection.execute("INSERT INTO aliases VALUES (?, ?)", (fact.fact_id, equal))
        return equal
    fact_rows.insert(connection, entry)
    if fact.status == "active":
        supersede(connection, entry)
    return fact.fact_id


def _equal(connection: apsw.Connection, entry: FactEntry) -> str | None:
    """Return a fact of the same form and space; a quarantined one is no other's source, or it would hide that one."""
    sql = """SELECT fact_id FROM facts WHERE fingerprint = ? AND tenant = ? AND owner = ? AND scope = ? AND subject = ?
        AND status = ? ORDER BY created_at, fact_id LIMIT 1"""
    status = "quarantined" if entry.fact.status == "quarantined" else "active"
    found = connection.execute(sql, (entry.fingerprint, *entry.fact.space, status)).fetchone()
    return None if found is None else str(found[0])


def supersede(connection: apsw.Connection, entry: FactEntry) -> None:
    """Let the fact take the place of what stood in its slot, and of what it names; as far as its origin allows."""
    fact = entry.fact
    same_slot = "slot = ?" if fact.slot is not None else "0"
    named = ", ".join("?" * len(entry.replaces))
    weaker = _WEAKER[fact.origin]
    values = [fact.fact_id, *fact.space, fact.fact_id, *([fact.slot] if fact.slot is not None else []), *entry.replaces]
    connection.execute(
        f"""UPDATE facts SET status = 'superseded', superseded_by = ?, reason = 'replaced'
            WHERE tenant = ? AND owner = ? AND scope = ? AND subject = ? AND status = 'active' AND fact_id <> ?
            AND ({same_slot} OR fact_id IN ({named})) AND origin IN ({", ".join("?" * len(weaker))})""",
        [*values, *weaker],
    )


def undo(connection: apsw.Connection, session_id: str, *, undone: Undone) -> None:
    """Mark the sources that a rewind undid, and supersede the facts that have no other."""
    connection.execute(
        "UPDATE sources SET undone = 1 WHERE session_id = ? AND seq > ? AND seq <= ?",
        (session_id, undone.after, undone.until),
    )
    _withdraw(connection, session_id)


def _withdraw(connection: apsw.Connection, session_id: str) -> None:
    """Supersede facts of this session that no source supports any more, and let what they had replaced stand again."""
    sql = """SELECT fact_id, status FROM facts
        WHERE origin <> 'person' AND coalesce(reason, '') NOT IN ('rewound', 'edited')
        AND fact_id IN (SELECT fact_id FROM sources WHERE session_id = ?)
        AND NOT EXISTS (SELECT 1 FROM sources WHERE sources.fact_id = facts.fact_id AND NOT undone)"""
    found = connection.execute(sql, (session_id,)).fetchall()
    connection.executemany(
        "UPDATE facts SET status = 'superseded', reason = 'rewound' WHERE fact_id = ?", ((row[0],) for row in found)
    )
    # One that was replaced before left nothing to stand again: its successor has its place.
    vacated = [str(fact_id) for fact_id, status in found if status == "active"]
    while vacated:
        sql = "SELECT fact_id, reason FROM facts WHERE superseded_by = ?"
        for fact_id, reason in connection.execute(sql, (vacated.pop(),)).fetchall():
            if reason == "replaced":
                connection.execute(
                    "UPDATE facts SET status = 'active', superseded_by = NULL, reason = NULL WHERE fact_id = ?",
                    (fact_id,),
                )
            elif reason == "rewound":
                vacated.append(str(fact_id))


def forget_sources(connection: apsw.Connection, session_id: str) -> list[str]:
    """Remove a session as a source; return the facts that have none left, or were for that session only."""
    sql = "SELECT DISTINCT fact_id FROM sources WHERE session_id = ?"
    touched = [str(row[0]) for row in connection.execute(sql, (session_id,)).fetchall()]
    connection.execute("DELETE FROM sources WHERE session_id = ?", (session_id,))
    left = [
        fact_id
        for fact_id in touched
        if connection.execute("SELECT 1 FROM sources WHERE fact_id = ?", (fact_id,)).fetchone() is None
    ]
    own = connection.execute(
        "SELECT fact_id FROM facts WHERE scope = 'session' AND subject = ?", (session_id,)
    ).fetchall()
    for fact_id in touched:
        connection.execute(
            """UPDATE facts SET status = 'superseded', reason = 'rewound' WHERE fact_id = ? AND origin <> 'person'
               AND status <> 'superseded'
               AND NOT EXISTS (SELECT 1 FROM sources WHERE sources.fact_id = facts.fact_id AND NOT undone)""",
            (fact_id,),
        )
    return list(dict.fromkeys([*left, *(str(row[0]) for row in own)]))
