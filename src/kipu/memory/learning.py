"""How a fact comes to stand among others, and how a rewind undoes it: by statements of one transaction."""

from __future__ import annotations

from kipu.memory import fact_rows
from kipu.memory.statements import Statement, Steps, hold_all, places
from kipu.ports.memory import Fact, FactEntry, Origin, Undone

_MOST_CONFIDENCE = 0.99
_AGAIN = 0.05
# Whose facts a fact may take the place of: an agent may have been told what to note by a page that it read.
_WEAKER: dict[Origin, tuple[Origin, ...]] = {
    "person": ("person", "consolidation", "agent"),
    "consolidation": ("consolidation", "agent"),
    "agent": ("agent",),
}


def learn(entry: FactEntry) -> Steps[str]:
    """Keep a fact, or make it a source of the equal one that stands; return the id that it is found under.

    Its owner is held by whoever calls this.
    """
    fact = entry.fact
    known = yield from fact_rows.by_id(fact.fact_id)
    if known is not None:
        return known.fact_id
    equal = yield from _equal(entry)
    if equal is not None and not (_is_by_hand(fact) and equal.sources):
        fact_id, confidence = equal.fact_id, equal.confidence
        if not _is_by_hand(equal):  # that rests on its person, and would go with the last session that says so too
            yield from fact_rows.add_sources(fact_id, fact.sources)
        grown = min(_MOST_CONFIDENCE, max(confidence, fact.confidence) + _AGAIN)
        yield Statement("UPDATE @facts SET confidence = ? WHERE fact_id = ?", (grown, fact_id))
        yield from fact_rows.add_aliases(fact_id, (fact.fact_id,))
        return fact_id
    yield from fact_rows.insert(entry)
    if equal is not None:  # it was learned, or edited, and a person says so of their own now: forgotten, both go
        sql = "UPDATE @facts SET status = 'superseded', reason = 'edited', superseded_by = ? WHERE fact_id = ?"
        yield Statement(sql, (fact.fact_id, equal.fact_id))
    if fact.status == "active":
        yield from supersede(entry)
    return fact.fact_id


def _is_by_hand(fact: Fact) -> bool:
    """Say whether a person entered the fact, and it is no version of one that was learned."""
    return fact.origin == "person" and not fact.sources


def _equal(entry: FactEntry) -> Steps[Fact | None]:
    """Return a fact of the same form and space; a quarantined one is no other's source, or it would hide that one."""
    sql = """SELECT fact_id FROM @facts WHERE fingerprint = ? AND tenant = ? AND owner = ? AND scope = ?
        AND subject = ? AND status = ? ORDER BY created_at, fact_id LIMIT 1"""
    status = "quarantined" if entry.fact.status == "quarantined" else "active"
    rows = yield Statement(sql, (entry.fingerprint, *entry.fact.space, status))
    return (yield from fact_rows.by_id(rows[0][0])) if rows else None


def supersede(entry: FactEntry) -> Steps[None]:
    """Let the fact take the place of what stood in its slot, and of what it names; as far as its origin allows."""
    fact = entry.fact
    which, values = [], []
    if fact.slot is not None:
        which.append("slot = ?")
        values.append(fact.slot)
    if entry.replaces:
        which.append(f"fact_id IN ({places(entry.replaces)})")
        values += entry.replaces
    if not which:
        return
    weaker = _WEAKER[fact.origin]
    yield Statement(
        f"""UPDATE @facts SET status = 'superseded', superseded_by = ?, reason = 'replaced'
            WHERE tenant = ? AND owner = ? AND scope = ? AND subject = ? AND status = 'active' AND fact_id <> ?
            AND ({" OR ".join(which)}) AND origin IN ({places(weaker)})""",
        [fact.fact_id, *fact.space, fact.fact_id, *values, *weaker],
    )


def hold_learned_from(session_id: str) -> Steps[None]:
    """Hold the owners of all that was learned from a session, or is for it only."""
    sql = """SELECT DISTINCT tenant, owner FROM @facts WHERE (scope = 'session' AND subject = ?)
        OR fact_id IN (SELECT fact_id FROM @sources WHERE session_id = ?)"""
    rows = yield Statement(sql, (session_id, session_id))
    yield from hold_all({(tenant, owner) for tenant, owner in rows})


def undo(session_id: str, undone: Undone) -> Steps[None]:
    """Mark the sources that a rewind undid, and supersede the facts that have no other."""
    yield from hold_learned_from(session_id)
    sql = "UPDATE @sources SET undone = 1 WHERE session_id = ? AND seq > ? AND seq <= ?"
    yield Statement(sql, (session_id, undone.after, undone.until))
    yield from _withdraw(session_id)


def _withdraw(session_id: str) -> Steps[None]:
    """Supersede facts of this session that no source supports any more, and let what they had replaced stand again."""
    sql = """SELECT f.fact_id, f.status FROM @facts AS f
        WHERE f.origin <> 'person' AND coalesce(f.reason, '') NOT IN ('rewound', 'edited')
        AND f.fact_id IN (SELECT fact_id FROM @sources WHERE session_id = ?)
        AND NOT EXISTS (SELECT 1 FROM @sources AS s WHERE s.fact_id = f.fact_id AND s.undone = 0)"""
    found = yield Statement(sql, (session_id,))
    for fact_id, _ in found:
        yield Statement("UPDATE @facts SET status = 'superseded', reason = 'rewound' WHERE fact_id = ?", (fact_id,))
    # One that was replaced before left nothing to stand again: its successor has its place.
    vacated = [fact_id for fact_id, status in found if status == "active"]
    while vacated:
        rows = yield Statement("SELECT fact_id, reason FROM @facts WHERE superseded_by = ?", (vacated.pop(),))
        for fact_id, reason in rows:
            if reason == "replaced":
                sql = "UPDATE @facts SET status = 'active', superseded_by = NULL, reason = NULL WHERE fact_id = ?"
                yield Statement(sql, (fact_id,))
            elif reason == "rewound":
                vacated.append(fact_id)


def forget_sources(session_id: str) -> Steps[list[str]]:
    """Remove a session as a source; return the facts that have none left, or were for that session only."""
    yield from hold_learned_from(session_id)
    rows = yield Statement("SELECT DISTINCT fact_id FROM @sources WHERE session_id = ?", (session_id,))
    touched = [row[0] for row in rows]
    yield Statement("DELETE FROM @sources WHERE session_id = ?", (session_id,))
    left = []
    for fact_id in touched:
        rows = yield Statement("SELECT 1 FROM @sources WHERE fact_id = ? LIMIT 1", (fact_id,))
        if not rows:
            left.append(fact_id)
    own = yield Statement("SELECT fact_id FROM @facts WHERE scope = 'session' AND subject = ?", (session_id,))
    for fact_id in touched:
        yield Statement(
            """UPDATE @facts SET status = 'superseded', reason = 'rewound' WHERE fact_id = ? AND origin <> 'person'
               AND status <> 'superseded'
               AND NOT EXISTS (SELECT 1 FROM @sources AS s WHERE s.fact_id = ? AND s.undone = 0)""",
            (fact_id, fact_id),
        )
    return list(dict.fromkeys([*left, *(row[0] for row in own)]))
