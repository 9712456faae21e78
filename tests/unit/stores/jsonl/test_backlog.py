"""Index rows are put off while nobody could miss them, and whoever could miss one gets it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from kipu.errors import StoreUnavailableError
from kipu.ports.store import IndexEntry, Phrase, SearchQuery, SessionQuery
from kipu.stores.host import SystemLiveness
from kipu.stores.jsonl import JsonlStore
from tests.unit.stores.jsonl.kit import begin, fill, opened, record


def _indexed_seqs(folder: Path) -> dict[str, int]:
    """Return what the index itself says, asked beside every store."""
    connection = apsw.Connection(str(folder / "store" / "index.sqlite"))
    rows = connection.execute("SELECT session_id, json_extract(data, '$.last_seq') FROM heads").fetchall()
    connection.close()
    return {str(session_id): int(str(seq)) for session_id, seq in rows}


async def _listed(store: JsonlStore) -> dict[str, int]:
    return {head.session_id: head.last_seq for head in (await store.list(SessionQuery())).items}


async def test_a_store_that_is_alone_puts_rows_off_and_lists_them_all_the_same(tmp_path: Path) -> None:
    """Appends of the only writer are not in the index at once, and are in every list that it gives (JL-18)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await fill(store, 5)
        assert _indexed_seqs(tmp_path) == {}
        assert await _listed(store) == {"one": 6}
        assert _indexed_seqs(tmp_path) == {"one": 6}
        await fill(store, 1)
        assert await _listed(store) == {"one": 7}


async def test_rows_that_were_put_off_are_written_soon_and_on_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is written without anybody asking for it, and before the store is closed (JL-18)."""
    async with opened(tmp_path) as store:
        with monkeypatch.context() as at_once:
            at_once.setattr("kipu.stores.jsonl.store.WRITE_AFTER_S", 0)
            await begin(store)
            await asyncio.sleep(0.001)
        assert _indexed_seqs(tmp_path) == {"one": 1}
        await fill(store, 2)
        assert _indexed_seqs(tmp_path) == {"one": 1}
    assert _indexed_seqs(tmp_path) == {"one": 3}


async def test_rows_are_written_at_once_beside_another_writer(tmp_path: Path) -> None:
    """From the moment another store is open, an append is in the index when it returns, and in the other's lists (JL-18, JL-19)."""
    async with opened(tmp_path) as store:
        await begin(store)
        async with opened(tmp_path) as other:
            assert await _listed(other) == {"one": 1}
            await fill(store, 1)
            assert _indexed_seqs(tmp_path) == {"one": 2}
            assert await _listed(other) == {"one": 2}
        await fill(store, 1)
        assert _indexed_seqs(tmp_path) == {"one": 2}


async def test_a_lease_that_is_put_off_is_listed(tmp_path: Path) -> None:
    """A claim right after an append is in the lists of its store, and of one that is opened later (JL-18, C3)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.claim("one", owner="somebody", ttl_s=60)
        assert [head.lease_owner for head in (await store.list(SessionQuery())).items] == ["somebody"]
        await fill(store, 1)
        await store.claim("one", owner="somebody", ttl_s=60)
        async with opened(tmp_path) as other:
            assert [head.lease_token for head in (await other.list(SessionQuery())).items] == [2]


async def test_many_sessions_do_not_wait_for_their_rows(tmp_path: Path) -> None:
    """No more than 64 sessions wait for their rows: what comes then is written at once, so that a list never waits long (JL-18)."""
    async with opened(tmp_path) as store:
        for number in range(70):
            await begin(store, f"s{number:02d}")
        written = _indexed_seqs(tmp_path)
        assert 6 <= len(written) <= 70
        assert len(await _listed(store)) == 70


async def test_terms_of_a_session_that_waits_for_its_row_are_found(tmp_path: Path) -> None:
    """Terms of an event whose session is not in the index yet are taken in (JL-18, ST-110)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.index([IndexEntry("one", 1, ("hello",))], indexed={"one": 1})
        assert [hit.seq for hit in (await store.search(SearchQuery((Phrase(("hello",)),)))).items] == [1]


