"""A proposal as the log tells it: what it changes, why, from what evidence, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from kipu.proposals.target import Target

Status: TypeAlias = Literal["open", "approved", "rejected", "reverted"]
AuthorKind: TypeAlias = Literal["agent", "helper", "consolidation", "person"]
AUTHOR_KINDS: tuple[AuthorKind, ...] = get_args(AuthorKind)
_AUTHOR_TEXTS = ("principal", "session_id", "turn_id", "call_id", "model")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Events of one session that a proposal follows from. They are referred to, never copied: what is erased there is gone."""

    session_id: str
    seqs: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as the log keeps it."""
        return {"session_id": self.session_id, "seqs": list(self.seqs)}

    @classmethod
    def from_json(cls, data: Any) -> Evidence | None:
        """Return what `to_json` gave, None for anything else."""
        if not isinstance(data, Mapping) or not isinstance(data.get("session_id"), str):
            return None
        seqs = data.get("seqs")
        given = seqs if isinstance(seqs, list | tuple) else ()
        return cls(data["session_id"], tuple(seq for seq in given if isinstance(seq, int) and seq > 0))


@dataclass(frozen=True, slots=True)
class Author:
    """Who learned it: an agent or its helper in a turn, memory's consolidation, or a person.

    `principal` is whom it acted for.
    """

    kind: AuthorKind
    principal: str = ""
    session_id: str = ""
    turn_id: str = ""
    call_id: str = ""
    model: str = ""

    def to_json(self) -> dict[str, str]:
        """Return it as the log keeps it, without what is empty."""
        values = {name: getattr(self, name) for name in ("kind", *_AUTHOR_TEXTS)}
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_json(cls, data: Any) -> Author:
        """Return what `to_json` gave; of a newer version an agent."""
        given = data if isinstance(data, Mapping) else {}
        kind = given.get("kind")
        texts = {name: str(given.get(name) or "") for name in _AUTHOR_TEXTS}
        return cls(kind if kind in AUTHOR_KINDS else "agent", **texts)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that became of a proposal: made, repeated, tried, approved, rejected or reverted."""

    what: str
    at: str
    by: str
    reason: str = ""
    data: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {"what": self.what, "at": self.at, "by": self.by, "reason": self.reason, **(self.data or {})}


@dataclass(frozen=True, slots=True)
class Proposal:
    """What would change, and what became of that.

    `before` is the text it was made against (None: there was none), `after` the new one (None: it is to be removed).
    `version` is the one it became when it was approved; `base_version` the one it was made against.
    """

    proposal_id: str
    target: Target
    before: str | None
    after: str | None
    base_version: int
    reason: str
    evidence: tuple[Evidence, ...]
    author: Author
    made_at: str
    seq: int
    status: Status = "open"
    version: int | None = None
    steps: tuple[Step, ...] = ()

    @property
    def is_open(self) -> bool:
        """Return True while nobody has decided."""
        return self.status == "open"

    @property
    def trials(self) -> tuple[Step, ...]:
        """Return the trials, oldest first."""
        return tuple(step for step in self.steps if step.what == "tried")

    @property
    def is_tried(self) -> bool:
        """Return True where a model answered at least once under the change."""
        return any((step.data or {}).get("answered") for step in self.trials)

    @property
    def decision(self) -> Step | None:
        """Return the last decision, None while it is open."""
        decided = [step for step in self.steps if step.what in ("approved", "rejected", "reverted")]
        return decided[-1] if decided else None

    def to_json(self) -> dict[str, Any]:
        """Return it for programs, with its history."""
        return {
            "proposal_id": self.proposal_id,
            "status": self.status,
            **self.target.to_json(),
            "before": self.before,
            "after": self.after,
            "base_version": self.base_version,
            "version": self.version,
            "reason": self.reason,
            "evidence": [entry.to_json() for entry in self.evidence],
            "author": self.author.to_json(),
            "made_at": self.made_at,
            "is_tried": self.is_tried,
            "history": [step.to_json() for step in self.steps],
        }


def evidence_of(data: Any) -> tuple[Evidence, ...]:
    """Return the evidence that an event keeps; what cannot be read is left out."""
    entries: Sequence[Any] = data if isinstance(data, list | tuple) else ()
    return tuple(entry for entry in map(Evidence.from_json, entries) if entry is not None)
