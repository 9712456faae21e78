"""The contract of a memory (`ports.memory.MemoryStore`) over tables of facts, whichever database has them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import orjson

from kipu.errors import FactNotFoundError
from kipu.memory import fact_rows, learning
from kipu.memory.statements import Hold, Statement, Steps, hold_all, places
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
Work = Callable[[], Steps[T]]
_NOTHING: tuple[int, dict[str, int]] = (0, {})


class FactTables(Protocol):
    """Run work on tables of facts, each piece as one transaction that is durable when it is done.

    Contract: work may be begun anew where nothing of it has happened, or where doing it twice is as good as once.
    """

    @property
    def place(self) -> str:
        """Return what messages call the tables."""
        ...

    async def read(self, work: Work[T], *, empty: T) -> T:
        """Return what `work` finds in one state of the tables, `empty` where nothing was ever kept."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Do `work`, whole or not at all."""
        ...

    async def forget(self, work: Work[T], *, nothing: T) -> T:
        """Do `work`, and what the database can do against copies of removed rows; `nothing` where nothing was ever kept."""
        ...

    async def close(self) -> None:
        """Close the tables. Closing twice is harmless."""
        ...


class TabledMemory:
    """Keep facts durably for any number of processes."""

    def __init__(self, tables: FactTables) -> None:
        self._tables = tables
        self.place = tables.place

    # ---- following the logs ----------------------------------------------------------------------------------------

    async def follow_log(self, step: LogStep) -> bool:
        """Take in one step, once."""
        return await self._tables.write(lambda: _follow(step))

    async def progress(self, session_id: str) -> Progress:
        """Return how far memory has followed the session."""
        return await self._tables.read(lambda: _progress(session_id), empty=Progress())

    async def announce(self, session_id: str, token: int) -> None:
        """Note that an event comes that memory has to follow."""
        sql = "INSERT INTO @announced (session_id, token) VALUES (?, ?) ON CONFLICT DO NOTHING"
        await self._tables.write(lambda: _run(sql, session_id, token))

    async def announced(self) -> builtins.list[tuple[str, int]]:
        """Return what was announced and not settled."""

        def work() -> Steps[list[tuple[str, int]]]:
            rows = yield Statement("SELECT session_id, token FROM @announced ORDER BY session_id, token")
            return [(session_id, int(token)) for session_id, token in rows]

        return await self._tables.read(work, empty=[])

    async def settle(self, session_id: str, token: int) -> None:
        """Take an announcement back."""
        sql = "DELETE FROM @announced WHERE session_id = ? AND token = ?"
        await self._tables.write(lambda: _run(sql, session_id, token))

    # ---- facts -----------------------------------------------------------------------------------------------------

    async def put(self, entry: FactEntry) -> Fact:
        """Keep a fact, and return what it is found as."""

        def work() -> Steps[Fact]:
            yield Hold(*entry.fact.space[:2])
            return (yield from _required((yield from learning.learn(entry))))

        return await self._tables.write(work)

    async def replace(self, old_id: str, entry: FactEntry) -> Fact:
        """Let a person's version supersede an older one."""

        def work() -> Steps[Fact]:
            old = yield from _held(old_id)
            yield Hold(*entry.fact.space[:2])
            sql = "UPDATE @facts SET status = 'superseded', reason = 'edited', superseded_by = ? WHERE fact_id = ?"
            yield Statement(sql, (entry.fact.fact_id, old.fact_id))
            kept = yield from _required((yield from learning.learn(entry)))
            yield Statement(sql, (kept.fact_id, old.fact_id))
            return kept

        return await self._tables.write(work)

    async def accept(self, fact_id: str) -> Fact:
        """Make a quarantined fact active, in the place of what stood in its slot."""

        def work() -> Steps[Fact]:
            fact = yield from _held(fact_id)
            if fact.status == "quarantined":
                yield Statement("UPDATE @facts SET status = 'active' WHERE fact_id = ?", (fact.fact_id,))
                yield from learning.supersede(FactEntry(replace(fact, origin="person"), (), ""))
            return (yield from _required(fact.fact_id))

        return await self._tables.write(work)

    async def flag(self, fact_id: str, finding: str) -> Fact:
        """Quarantine an active fact."""

        def work() -> Steps[Fact]:
            fact = yield from _held(fact_id)
            if fact.status == "active":
                findings = orjson.dumps([*dict.fromkeys((*fact.findings, finding))]).decode()
                sql = "UPDATE @facts SET status = 'quarantined', findings = ? WHERE fact_id = ?"
                yield Statement(sql, (findings, fact.fact_id))
            return (yield from _required(fact.fact_id))

        return await self._tables.write(work)

    async def fact(self, fact_id: str) -> Fact | None:
        """Return a fact by its id or alias."""
        return await self._tables.read(lambda: fact_rows.by_id(fact_id), empty=None)

    async def facts(self, query: FactQuery) -> FactPage:
        """Return a page of facts."""
        nothing: list[Fact] = []
        found = await self._tables.read(lambda: fact_rows.page(query), empty=nothing)
        items = tuple(found[: query.limit])
        return FactPage(items, f"{items[-1].created_at} {items[-1].fact_id}" if len(found) > len(items) else None)

    async def candidates(
        self, spaces: Sequence[Space], terms: Iterable[str], *, limit: int
    ) -> builtins.list[Candidate]:
        """Return active facts that hold any of the terms."""
        wanted = sorted(set(terms))
        return await self._tables.read(lambda: fact_rows.candidates(spaces, terms=wanted, limit=limit), empty=[])

    async def frequencies(self, spaces: Sequence[Space], terms: Iterable[str]) -> tuple[int, dict[str, int]]:
        """Return how common the terms are."""
        wanted = sorted(set(terms))
        return await self._tables.read(lambda: fact_rows.frequencies(spaces, terms=wanted), empty=_NOTHING)

    async def used(self, fact_ids: Sequence[str], *, at: str) -> None:
        """Count that the facts were shown."""
        ids = sorted(set(fact_ids))
        sql = f"""UPDATE @facts SET uses = uses + 1,
            used_at = CASE WHEN coalesce(used_at, '') < ? THEN ? ELSE used_at END WHERE fact_id IN ({places(ids)})"""
        if ids:
            await self._tables.write(lambda: _run(sql, at, at, *ids))

    # ---- moving ----------------------------------------------------------------------------------------------------

    async def kept(self, *, after: str = "", limit: int = 200) -> builtins.list[KeptFact]:
        """Return facts by their ids with all there is to them, but terms."""
        nothing: list[KeptFact] = []
        return await self._tables.read(lambda: fact_rows.kept(after=after, limit=limit), empty=nothing)

    async def followed(self) -> builtins.list[tuple[str, Progress]]:
        """Return how far memory has followed each session."""

        def work() -> Steps[list[tuple[str, Progress]]]:
            rows = yield Statement("SELECT session_id, seq, consolidated_seq, rewind_seq FROM @progress")
            return [(row[0], Progress(*map(int, row[1:]))) for row in rows]

        return await self._tables.read(work, empty=[])

    async def restore(self, facts: Sequence[KeptFact], followed: Sequence[tuple[str, Progress]]) -> None:
        """Keep what another memory kept."""

        def work() -> Steps[None]:
            yield from hold_all({found.entry.fact.space[:2] for found in facts})
            for found in facts:
                yield from fact_rows.restore(found)
            for session_id, progress in followed:
                yield from _reach(session_id, progress)

        await self._tables.write(work)

    # ---- forgetting ------------------------------------------------------------------------------------------------

    async def forget(self, fact_id: str) -> bool:
        """Remove every byte of a fact, and of the versions that a person's edits of it left behind."""

        def work() -> Steps[bool]:
            fact = yield from fact_rows.by_id(fact_id)
            if fact is None:
                return False
            fact = yield from _held(fact_id)
            edited = "SELECT fact_id FROM @facts WHERE superseded_by = ? AND reason = 'edited'"
            gone = [fact.fact_id]
            for each in gone:
                rows = yield Statement(edited, (each,))
                gone += [row[0] for row in rows]
            for each in gone:
                yield from fact_rows.remove(each)
            return True

        try:
            return await self._tables.forget(work, nothing=False)
        except FactNotFoundError:  # somebody else forgot it at the same moment
            return False

    async def forget_session(self, session_id: str) -> int:
        """Remove the facts whose only source is the session, and every other mention of it."""

        def work() -> Steps[int]:
            for table in ("progress", "announced"):
                yield Statement(f"DELETE FROM @{table} WHERE session_id = ?", (session_id,))
            gone = yield from learning.forget_sources(session_id)
            for fact_id in gone:
                yield from fact_rows.remove(fact_id)
            return len(gone)

        return await self._tables.forget(work, nothing=0)

    async def forget_person(self, tenant: str, owner: str) -> int:
        """Remove every fact of the person."""

        def work() -> Steps[int]:
            yield Hold(tenant, owner)
            rows = yield Statement("SELECT fact_id FROM @facts WHERE tenant = ? AND owner = ?", (tenant, owner))
            for (fact_id,) in rows:
                yield from fact_rows.remove(fact_id)
            yield Hold(tenant, owner, is_over=True)
            return len(rows)

        return await self._tables.forget(work, nothing=0)

    async def close(self) -> None:
        """Close the tables."""
        await self._tables.close()


