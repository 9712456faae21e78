"""What was replaced, and where; never the secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """So many secrets of one rule in one text. `sealed` holds them in order where a vault key is configured."""

    path: str
    rule: str
    count: int = 1
    sealed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as it is kept in the event's `normalised` field."""
        kept: dict[str, Any] = {"path": self.path or "/", "kind": "redacted", "rule": self.rule, "count": self.count}
        return {**kept, "sealed": list(self.sealed)} if self.sealed else kept


@dataclass(frozen=True, slots=True)
class Redacted:
    """A value without its secrets, and what was replaced in it. The same object where there was nothing."""

    value: Any
    findings: tuple[Finding, ...] = ()

    @property
    def count(self) -> int:
        """Return how many secrets there were."""
        return sum(finding.count for finding in self.findings)
