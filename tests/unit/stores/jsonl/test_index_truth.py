"""The index follows the logs, whatever happened to it or to them meanwhile (B50, C4)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import apsw
import pytest

from kipu.errors import BlobNotFoundError, StoreUnavailableError
from kipu.ports.head import HeadPatch
from kipu.ports.store import SessionQuery, Tombstone
from kipu.stores.jsonl.entry import LogEntry
from kipu.stores.jsonl.index import Index
from kipu.stores.jsonl.lease import LeaseState
from kipu.stores.jsonl.lock import FileLock
from tests.unit.stores.jsonl.kit import begin, fill, opened, record


def _sql(folder: Path, statement: str) -> None:
    connection = apsw.Connection(str(folder / "store" / "index.sqlite"))
    connection.execute(statement)
    connection.close()


async def test_a_session_whose_folder_was_taken_away_is_not_listed(tmp_path: Path) -> None:
    """Who removes a folder by hand removes the session from lists too, also in a store that was open (JL-19, B50)."""
    async with opened(tmp_path) as store:
        for name in ("one", "two"):
            await begin(store, name)
    shutil.rmtree(tmp_path / "store" / "one")
    async with opened(tmp_path) as store:
        assert [head.session_id for head in (await store.list(SessionQuery())).items] == ["two"]
        assert await store.head("one") is None


async def test_an_index_of_another_version_is_made_anew(tmp_path: Path) -> None:
    """An index that was not finished, or that another version made, is not believed: keys are read from the logs (JL-18, C4)."""
    async with opened(tmp_path) as store:
        await begin(store)
        first = await store.append("one", [record("once")], idempotency_key="k")
    _sql(tmp_path, "DELETE FROM idempotency; PRAGMA user_version = 0")
    async with opened(tmp_path) as store:
        again = await store.append("one", [record("once")], idempotency_key="k")
        assert (again.first_seq, again.duplicate) == (first.first_seq, True)


async def test_what_the_index_could_not_take_is_listed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append stands when only the index fails, and the next list shows it (JL-19, B50)."""
    async with opened(tmp_path) as store:
        await begin(store)
        assert [head.last_seq for head in (await store.list(SessionQuery())).items] == [1]

        def full(*_: object) -> int:
            raise apsw.FullError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(Index, "put", full)
            appended = await store.append("one", [record("said")], idempotency_key="k")
        assert appended.last_seq == 2
        assert [head.last_seq for head in (await store.list(SessionQuery())).items] == [2]


async def test_an_index_that_says_it_is_damaged_is_made_anew_by_whoever_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an append that met damage in the index the next one meets a new index, not the same damage (JL-18, A53)."""
    async with opened(tmp_path) as store:
        await begin(store)
        built: list[bool] = []
        build = Index.build

        def counting(index: Index) -> None:
            built.append(True)
            build(index)

        def damaged(*_: object, **__: object) -> None:
            raise apsw.CorruptError("malformed")

        monkeypatch.setattr(Index, "build", counting)
        with monkeypatch.context() as patch:
            patch.setattr(Index, "outcome", damaged)
            with pytest.raises(StoreUnavailableError):
                await store.append("one", [record("a")], idempotency_key="k")
        assert (await store.append("one", [record("a")], idempotency_key="k")).last_seq == 2
        assert built == [True]
        await fill(store, 1)


async def test_what_was_rolled_back_of_the_index_is_not_taken_for_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the index takes one row of a commit and fails at the next, it has neither, and both are found by what they now say (JL-19)."""
    async with opened(tmp_path) as store:
        for name in ("one", "two"):
            await begin(store, name, status="active")
        put = Index.put

        def full(index: Index, entry: LogEntry, lease: LeaseState) -> int:
            if entry.session_id == "two":
                raise apsw.FullError("no room")
            return put(index, entry, lease)

        gate = FileLock(str(tmp_path / "store" / "one" / "lock"))
        gate.acquire(wait_s=1.0)  # neither is done at once, so that they are committed together
        with monkeypatch.context() as patch:
            patch.setattr(Index, "put", full)
            over = HeadPatch(set={"status": "expired"})
            jobs = [store.append(name, [record(name)], head=over, idempotency_key=name) for name in ("one", "two")]
            waiting = asyncio.gather(*jobs)
            await asyncio.sleep(0)
            gate.release()
            gate.close()
            await waiting
        for status, wanted in (("expired", {"one", "two"}), ("active", set())):
            found = (await store.list(SessionQuery(statuses=frozenset({status})))).items
            assert {head.session_id for head in found} == wanted


async def test_a_segment_that_the_index_does_not_know_is_found(tmp_path: Path) -> None:
    """An index from before a log went on in a new segment lists what is there, though the old segment is as it was (JL-18, JL-3)."""
    index = tmp_path / "store" / "index.sqlite"
    async with opened(tmp_path, segment_bytes=300) as store:
        await begin(store)
        await fill(store, 1)
    segments = sorted((tmp_path / "store" / "one").glob("0*.jsonl"))
    assert segments[-1].stat().st_size >= 300
    old = index.read_bytes()
    async with opened(tmp_path, segment_bytes=300) as store:
        await store.append("one", [record("next")])
    assert len(sorted((tmp_path / "store" / "one").glob("0*.jsonl"))) == len(segments) + 1
    index.write_bytes(old)
    (tmp_path / "store" / "index.sqlite-wal").write_bytes(b"")
    async with opened(tmp_path, segment_bytes=300) as store:
        assert [head.last_seq for head in (await store.list(SessionQuery())).items] == [3]


async def test_a_key_that_was_only_expected_is_erased_with_its_session(tmp_path: Path) -> None:
    """A key whose writer died before its batch leaves no byte in the index once the session is erased (C20)."""
    index = tmp_path / "store" / "index.sqlite"
    async with opened(tmp_path) as store:
        await begin(store)
    connection = apsw.Connection(str(index))
    connection.execute("INSERT INTO pending VALUES ('telegram-message-4711', 'one')")
    connection.close()
    async with opened(tmp_path) as store:
        lease = await store.claim("one", owner="me", ttl_s=5)
        assert lease is not None
        await store.erase("one", lease=lease)
    assert not [path for path in index.parent.glob("index.sqlite*") if b"telegram-message" in path.read_bytes()]


async def test_folders_whose_names_are_no_ids_are_none_of_the_store(tmp_path: Path) -> None:
    """What else stands in the folder is not listed, and no id reaches out of its folder or into it (A21, JL-1)."""
    async with opened(tmp_path) as store:
        await begin(store)
        digest = await store.put_blob("one", b"big")
        for name in ("lost+found", ".git", "One"):
            (tmp_path / "store" / name).mkdir()
        (tmp_path / "store" / "notes").write_bytes(b"a file")
    (tmp_path / "store" / "index.sqlite").unlink()
    async with opened(tmp_path) as store:
        assert [head.session_id for head in (await store.list(SessionQuery())).items] == ["one"]
        for name in ("../store/one", "one/../one", "./one"):
            with pytest.raises(BlobNotFoundError):
                await store.get_blob(name, digest)
            assert await store.head(name) is None


async def test_an_id_that_was_erased_stays_erased_when_it_did(tmp_path: Path) -> None:
    """To bury an id again, as a copy that goes on does, changes nothing about when it was erased (C20)."""
    async with opened(tmp_path) as store:
        await store.bury([Tombstone("gone", "2027-01-01T00:00:00.000000Z")])
        await store.bury([Tombstone("gone", "2027-02-02T00:00:00.000000Z")])
        assert await store.tombstones() == [Tombstone("gone", "2027-01-01T00:00:00.000000Z")]
