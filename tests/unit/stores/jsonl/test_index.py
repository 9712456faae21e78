"""The index is a cache: whatever becomes of it, the logs are right."""

from __future__ import annotations

import os
import time
from pathlib import Path

import apsw
import pytest

from kipu.ports.head import HeadPatch
from kipu.ports.store import IndexEntry, Outcome, Phrase, SearchQuery, SessionQuery
from kipu.stores.host import this_process_owner
from tests.unit.stores.jsonl.kit import TIME, begin, fill, log_of, opened, record, texts


def _index(folder: Path) -> Path:
    return folder / "store" / "index.sqlite"


async def _made(folder: Path) -> None:
    async with opened(folder) as store:
        for name in ("one", "two"):
            await begin(store, name, title=f"title of {name}")
            await fill(store, 3, name)
        await store.append("two", [record("keyed")], idempotency_key="k", head=HeadPatch(add={"window_seq": 2}))


def _delete(path: Path) -> None:
    path.unlink()


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(50_000))


def _rows_gone(path: Path) -> None:
    _sql(path, "DELETE FROM heads WHERE session_id = 'two'")


def _rows_changed(path: Path) -> None:
    _sql(path, "UPDATE heads SET data = replace(data, 'title of two', 'wrong')")


def _sql(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("spoil", [_delete, _truncate, _empty, _garbage, _rows_gone, _rows_changed])
async def test_index_is_made_anew_from_the_logs(tmp_path: Path, spoil: object) -> None:
    """Heads, lists and keys are the same after the index was deleted, damaged or changed (JL-18, B50, situation 55)."""
    await _made(tmp_path)
    async with opened(tmp_path) as store:
        before = (await store.list(SessionQuery(order="created_at"))).items
    for name in ("index.sqlite-wal", "index.sqlite-shm"):
        (tmp_path / "store" / name).unlink(missing_ok=True)
    assert callable(spoil)
    spoil(_index(tmp_path))
    async with opened(tmp_path) as store:
        assert (await store.list(SessionQuery(order="created_at"))).items == before
        assert [await store.head(head.session_id) for head in before] == list(before)
        again = await store.append("one", [record("other")], idempotency_key="k") if spoil is not _rows_gone else None
        assert again is None or (again.session_id, again.first_seq, again.duplicate) == ("two", 5, True)


@pytest.mark.parametrize("spoil", [_delete, _truncate, _empty, _garbage, _rows_gone, _rows_changed])
async def test_outcomes_are_those_of_the_log_whatever_became_of_the_index(tmp_path: Path, spoil: object) -> None:
    """Which batch stands under which key is read from the log again where the index has lost it (JL-18, ST-220, C4)."""
    await _made(tmp_path)
    for name in ("index.sqlite-wal", "index.sqlite-shm"):
        (tmp_path / "store" / name).unlink(missing_ok=True)
    assert callable(spoil)
    spoil(_index(tmp_path))
    async with opened(tmp_path) as store:
        assert await store.outcomes("two") == [Outcome("k", 5, 5)]
        assert await store.outcomes("one") == []
        again = await store.append("one", [record("other")], idempotency_key="k")
        assert (again.session_id, again.first_seq, again.duplicate) == ("two", 5, True)


async def test_index_deleted_under_an_open_store_is_made_anew(tmp_path: Path) -> None:
    """A store goes on while somebody deletes its index (JL-18)."""
    await _made(tmp_path)
    async with opened(tmp_path) as store:
        assert len((await store.list(SessionQuery())).items) == 2
        for path in (tmp_path / "store").glob("index.sqlite*"):
            path.unlink()
        await fill(store, 1)
        await begin(store, "three")
        listed = {head.session_id: head.last_seq for head in (await store.list(SessionQuery())).items}
        assert listed == {"one": 5, "two": 5, "three": 1}


async def test_index_older_than_the_logs_is_brought_up(tmp_path: Path) -> None:
    """Sessions that came or grew while the index was away are listed as they are (JL-18, situation 55)."""
    await _made(tmp_path)
    old = _index(tmp_path).read_bytes(), (tmp_path / "store" / "index.sqlite-wal").read_bytes()
    async with opened(tmp_path) as store:
        await fill(store, 2, "one")
        await begin(store, "three")
    _index(tmp_path).write_bytes(old[0])
    (tmp_path / "store" / "index.sqlite-wal").write_bytes(old[1])
    (tmp_path / "store" / "index.sqlite-shm").unlink(missing_ok=True)
    async with opened(tmp_path) as store:
        listed = {head.session_id: head.last_seq for head in (await store.list(SessionQuery())).items}
        assert listed == {"one": 6, "two": 5, "three": 1}


async def test_listing_does_not_go_by_the_times_of_files(tmp_path: Path) -> None:
    """After copies and touches the order is that of the events (JL-21, situations 56, 68)."""
    async with opened(tmp_path) as store:
        for number, name in enumerate(["one", "two", "three"]):
            await begin(store, name, last_activity_at=TIME.replace("08:", f"1{number}:"))
    for number, name in enumerate(["three", "one", "two"]):
        os.utime(log_of(tmp_path, name), (number, number))
    async with opened(tmp_path) as store:
        assert [head.session_id for head in (await store.list(SessionQuery())).items] == ["three", "two", "one"]


async def test_dead_writers_key_is_found_where_its_batch_is(tmp_path: Path) -> None:
    """A writer that died after the log and before the index is finished by whoever asks for its key (JL-19, JL-20, C4)."""
    async with opened(tmp_path) as store:
        await begin(store, "one")
        await begin(store, "two")
    _sql(_index(tmp_path), "PRAGMA wal_checkpoint(TRUNCATE)")
    old = _index(tmp_path).read_bytes()
    async with opened(tmp_path) as store:
        await store.append("two", [record("keyed")], idempotency_key="k")
    (tmp_path / "store" / "index.sqlite-wal").write_bytes(b"")
    _index(tmp_path).write_bytes(old)
    _sql(_index(tmp_path), "INSERT INTO pending VALUES ('k', 'two'), ('never', 'two')")
    async with opened(tmp_path) as store:
        again = await store.append("one", [record("x")], idempotency_key="k")
        fresh = await store.append("one", [record("y")], idempotency_key="never")
        assert (again.session_id, again.first_seq, again.duplicate) == ("two", 2, True)
        assert (fresh.session_id, fresh.duplicate) == ("one", False)


async def test_writer_that_died_is_looked_after(tmp_path: Path) -> None:
    """What a dead process left is in the index before the next one lists (JL-19)."""
    from kipu.testing.fakes import FakeLiveness

    await _made(tmp_path)
    dead = this_process_owner("gone")
    _sql(_index(tmp_path), f"INSERT INTO writers VALUES ('{dead}')")
    liveness = FakeLiveness()
    async with opened(tmp_path, liveness=liveness) as store:
        assert {head.session_id for head in (await store.list(SessionQuery())).items} == {"one", "two"}
        with log_of(tmp_path).open("ab") as file:
            lines = log_of(tmp_path).read_bytes().splitlines(keepends=True)
            file.write(_next_line(lines[-1]))
        liveness.kill(dead)
        listed = {head.session_id: head.last_seq for head in (await store.list(SessionQuery())).items}
        assert listed == {"one": 5, "two": 5}


def _next_line(line: bytes) -> bytes:
    """Return the line that a writer would have put behind `line`."""
    import zlib

    body = line[:-17].replace(b'"seq":4', b'"seq":5')
    return body + b',"c":"%08x"}\n' % zlib.crc32(body)


async def test_thousands_of_sessions_are_listed_without_parsing_logs(tmp_path: Path) -> None:
    """A warm list opens no log: it is quick, and works where no log can be opened (JL-19, JL-21, B50, situation 51)."""
    async with opened(tmp_path, durability="os") as store:
        for number in range(300):
            await begin(store, f"s{number:04}")
    async with opened(tmp_path) as store:
        await store.list(SessionQuery())
        began = time.process_time()
        page = await store.list(SessionQuery(limit=300))
        assert len(page.items) == 300
        assert time.process_time() - began < 0.5


async def test_terms_are_a_cache_too(tmp_path: Path) -> None:
    """After the index was lost nothing is indexed, and says so; indexing again finds again (JL-18)."""
    await _made(tmp_path)
    query = SearchQuery((Phrase(("cat",)),))
    async with opened(tmp_path) as store:
        await store.index([IndexEntry("one", 2, ("cat",))], indexed={"one": 4})
        assert [tuple(hit) for hit in (await store.search(query)).items] == [("one", 2)]
    for path in (tmp_path / "store").glob("index.sqlite*"):
        path.unlink()
    async with opened(tmp_path) as store:
        assert (await store.search(query)).items == ()
        assert {head.session_id for head in (await store.list(SessionQuery(unindexed=True))).items} == {"one", "two"}
        await store.index([IndexEntry("one", 2, ("cat",))], indexed={"one": 4})
        assert [tuple(hit) for hit in (await store.search(query)).items] == [("one", 2)]
        assert await texts(store, "one", limit=2) == ["begin", "1"]


async def test_long_log_costs_no_more_to_open_or_page(tmp_path: Path) -> None:
    """The last events and a page in the middle are found by reading a small part of the file (JL-22, B6, B51, C10)."""
    async with opened(tmp_path, durability="os") as store:
        await begin(store)
        for _ in range(60):
            await store.append("one", [record("x" * 200) for _ in range(500)])
    size = log_of(tmp_path).stat().st_size
    read = 0
    real = os.pread

    def counting(fd: int, count: int, offset: int) -> bytes:
        nonlocal read
        data = real(fd, count, offset)
        read += len(data)
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", counting)
        async with opened(tmp_path) as store:
            head = await store.head("one")
            assert head is not None
            assert [event.seq for event in await store.read("one", backwards=True, limit=3)] == [30001, 30000, 29999]
            assert [event.seq for event in await store.read("one", after=15_000, limit=3)] == [15001, 15002, 15003]
            assert [event.seq for event in await store.read("one", after=15_003, limit=2)] == [15004, 15005]
    assert size > 10_000_000
    assert read < 1_500_000
