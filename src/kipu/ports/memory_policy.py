"""How memory is kept in one scope: settings that a person approved, read by whoever consolidates and recalls (C26)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from kipu.errors import InputError
from kipu.ports.memory import KINDS, SCOPES
from kipu.ports.principal import Principal


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """Say what memory may take in and give back.

    `consolidates` and `recalls` switch the two halves. Only `kinds` are learned, and nothing for a wider scope than
    `widest_scope`. Facts below `min_confidence` are not recalled.
    """

    consolidates: bool = True
    recalls: bool = True
    kinds: tuple[str, ...] = KINDS
    widest_scope: str = "tenant"
    min_confidence: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return every setting."""
        return {**asdict(self), "kinds": list(self.kinds)}

    @classmethod
    def from_json(cls, data: Any) -> MemoryPolicy:
        """Return the policy of an object that names some of the settings. Raises: InputError (an unknown name, a wrong value)."""
        if not isinstance(data, Mapping):
            raise InputError(reason="a memory policy is an object of settings")
        known = [each.name for each in fields(cls)]
        unknown = sorted(str(name) for name in data if name not in known)
        if unknown:
            raise InputError(reason=f"a memory policy has no {unknown[0]!r}; it has {', '.join(known)}")
        for name, value in data.items():
            if not _fits(name, value):
                raise InputError(reason=f"the memory policy's {name} cannot be {value!r:.80}")
        return cls(**{**data, **({"kinds": tuple(data["kinds"])} if "kinds" in data else {})})


def _fits(name: str, value: Any) -> bool:
    if name in ("consolidates", "recalls"):
        return isinstance(value, bool)
    if name == "kinds":
        return isinstance(value, list | tuple) and all(kind in KINDS for kind in value)
    if name == "widest_scope":
        return value in SCOPES
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


class MemoryPolicySource(Protocol):
    """Tell the memory policy in force; the default where nobody approved one."""

    async def memory_policy(self, owner: Principal, *, project: str | None) -> MemoryPolicy:
        """Return the policy of this person's sessions in `project` (None: in none), the narrower scope counting first."""
        ...
