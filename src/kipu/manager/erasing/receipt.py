"""The receipt of an erasure: what was removed, place by place, and not a word of what it said."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


def person_digest(tenant: str, principal_id: str) -> str:
    """Return what receipts name a person by: whoever knows the id can find it, and the id itself is not kept."""
    return hashlib.sha256(f"kipu person\n{tenant}\n{principal_id}".encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Proof:
    """What a search for bytes of the erased sessions found afterwards. `found` counts ids of their events: it must be 0.

    `repeated` counts words that stood in them and stand in a file still: somebody said them elsewhere too, or a copy is left.
    """

    samples: int
    files: int
    bytes_read: int
    found: int
    repeated: int = 0
    places: tuple[str, ...] = ()  # names of the files that hold any of them


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one erasure did. Times are ISO 8601 UTC; people stand in it as `person_digest`."""

    erasure_id: str
    kind: str  # session, person
    sessions: tuple[str, ...]
    requested_by: str
    started_at: str
    finished_at: str
    removed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # place → what → how many
    kept: tuple[str, ...] = ()
    detached: tuple[str, ...] = ()  # forks that took over what they shared
    held: tuple[str, ...] = ()  # sessions of the person under legal hold: they stand
    elsewhere: Mapping[str, int] = field(
        default_factory=dict
    )  # sessions of others → the person's messages, 0: unreadable
    person: str | None = None
    tenant: str = ""
    resumed: bool = False
    proof: Proof | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as it is kept and shown."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Receipt:
        """Return what `to_json` gave; names that a newer version added are left aside."""
        values = {name: data[name] for name in cls.__slots__ if name in data}
        for name in ("sessions", "kept", "detached", "held"):
            values[name] = tuple(values.get(name, ()))
        proof = values.get("proof")
        if proof is not None:
            values["proof"] = Proof(**{**proof, "places": tuple(proof.get("places", ()))})
        return cls(**values)
