"""Facts as commands show them: as JSON, as a row, and with why they are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kipu.cli.head_view import moment

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.ports.memory import Fact

COLUMNS = ("id", "kind", "scope", "state", "learned", "used", "text")
FINDINGS = {
    "invisible": "it has invisible characters",
    "override": "it tells a model to ignore its instructions",
    "role": "it speaks as somebody else",
    "secrecy": "it asks to keep something from you",
    "exfiltration": "it asks to send something away",
    "command": "it holds a dangerous command",
    "approval": "it asks to do things without asking you",
    "authority": "it claims an authority",
    "encoded": "it holds something encoded",
    "wider_scope": "only an agent wanted it to count outside its project",
    "not_the_owner": "an agent wanted it for somebody else in your session",
    "forget_asked": "an agent wants it forgotten",
}


def fact_json(fact: Fact) -> dict[str, Any]:
    """Return every field of a fact."""
    return {
        "id": fact.fact_id,
        "text": fact.text,
        "kind": fact.kind,
        "scope": fact.space.scope,
        "subject": fact.space.subject,
        "owner": fact.owner,
        "tenant": fact.space.tenant,
        "status": fact.status,
        "reason": fact.reason,
        "superseded_by": fact.superseded_by,
        "findings": list(fact.findings),
        "confidence": fact.confidence,
        "origin": fact.origin,
        "created_at": fact.created_at,
        "used_at": fact.used_at,
        "uses": fact.uses,
        "sources": [source._asdict() for source in fact.sources],
    }


def fact_row(fact: Fact) -> tuple[str, ...]:
    """Return a fact as a line of a table."""
    return (
        fact.fact_id,
        fact.kind,
        fact.space.scope,
        state_of(fact),
        moment(fact.created_at),
        str(fact.uses),
        fact.text,
    )


def state_of(fact: Fact) -> str:
    """Return the state with its cause."""
    if fact.status == "quarantined":
        return f"quarantined ({', '.join(fact.findings)})"
    return f"superseded ({fact.reason})" if fact.status == "superseded" else "active"


async def fact_details(manager: SessionManager, fact: Fact) -> list[tuple[str, object]]:
    """Return what there is to say of a fact, its sources with what was said there."""
    lines: list[tuple[str, object]] = [
        ("text", fact.text),
        ("id", fact.fact_id),
        ("kind", fact.kind),
        ("scope", f"{fact.space.scope} {fact.space.subject}".strip()),
        ("state", state_of(fact)),
        ("superseded by", fact.superseded_by),
        ("confidence", f"{fact.confidence:.2f}"),
        ("came from", fact.origin),
        ("learned", moment(fact.created_at)),
        ("recalled", f"{fact.uses} times, last {moment(fact.used_at)}" if fact.used_at else "never"),
    ]
    lines += [("because", FINDINGS.get(finding, finding)) for finding in fact.findings]
    return [*lines, *[("source", await _source(manager, *source)) for source in fact.sources]]


async def _source(manager: SessionManager, session_id: str, seq: int) -> str:
    from kipu.errors import KipuError
    from kipu.session.terms import event_text

    try:
        session = await manager.open(session_id)
        items = await session.history.reader.at([seq])
    except KipuError as error:
        return f"{session_id} #{seq} ({error.code})"
    said = " ".join(event_text(items[seq].event).split())[:160] if seq in items else ""
    return f"{session_id} #{seq} «{session.title}»: {said}"
