"""From what was learned to a fact as it is kept: screened, on one line, with its terms and the form in which equals are equal. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from kipu.errors import InputError
from kipu.memory.screening import screen
from kipu.ports.memory import KINDS, SCOPES, Fact, FactEntry, Kind, Origin, Scope, Source, Space
from kipu.ports.store import Phrase
from kipu.session.terms import terms_of

MAX_CHARACTERS = 500
_AROUND = ".,;:!?\"'`()[]“”‘’«»。，；：！？、（）「」"
WIDER = "wider_scope"
"""Finding of a fact that nobody but a model wanted to have recalled outside its project."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One thing that a stretch of a log teaches, before it is a fact. `seqs` are the events that say it."""

    text: str
    kind: Kind
    seqs: tuple[int, ...]
    confidence: float
    scope: Scope | None = None  # None: the narrowest
    slot: str | None = None
    replaces: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()

    def to_json(self, fact_id: str, space: Space) -> dict[str, Any]:
        """Return the lesson as a `consolidation` event keeps it, under the id and in the space that it has."""
        data: dict[str, Any] = {
            "id": fact_id,
            "text": self.text,
            "kind": self.kind,
            "scope": space.scope,
            "subject": space.subject,
            "seqs": list(self.seqs),
            "confidence": self.confidence,
        }
        more = {"slot": self.slot, "replaces": list(self.replaces), "findings": list(self.findings)}
        return data | {name: value for name, value in more.items() if value}


def entry_of(fact: Fact, *, replaces: Sequence[str] = ()) -> FactEntry:
    """Return the fact screened and ready to be kept: what looks like an attack is quarantined.

    Raises: InputError (nothing is left of the text, or it is too long).
    """
    text, found = screen(fact.text[: 4 * MAX_CHARACTERS])
    if not text or len(text) > MAX_CHARACTERS:
        raise InputError(reason=f"a fact has 1 to {MAX_CHARACTERS} characters, and this one has {len(text)}")
    findings = tuple(dict.fromkeys((*fact.findings, *found)))
    status = "quarantined" if findings and fact.status == "active" else fact.status
    kept = replace(fact, text=text, findings=findings, status=status)
    return FactEntry(kept, terms_of(text), fingerprint(text), tuple(replaces))


def accepted(fact: Fact) -> FactEntry:
    """Return the fact as a person lets it stand, whatever was found in it."""
    return FactEntry(replace(fact, status="active"), terms_of(fact.text), fingerprint(fact.text))


def fingerprint(text: str) -> str:
    """Return the form in which equal facts are equal: case and punctuation around words do not count, names keep theirs."""
    words = (word.strip(_AROUND) for word in unicodedata.normalize("NFKC", text).split())
    return " ".join(word.casefold() if word.isalpha() else word for word in words if word) or text


def holds(text: str, phrases: Sequence[Phrase]) -> bool:
    """Say whether the terms of every phrase follow one another in the text."""
    terms = terms_of(text)
    return all(any(_is_at(terms, at, phrase) for at in range(len(terms))) for phrase in phrases)


def _is_at(terms: Sequence[str], at: int, phrase: Phrase) -> bool:
    found = terms[at : at + len(phrase.terms)]
    if len(found) < len(phrase.terms):
        return False
    if not phrase.prefix:
        return tuple(found) == phrase.terms
    return tuple(found[:-1]) == phrase.terms[:-1] and found[-1].startswith(phrase.terms[-1])


def entries_of_event(
    facts: Sequence[Mapping[str, Any]], *, session_id: str, tenant: str, owner: str, at: str, origin: Origin
) -> list[FactEntry]:
    """Return the facts that a `consolidation` event holds; one that is not a fact as this version knows them is left out."""
    found = []
    for data in facts:
        fact = _fact_of(data, session_id=session_id, tenant=tenant, owner=owner, at=at, origin=origin)
        if fact is None:
            continue
        replaces = [each for each in data.get("replaces", ()) if isinstance(each, str)]
        try:
            found.append(entry_of(fact, replaces=replaces))
        except InputError:
            continue
    return found


def _fact_of(
    data: Mapping[str, Any], *, session_id: str, tenant: str, owner: str, at: str, origin: Origin
) -> Fact | None:
    texts = {name: data.get(name) for name in ("id", "text", "kind", "scope", "subject")}
    seqs, confidence = data.get("seqs"), data.get("confidence", 0.5)
    if not all(isinstance(value, str) for value in texts.values()):
        return None
    if texts["kind"] not in KINDS or texts["scope"] not in SCOPES or not isinstance(confidence, int | float):
        return None
    if not isinstance(seqs, list) or not seqs or not all(isinstance(seq, int) for seq in seqs):
        return None
    slot = data.get("slot")
    scope = cast(Scope, texts["scope"])
    return Fact(
        fact_id=cast(str, texts["id"]),
        space=Space(tenant, owner, scope, cast(str, texts["subject"])),
        kind=cast(Kind, texts["kind"]),
        text=cast(str, texts["text"]),
        sources=tuple(Source(session_id, seq) for seq in seqs),
        confidence=min(max(float(confidence), 0.0), 1.0),
        created_at=at,
        origin=origin,
        slot=slot if isinstance(slot, str) else None,
        findings=tuple(each for each in data.get("findings", ()) if isinstance(each, str)),
    )