async def test_a_follower_of_everything_is_given_nothing_old_by_a_later_store(tmp_path: Path) -> None:
    """Whoever follows everything from a store opened later gets what is appended from then on, and no event from before (ST-133)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await fill(store, 3)
        async with opened(tmp_path) as other:
            events = other.follow()
            await fill(store, 1)
            async with asyncio.timeout(60):
                assert (await anext(events)).seq == 5


async def test_a_follower_of_everything_in_the_store_that_appends_is_given_each_event(tmp_path: Path) -> None:
    """The only writer's own follower of everything gets its appends from when it began to follow (ST-133)."""
    async with opened(tmp_path) as store:
        await begin(store)
        events = store.follow()
        await fill(store, 2)
        async with asyncio.timeout(60):
            assert [(await anext(events)).seq for _ in range(2)] == [2, 3]


_DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from kipu.stores.host import SystemClock, SystemLiveness
from kipu.stores.jsonl import JsonlStore
from tests.unit.stores.jsonl.kit import begin, fill

async def main():
    store = await JsonlStore.open(Path(sys.argv[1]) / "store", clock=SystemClock(), liveness=SystemLiveness())
    await begin(store)
    await fill(store, 4)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_rows_of_a_writer_that_was_killed_are_made_good(tmp_path: Path) -> None:
    """What a killed process had appended and not written to the index is in the lists of whoever comes next (JL-19, C16)."""
    died = subprocess.run(
        [sys.executable, "-c", _DYING, str(tmp_path)], check=False, env={**os.environ, "PYTHONPATH": "."}
    )
    assert died.returncode == -signal.SIGKILL
    assert _indexed_seqs(tmp_path) == {}
    async with opened(tmp_path, liveness=SystemLiveness()) as store:
        assert await _listed(store) == {"one": 5}


async def test_a_row_that_cannot_be_written_later_is_listed_all_the_same(tmp_path: Path) -> None:
    """Where the index refuses the rows that were put off, listing says so, and makes them good once it can (JL-18, B50)."""
    async with opened(tmp_path) as store:
        await begin(store)
        blocker = apsw.Connection(str(tmp_path / "store" / "index.sqlite"))
        blocker.execute("CREATE TRIGGER no_more BEFORE INSERT ON heads BEGIN SELECT RAISE(ABORT, 'no'); END")
        await fill(store, 1)
        with pytest.raises(StoreUnavailableError):
            await store.list(SessionQuery())
        blocker.execute("DROP TRIGGER no_more")
        blocker.close()
        assert await _listed(store) == {"one": 2}


async def test_a_session_that_is_erased_while_it_waits_stays_away(tmp_path: Path) -> None:
    """An erasure right after an append leaves no row behind (JL-24)."""
    async with opened(tmp_path) as store:
        await begin(store)
        lease = await store.claim("one", owner="somebody", ttl_s=60)
        assert lease is not None
        await store.erase("one", lease=lease)
        assert await _listed(store) == {}
    assert _indexed_seqs(tmp_path) == {}


async def test_sessions_of_one_commit_are_synced_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that a commit of many sessions wrote to is synced before its append returns (JL-13)."""
    async with opened(tmp_path) as store:
        names = [f"s{number:02d}" for number in range(11)]
        for name in names:
            await begin(store, name)
        synced: list[int] = []
        real = os.fdatasync

        def counted(fd: int) -> None:
            synced.append(os.fstat(fd).st_ino)
            real(fd)

        monkeypatch.setattr(os, "fdatasync", counted)
        await asyncio.gather(*(store.append(name, [record("x")]) for name in names))
        logs = {(tmp_path / "store" / name / "000001.jsonl").stat().st_ino for name in names}
        assert logs <= set(synced)
