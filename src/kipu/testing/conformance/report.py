"""What a run of the suite found, requirement by requirement."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from kipu.testing.conformance.requirement import Requirement


class Outcome(StrEnum):
    """What became of one requirement."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_SUPPORTED = "not supported"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the matrix."""

    requirement: Requirement
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, object]:
        """Return the row as plain data."""
        return {
            "id": self.requirement.id,
            "topic": self.requirement.topic,
            "requirement": self.requirement.sentence,
            "promises": list(self.requirement.promises),
            "outcome": self.outcome.value,
            "detail": self.detail,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """Every row, in the order of the numbers."""

    store: str
    findings: tuple[Finding, ...]

    @property
    def conforms(self) -> bool:
        """Return True when nothing failed."""
        return all(finding.outcome is not Outcome.FAILED for finding in self.findings)

    def counts(self) -> dict[str, int]:
        """Return how many passed, failed and do not apply."""
        found = Counter(finding.outcome for finding in self.findings)
        return {outcome.value: found[outcome] for outcome in Outcome}

    def to_json(self) -> dict[str, object]:
        """Return the report as plain data."""
        return {
            "store": self.store,
            "conforms": self.conforms,
            "counts": self.counts(),
            "findings": [finding.to_json() for finding in self.findings],
        }

    def to_text(self) -> str:
        """Return the matrix as lines for a terminal without colours."""
        lines = [f"{self.store}: " + ", ".join(f"{count} {name}" for name, count in self.counts().items())]
        for finding in self.findings:
            promises = ",".join(finding.requirement.promises)
            lines.append(
                f"{finding.outcome.value:13} {finding.requirement.id:7} {finding.requirement.sentence} ({promises})"
            )
            if finding.detail:
                lines.append(f"{'':13} {'':7} → {finding.detail}")
        return "\n".join(lines)
