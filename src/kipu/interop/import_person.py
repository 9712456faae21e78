"""Bringing back what `export_person` wrote: checked as a whole first, then session by session, and the same when done twice."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from kipu.errors import InputError
from kipu.interop.import_events import import_events
from kipu.interop.person_archive import EVENTS, MEMORY, PersonArchive, session_path
from kipu.interop.report import ImportReport
from kipu.manager.manager import SessionManager
from kipu.memory.fact_text import entry_of
from kipu.ports.memory import KINDS, SCOPES, STATUSES, Fact, MemoryStore, Source, Space
from kipu.ports.principal import Principal

_MOST_FACT_BYTES = 64 << 10
_IMPORTED = "imported"


@dataclass(frozen=True, slots=True)
class PersonImport:
    """What an import of an archive did. `ids` maps each session of the archive to where it is now."""

    source: str
    sessions: int
    added: int  # events that were not in the store before
    facts: int
    ids: Mapping[str, str]
    reports: tuple[ImportReport, ...]
    refused_facts: int = 0


async def import_person(
    manager: SessionManager,
    source: Path,
    *,
    memory: MemoryStore | None = None,
    as_new: bool = False,
    max_bytes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    principal: Principal | None = None,
) -> PersonImport:
    """Import an archive of a person for `principal`, whose everything in it becomes (B58).

    Every file is read and compared with the manifest before anything is written. Sessions keep their ids where these are
    free; importing twice adds nothing. Nothing that came with it acts: see `import_events`. Facts are screened like all that
    enters memory, and wait for a person where anything is found. Work files stand in a temporary folder of their own.
    Raises: PersonArchiveError, StoreError, OSError. Nothing was written then but whole sessions.
    """
    caller = principal or manager.principal
    archive = PersonArchive(source, max_bytes=max_bytes)
    try:
        archive.verify()
        work = _Import(manager, archive, caller=caller, as_new=as_new)
        sessions = [each for each in archive.sessions() if not each.get("is_kipus_own")]
        for number, session in enumerate(sessions, 1):
            await work.session(str(session["session_id"]))
            if progress is not None:
                progress(number, len(sessions))
        if memory is not None and MEMORY in archive.files:
            await work.memory(memory)
        return PersonImport(
            str(source),
            len(sessions),
            sum(report.added for report in work.reports),
            work.facts,
            dict(work.ids),
            tuple(work.reports),
            work.refused,
        )
    finally:
        archive.close()


class _Import:
    def __init__(self, manager: SessionManager, archive: PersonArchive, *, caller: Principal, as_new: bool) -> None:
        self._manager = manager
        self._archive = archive
        self._caller = caller
        self._as_new = as_new
        self.ids: dict[str, str] = {}
        self.reports: list[ImportReport] = []
        self.facts = self.refused = 0

    async def session(self, session_id: str) -> None:
        """Unpack one session into a folder of its own and import it from there."""
        folder = Path(tempfile.mkdtemp(prefix="kipu-import-"))
        try:
            events, blobs = folder / f"{session_id}.jsonl", folder / "blobs"
            self._archive.extract(session_path(session_id, EVENTS), events)
            blobs.mkdir()
            for digest in self._archive.blobs_of(session_id):
                self._archive.extract(session_path(session_id, f"blobs/{digest}"), blobs / digest)
            source = self._archive.path
            report = await import_events(
                self._manager,
                events,
                as_new=self._as_new,
                quarantine=source.with_name(f"{source.name}.{session_id}.quarantine.jsonl"),
                blobs=blobs,
                principal=self._caller,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.reports.append(report)
        for made in report.sessions:
            self.ids.setdefault(made.source_session_id, made.session_id)

    async def memory(self, memory: MemoryStore) -> None:
        """Keep every fact, as one of the caller, learned in the sessions as they are now."""
        for line in _lines(self._archive, MEMORY):
            fact = self._fact(line)
            if fact is None:
                self.refused += 1
                continue
            with suppress(InputError):  # nothing is left of its text
                await memory.put(entry_of(fact))
                self.facts += 1

    def _fact(self, line: bytes) -> Fact | None:
        try:
            data = orjson.loads(line)
            space = Space(*data["space"]) if isinstance(data["space"], list) else Space(**data["space"])
            sources = tuple(Source(self._now(str(each[0])), int(each[1])) for each in data["sources"])
            fact = Fact(**{**data, "space": space, "sources": sources, "findings": tuple(data["findings"])})
        except (orjson.JSONDecodeError, LookupError, TypeError, ValueError):
            return None
        texts = (fact.fact_id, fact.text, fact.created_at, space.subject)
        if not all(isinstance(text, str) for text in texts) or not isinstance(fact.confidence, int | float):
            return None
        if fact.kind not in KINDS or space.scope not in SCOPES or fact.status not in STATUSES:
            return None
        return replace(fact, space=self._space(space), findings=fact.findings or self._doubts(space))

    def _doubts(self, space: Space) -> tuple[str, ...]:
        """Return what a fact is kept back for: one that is for a whole tenant was never the importer's to give."""
        return (_IMPORTED,) if space.scope == "tenant" else ()

    def _space(self, space: Space) -> Space:
        subject = space.subject
        if space.scope == "session":
            subject = self._now(subject)
        elif space.scope == "user":
            subject = self._caller.id
        return Space(self._caller.tenant, self._caller.id, space.scope, subject)

    def _now(self, session_id: str) -> str:
        return self.ids.get(session_id, session_id)


def _lines(archive: PersonArchive, name: str) -> Any:
    """Yield the lines of an entry; one that is too long for a fact is passed over."""
    rest = b""
    for block in archive.blocks(name):
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        if len(rest) > _MOST_FACT_BYTES:
            rest = b""
    if rest:
        yield rest
