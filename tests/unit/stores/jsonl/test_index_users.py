"""The index's connection is used by one thread at a time, whoever else wants to know something meanwhile (JL-18, A41)."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kipu.errors import StoreUnavailableError
from kipu.ports.store import Phrase, SearchQuery, SessionQuery
from kipu.stores.jsonl.index import Index
from kipu.stores.jsonl.shelf import OPEN_LOGS
from tests.unit.stores.jsonl.kit import begin, fill, opened, texts


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Give the list of transactions during which another thread used the very same connection."""
    inside: dict[int, int] = {}
    trespasses: list[str] = []
    transaction, sql, entry = Index.transaction, Index.sql, Index.entry

    @contextmanager
    def watched_transaction(self: Index) -> Iterator[None]:
        inside[id(self)] = threading.get_ident()
        try:
            with transaction(self):
                yield
        finally:
            del inside[id(self)]

    def noted(self: Index, what: str) -> None:
        if inside.get(id(self), threading.get_ident()) != threading.get_ident():
            trespasses.append(what)

    def watched_entry(self: Index, session_id: str) -> object:
        noted(self, f"entry {session_id}")
        return entry(self, session_id)

    def watched_sql(self: Index, statement: str, bindings: tuple[object, ...] = ()) -> object:
        noted(self, statement)
        return sql(self, statement, bindings)

    monkeypatch.setattr(Index, "transaction", watched_transaction)
    monkeypatch.setattr(Index, "entry", watched_entry)
    monkeypatch.setattr(Index, "sql", watched_sql)
    yield trespasses


async def test_a_log_is_opened_while_another_thread_writes_to_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opens a log asks what the index knows of it over another connection than that of who writes to it (JL-18, A41)."""
    async with opened(tmp_path) as store:
        await begin(store, "one")
        await begin(store, "two")
        await fill(store, 3, "two")
        await store.list(SessionQuery())
    entered, go_on = threading.Event(), threading.Event()
    async with opened(tmp_path) as store:
        await store.list(SessionQuery())
        with watched(monkeypatch) as trespasses:
            put = Index.put_indexed

            def slow_put(self: Index, session_id: str, seq: int) -> int | None:
                entered.set()
                go_on.wait(60)
                return put(self, session_id, seq)

            monkeypatch.setattr(Index, "put_indexed", slow_put)
            indexing = asyncio.ensure_future(store.index([], indexed={"one": 1}))
            await asyncio.to_thread(entered.wait, 60)
            assert await texts(store, "two") == ["begin", "1", "2", "3"]
            go_on.set()
            await indexing
        assert trespasses == []


async def test_many_logs_are_opened_and_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More sessions than are kept open are read, listed, indexed and appended to together, and no statement meets another's (A41)."""
    names = [f"s{number}" for number in range(OPEN_LOGS + 40)]
    async with opened(tmp_path) as store:
        for name in names:
            await begin(store, name)
    with watched(monkeypatch) as trespasses:
        async with opened(tmp_path) as store:

            async def use(name: str) -> None:
                for _ in range(3):
                    await fill(store, 1, name)
                    await store.index([], indexed={name: 1})
                    await store.list(SessionQuery())
                    await texts(store, name)

            await asyncio.gather(*map(use, names))
            assert [len(await texts(store, name)) for name in names] == [4] * len(names)
    assert trespasses == []


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no file inside the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(name) for name in os.listdir("/proc/self/fd")) + 2, limits[1]))
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="what is open cannot be seen here")
async def test_who_asks_while_no_file_can_be_opened_hears_of_it(tmp_path: Path) -> None:
    """A question for which the index must be opened is refused; it does not try for as long as there is no handle left (B25, A41)."""
    query = SearchQuery((Phrase(("begin",)),))
    async with opened(tmp_path) as store:
        await begin(store, "one")
        await asyncio.to_thread(threading.get_ident)
        with no_more_files(), pytest.raises(StoreUnavailableError):
            await asyncio.wait_for(store.search(query), 60)
        assert (await store.search(query)).items == ()
