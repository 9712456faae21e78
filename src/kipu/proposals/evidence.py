"""What a proposal's evidence says now: read where it stands, never from a copy (C20, C26)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from kipu.context.item import Item
from kipu.errors import InvalidSessionIdError, SessionNotFoundError
from kipu.events.boundary import RewindEvent
from kipu.events.event import SessionEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.proposals.proposal import Evidence
from kipu.session.branch import is_undone, undone
from kipu.session.terms import event_text

EvidenceState: TypeAlias = Literal["there", "undone", "gone"]
EXCERPT = 300


class EvidenceEvent(NamedTuple):
    """One event of the evidence: undone by a rewind, gone with its session, or still there with what it says."""

    session_id: str
    seq: int
    state: EvidenceState
    event_type: str = ""
    excerpt: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return self._asdict()


async def standing_of(
    manager: SessionManager, evidence: Sequence[Evidence], *, principal: Principal
) -> list[EvidenceEvent]:
    """Return how each event of the evidence stands. What `principal` may not see is gone for them."""
    found: list[EvidenceEvent] = []
    for entry in evidence:
        session = await evidence_session(manager, entry.session_id, principal=principal)
        if session is None:
            found += [EvidenceEvent(entry.session_id, seq, "gone") for seq in entry.seqs or (0,)]
            continue
        found += await _events(session, entry.seqs)
    return found


async def evidence_session(manager: SessionManager, session_id: str, *, principal: Principal) -> Session | None:
    """Return a session, up to date; None for one that was erased, or never was this principal's."""
    try:
        session = await manager.open(session_id, principal=principal)
        await session.refresh()
    except (SessionNotFoundError, InvalidSessionIdError):
        return None
    return session


def summary_of(events: Sequence[EvidenceEvent]) -> str | None:
    """Return in words what of the evidence does not stand any more, None where all of it does."""
    lost = [event.state for event in events if event.state != "there"]
    if not lost:
        return None
    how = " and ".join(word for word, state in (("erased", "gone"), ("undone by a rewind", "undone")) if state in lost)
    share = "all of its evidence is" if len(lost) == len(events) else f"{len(lost)} of its {len(events)} events are"
    return f"{share} {how}"


async def _events(session: Session, seqs: Sequence[int]) -> list[EvidenceEvent]:
    items = await session.history.reader.at([seq for seq in seqs if seq <= session.history.last_seq])
    intervals = await _undone(session)
    found = []
    for seq in seqs:
        item = items.get(seq)
        if item is None:
            found.append(EvidenceEvent(session.session_id, seq, "gone"))
            continue
        state: EvidenceState = "undone" if is_undone(seq, intervals) else "there"
        excerpt = " ".join(event_text(item.event).split())
        cut = excerpt if len(excerpt) <= EXCERPT else excerpt[:EXCERPT] + " …"
        found.append(EvidenceEvent(session.session_id, seq, state, item.event.event_type, cut))
    return found


async def _undone(session: Session) -> list[tuple[int, int]]:
    """Return the intervals that rewinds undid, read along the chain of rewinds and nothing else."""
    rewinds: list[tuple[int, SessionEvent]] = []
    seq = session.head.rewind_seq
    while seq:
        item: Item | None = (await session.history.reader.at([seq])).get(seq)
        if item is None or not isinstance(item.event, RewindEvent):
            break
        rewinds.append((seq, item.event))
        seq = item.event.previous_seq if item.event.previous_seq < seq else 0
    if not rewinds:
        return []
    entries = rewinds[::-1]
    # A tip behind the last rewind: what was appended since stands.
    return undone([*entries, (session.history.last_seq + 1, SessionEvent(event_type="tip"))])