def _run(sql: str, *values: str | int) -> Steps[None]:
    yield Statement(sql, values)


def _follow(step: LogStep) -> Steps[bool]:
    """Take in a step that memory has not passed. Of several who try at once, the progress lets one go on."""
    if step.progress.seq <= 0 or not (yield from _reach(step.session_id, step.progress, is_first_only=True)):
        return False
    yield from hold_all({entry.fact.space[:2] for entry in step.learned})
    for entry in step.learned:
        yield from learning.learn(entry)
    if step.undone is not None:
        yield from learning.undo(step.session_id, step.undone)
    return True


def _reach(session_id: str, progress: Progress, *, is_first_only: bool = False) -> Steps[bool]:
    """Say how far the log is followed; with `is_first_only` only where it was not so far before, and say whether so."""
    sql = """INSERT INTO @progress AS p (session_id, seq, consolidated_seq, rewind_seq) VALUES (?, ?, ?, ?)
        ON CONFLICT (session_id) DO UPDATE SET
        seq = excluded.seq, consolidated_seq = excluded.consolidated_seq, rewind_seq = excluded.rewind_seq"""
    sql += f"{' WHERE p.seq < excluded.seq' if is_first_only else ''} RETURNING session_id"
    rows = yield Statement(sql, (session_id, *progress))
    return bool(rows)


def _progress(session_id: str) -> Steps[Progress]:
    sql = "SELECT seq, consolidated_seq, rewind_seq FROM @progress WHERE session_id = ?"
    rows = yield Statement(sql, (session_id,))
    return Progress(*map(int, rows[0])) if rows else Progress()


def _required(fact_id: str) -> Steps[Fact]:
    fact = yield from fact_rows.by_id(fact_id)
    if fact is None:
        raise FactNotFoundError(fact_id=fact_id)
    return fact


def _held(fact_id: str) -> Steps[Fact]:
    """Return a fact that nobody else changes from here on."""
    fact = yield from _required(fact_id)
    yield Hold(*fact.space[:2])
    return (yield from _required(fact_id))
