"""What an import did, accounted record by record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """One session of the source and where it is now."""

    session_id: str
    source_session_id: str
    events: int  # events of the source that it holds
    added: int  # of these, added by this import


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """A record that could not be imported as what it is: kept as a note, or in quarantine."""

    offset: int
    length: int
    kind: str  # raw, quarantined
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The account of an import: records = imported + raw + quarantined."""

    source: str
    digest: str  # SHA-256 of the source's bytes
    records: int
    imported: int  # events in the store now, those that were there before included
    raw: int  # kept as `note` events with their text
    quarantined: int  # kept in the quarantine file, with offset and reason
    added: int  # events that were not in the store before
    sessions: tuple[ImportedSession, ...]
    problems: tuple[ImportProblem, ...]  # the first hundred
    quarantine: Path | None  # the file, if anything is in it
