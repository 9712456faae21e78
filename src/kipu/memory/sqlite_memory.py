"""Memory in one SQLite file beside the store, or in this process's own memory (contract: `ports.memory.MemoryStore`)."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw
import orjson

from kipu.errors import FactNotFoundError
from kipu.memory import fact_rows, learning
from kipu.memory.fact_database import FactDatabase
from kipu.ports.memory import (
    Candidate,
    Fact,
    FactEntry,
    FactPage,
    FactQuery,
    KeptFact,
    LogStep,
    Progress,
    Space,
)

T = TypeVar("T")
_NOTHING: tuple[int, dict[str, int]] = (0, {})


class SqliteMemory:
    """Keep facts durably for any number of processes. The file is made with the first of them."""

    def __init__(self, path: Path | None, *, is_sealed: bool = False) -> None:
        self._database = FactDatabase(path, is_sealed=is_sealed)
        self.place = self._database.place

    # ---- following the logs ----------------------------------------------------------------------------------------

    async def follow_log(self, step: LogStep) -> bool:
        """Take in one step, once."""

        def work(connection: apsw.Connection) -> bool:
            if step.progress.seq <= _progress(connection, step.session_id).seq:
                return False
            for entry in step.learned:
                learning.learn(connection, entry)
            if step.undone is not None:
                learning.undo(connection, step.session_id, undone=step.undone)
            connection.execute("INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)", (step.session_id, *step.progress))
            return True

        return await self._database.write(work)

    async def progress(self, session_id: str) -> Progress:
        """Return how far memory has followed the session."""
        return await self._database.read(lambda connection: _progress(connection, session_id), empty=Progress())

    async def announce(self, session_id: str, token: int) -> None:
        """Note that an event comes that memory has to follow."""
        await self._run("INSERT OR IGNORE INTO announced VALUES (?, ?)", session_id, token)

    async def announced(self) -> builtins.list[tuple[str, int]]:
        """Return what was announced and not settled."""

        def work(connection: apsw.Connection) -> list[tuple[str, int]]:
            rows = connection.execute("SELECT session_id, token FROM announced ORDER BY session_id, token")
            return [(str(session_id), int(str(token))) for session_id, token in rows.fetchall()]

        return await self._database.read(work, empty=[])

    async def settle(self, session_id: str, token: int) -> None:
        """Take an announcement back."""
        await self._run("DELETE FROM announced WHERE session_id = ? AND token = ?", session_id, token)

    async def _run(self, sql: str, *values: str | int) -> None:
        await self._database.write(lambda connection: connection.execute(sql, values).fetchall())

    # ---- facts -----------------------------------------------------------------------------------------------------

    async def put(self, entry: FactEntry) -> Fact:
        """Keep a fact, and return what it is found as."""

        def work(connection: apsw.Connection) -> Fact:
            return _required(connection, learning.learn(connection, entry))

        return await self._database.write(work)

    async def replace(self, old_id: str, entry: FactEntry) -> Fact:
        """Let a person's version supersede an older one."""

        def work(connection: apsw.Connection) -> Fact:
            old = _required(connection, old_id)
            sql = "UPDATE facts SET status = 'superseded', reason = 'edited', superseded_by = ? WHERE fact_id = ?"
            connection.execute(sql, (entry.fact.fact_id, old.fact_id))
            kept = _required(connection, learning.learn(connection, entry))
            connection.execute(sql, (kept.fact_id, old.fact_id))
            return kept

        return await self._database.write(work)

    async def accept(self, fact_id: str) -> Fact:
        """Make a quarantined fact active, in the place of what stood in its slot."""

        def work(connection: apsw.Connection) -> Fact:
            fact = _required(connection, fact_id)
            if fact.status == "quarantined":
                connection.execute("UPDATE facts SET status = 'active' WHERE fact_id = ?", (fact.fact_id,))
                learning.supersede(connection, FactEntry(replace(fact, origin="person"), (), ""))
            return _required(connection, fact.fact_id)

        return await self._database.write(work)

    async def flag(self, fact_id: str, finding: str) -> Fact:
        """Quarantine an active fact."""

        def work(connection: apsw.Connection) -> Fact:
            fact = _required(connection, fact_id)
            if fact.status == "active":
                findings = orjson.dumps([*dict.fromkeys((*fact.findings, finding))]).decode()
                sql = "UPDATE facts SET status = 'quarantined', findings = ? WHERE fact_id = ?"
                connection.execute(sql, (findings, fact.fact_id))
            return _required(connection, fact.fact_id)

        return await self._database.write(work)

    async def fact(self, fact_id: str) -> Fact | None:
        """Return a fact by its id or alias."""
        return await self._database.read(lambda connection: fact_rows.by_id(connection, fact_id), empty=None)

    async def facts(self, query: FactQuery) -> FactPage:
        """Return a page of facts."""
        nothing: list[Fact] = []
        found = await self._database.read(lambda connection: fact_rows.page(connection, query), empty=nothing)
        items = tuple(found[: query.limit])
        return FactPage(items, f"{items[-1].created_at} {items[-1].fact_id}" if len(found) > len(items) else None)

    async def candidates(
        self, spaces: Sequence[Space], terms: Iterable[str], *, limit: int
    ) -> builtins.list[Candidate]:
        """Return active facts that hold any of the terms."""
        wanted = sorted(set(terms))
        work = partial(fact_rows.candidates, spaces=spaces, terms=wanted, limit=limit)
        return await self._database.read(work, empty=[])

    async def frequencies(self, spaces: Sequence[Space], terms: Iterable[str]) -> tuple[int, dict[str, int]]:
        """Return how common the terms are."""
        work = partial(fact_rows.frequencies, spaces=spaces, terms=sorted(set(terms)))
        return await self._database.read(work, empty=_NOTHING)

    async def used(self, fact_ids: Sequence[str], *, at: str) -> None:
        """Count that the facts were shown."""

        def work(connection: apsw.Connection) -> None:
            connection.executemany(
                "UPDATE facts SET uses = uses + 1, used_at = max(coalesce(used_at, ''), ?) WHERE fact_id = ?",
                ((at, fact_id) for fact_id in fact_ids),
            )

        await self._database.write(work)

    # ---- moving ----------------------------------------------------------------------------------------------------

    async def kept(self, *, after: str = "", limit: int = 200) -> builtins.list[KeptFact]:
        """Return facts by their ids with all there is to them, but terms."""
        nothing: list[KeptFact] = []
        return await self._database.read(partial(fact_rows.kept, after=after, limit=limit), empty=nothing)

    async def followed(self) -> builtins.list[tuple[str, Progress]]:
        """Return how far memory has followed each session."""

        def work(connection: apsw.Connection) -> list[tuple[str, Progress]]:
            rows = connection.execute("SELECT session_id, seq, consolidated_seq, rewind_seq FROM progress")
            return [(str(row[0]), Progress(*(int(str(value)) for value in row[1:]))) for row in rows.fetchall()]

        return await self._database.read(work, empty=[])

    async def restore(self, facts: Sequence[KeptFact], followed: Sequence[tuple[str, Progress]]) -> None:
        """Keep what another memory kept."""

        def work(connection: apsw.Connection) -> None:
            for found in facts:
                fact_rows.restore(connection, found)
            connection.executemany(
                "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)",
                ((session_id, *progress) for session_id, progress in followed),
            )

        await self._database.write(work)

    # ---- forgetting ------------------------------------------------------------------------------------------------

    async def forget(self, fact_id: str) -> bool:
        """Remove every byte of a fact, and of the versions that a person's edits of it left behind."""

        def work(connection: apsw.Connection) -> bool:
            fact = fact_rows.by_id(connection, fact_id)
            if fact is None:
                return False
            edited = "SELECT fact_id FROM facts WHERE superseded_by = ? AND reason = 'edited'"
            gone = [fact.fact_id]
            for each in gone:
                gone += [str(row[0]) for row in connection.execute(edited, (each,)).fetchall()]
            for each in gone:
                fact_rows.remove(connection, each)
            return True

        return await self._forgetting(work, nothing=False)

    async def forget_session(self, session_id: str) -> int:
        """Remove the facts whose only source is the session, and every other mention of it."""

        def work(connection: apsw.Connection) -> int:
            gone = learning.forget_sources(connection, session_id)
            for fact_id in gone:
                fact_rows.remove(connection, fact_id)
            for table in ("progress", "announced"):
                connection.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
            return len(gone)

        return await self._forgetting(work, nothing=0)

    async def forget_person(self, tenant: str, owner: str) -> int:
        """Remove every fact of the person."""

        def work(connection: apsw.Connection) -> int:
            sql = "SELECT fact_id FROM facts WHERE tenant = ? AND owner = ?"
            gone = [str(row[0]) for row in connection.execute(sql, (tenant, owner)).fetchall()]
            for fact_id in gone:
                fact_rows.remove(connection, fact_id)
            return len(gone)

        return await self._forgetting(work, nothing=0)

    async def _forgetting(self, work: Callable[[apsw.Connection], T], *, nothing: T) -> T:
        """Do the work where there is a file; forgetting makes none."""
        is_there = await self._database.read(lambda _connection: True, empty=False)
        return await self._database.forget(work) if is_there else nothing

    async def close(self) -> None:
        """Close the file."""
        await self._database.close()


def _progress(connection: apsw.Connection, session_id: str) -> Progress:
    sql = "SELECT seq, consolidated_seq, rewind_seq FROM progress WHERE session_id = ?"
    row = connection.execute(sql, (session_id,)).fetchone()
    return Progress() if row is None else Progress(*(int(str(value)) for value in row))


def _required(connection: apsw.Connection, fact_id: str) -> Fact:
    fact = fact_rows.by_id(connection, fact_id)
    if fact is None:
        raise FactNotFoundError(fact_id=fact_id)
    return fact
