"""Erasing from a database file: not a byte stays, in the file, its log or its gaps."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest

from kipu.errors import LeaseLostError, SessionErasedError, SessionNotFoundError, StoreUnavailableError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Binding, IndexEntry, Lease
from kipu.stores.sqlite import SqliteStore, erasure
from kipu.stores.tables import scrub
from tests.unit.stores.sqlite.kit import begin, opened, record

CHANCE = random.Random(7)


def _canary() -> str:
    return CHANCE.randbytes(12).hex()


async def _lease(store: SqliteStore, session_id: str = "one") -> Lease:
    lease = await store.claim(session_id, owner="me", ttl_s=60)
    assert lease is not None
    return lease


def _files_with(folder: Path, canaries: list[str]) -> list[str]:
    return [path.name for path in folder.iterdir() for word in canaries if word.encode() in path.read_bytes()]


async def _fill(store: SqliteStore, *, mine: list[str], others: int) -> None:
    """Put canaries into every place that a session has, then let other sessions move the rows about."""
    body, title, key, retry, term, blob = mine
    await store.append(
        "one",
        [record(body, event_type="session_init")],
        head=HeadPatch(set={"title": title, "tags": [title], "metadata": {"m": title}}),
        bind=Binding(f"chat:{key}"),
        idempotency_key=retry,
    )
    await store.put_blob("one", blob.encode() * 2_000)
    await store.index([IndexEntry("one", 1, (term, "hello"))], indexed={"one": 1})
    words = [f"w{CHANCE.randrange(5_000)}" for _ in range(3_000)]
    entries = []
    for number in range(others):
        name = f"other{number % 50}"
        if number < 50:
            await begin(store, name, title=_canary())
        done = await store.append(
            name, [record("y" * 500)], head=HeadPatch(set={"title": _canary() * (number % 9 + 1)})
        )
        entries.append(IndexEntry(name, done.last_seq, tuple(CHANCE.choice(words) for _ in range(100))))
    await store.index(entries, indexed={})


async def test_erasing_leaves_no_byte(tmp_path: Path) -> None:
    """After erase no file holds a byte of body, title, key, retry key, term or blob, then, later, or closed (SQ-13, C20)."""
    mine = [_canary() for _ in range(6)]
    async with opened(tmp_path, durability="os") as store:
        await _fill(store, mine=mine, others=300)
        assert len(set(_files_with(tmp_path, mine))) >= 1
        receipt = await store.erase("one", lease=await _lease(store))
        assert receipt.removed == {
            "search": 1, "events": 1, "blobs": 1, "bindings": 1, "idempotency_keys": 1, "heads": 1,
        }  # fmt: skip
        assert _files_with(tmp_path, mine) == []
        for number in range(50):
            await store.append(f"other{number}", [record("z" * number)], head=HeadPatch(set={"title": "q" * number}))
        assert _files_with(tmp_path, mine) == []
        assert await store.verify() == []
        with pytest.raises(SessionErasedError):
            await begin(store)
        with pytest.raises(SessionNotFoundError):
            await store.claim("one", owner="me", ttl_s=5)
    assert _files_with(tmp_path, mine) == []


@pytest.mark.parametrize("seed", range(3))
async def test_erasing_leaves_no_byte_of_rows_that_were_moved(tmp_path: Path, seed: int) -> None:
    """Copies of a row that stayed in the middle of pages, when it grew and was moved, are gone too (SQ-13, C20)."""
    chance, canary = random.Random(seed), f"canary{seed:08}"
    async with opened(tmp_path, durability="os") as store:
        for number in range(60):
            await begin(store, f"s{number}")
        for step in range(400):
            number = chance.randrange(60)
            text = (canary if number == 30 else f"zz{step:08}") + "x" * chance.randrange(1_200)
            await store.append(
                f"s{number}", [record()], head=HeadPatch(set={"title": text, "key": text, "tags": [text]})
            )
        await store.erase("s30", lease=await _lease(store, "s30"))
        assert _files_with(tmp_path, [canary]) == []
    assert _files_with(tmp_path, [canary]) == []


def _moved_rows(path: Path, *, seed: int) -> tuple[apsw.Connection, bytes]:
    """Delete a row after others have moved it about, with secure deletion on; return the row's mark."""
    chance = random.Random(seed)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    assert connection.execute("PRAGMA secure_delete = ON").fetchone() == (1,)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, d TEXT); CREATE INDEX ti ON t(d); BEGIN")
    mark = f"canary{seed:08}"
    for step in range(360):
        number = step if step < 60 else chance.randrange(60)
        text = (mark if number == 30 else f"zz{step:08}") + "x" * chance.randrange(300 if step < 60 else 1_200)
        if step >= 60 and number != 30 and chance.random() < 0.3:
            connection.execute("DELETE FROM t WHERE id = ?", (number,))
        else:
            connection.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (number, text))
        connection.execute("COMMIT; BEGIN")
    connection.execute("DELETE FROM t WHERE id = 30; COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return connection, mark.encode()


def test_scrubbing_removes_what_secure_deletion_leaves(tmp_path: Path) -> None:
    """Rows that moved leave old bytes in gaps of pages in spite of secure_delete; scrubbing zeroes them (SQ-13, C20)."""
    left = []
    for seed in range(40):
        path = tmp_path / f"{seed}.db"
        connection, mark = _moved_rows(path, seed=seed)
        rows = connection.execute("SELECT * FROM t ORDER BY d").fetchall()
        if mark in path.read_bytes():
            left.append(seed)
        connection.execute("BEGIN IMMEDIATE")
        scrub.scrub(connection)
        connection.execute("CREATE TABLE changed(x); COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert mark not in path.read_bytes()
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT * FROM t ORDER BY d").fetchall() == rows
        connection.close()
    assert left, "nothing was left behind by secure_delete: is the scrub still needed?"


def test_gaps_are_what_lies_between_pointers_and_cells() -> None:
    """A leaf's gap runs from its last cell pointer to its first cell, and free blocks are gaps but for their links (SQ-13)."""
    page = bytearray(4096)
    page[0] = 13
    page[1:3] = (4000).to_bytes(2, "big")
    page[3:5] = (2).to_bytes(2, "big")
    page[5:7] = (3900).to_bytes(2, "big")
    page[4000:4004] = (0).to_bytes(2, "big") + (30).to_bytes(2, "big")
    assert list(scrub.gaps(bytes(page), first=False)) == [(12, 3900), (4004, 4030)]
    assert list(scrub.gaps(b"\x00" * 4096, first=False)) == []


async def test_erasing_waits_for_readers_and_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a reader keeps old pages in use, erase says so; called again, or when opened again, it finishes (SQ-13, C20)."""
    monkeypatch.setattr(erasure, "READERS_WAIT_S", 0.05)
    mine = [_canary() for _ in range(6)]
    async with opened(tmp_path, durability="os") as store:
        await _fill(store, mine=mine, others=60)
        lease = await _lease(store)
        reader = apsw.Connection(str(tmp_path / "store.db"))
        reader.execute("BEGIN; SELECT count(*) FROM events")
        with pytest.raises(StoreUnavailableError, match="readers"):
            await store.erase("one", lease=lease)
        assert await store.head("one") is None
        assert _files_with(tmp_path, mine) != []
        reader.execute("COMMIT")
        receipt = await store.erase("one", lease=lease)
        assert receipt.removed["events"] == 1
        assert _files_with(tmp_path, mine) == []
        reader.close()
        with pytest.raises(SessionNotFoundError):
            await store.erase("one", lease=lease)


async def test_an_unfinished_erasure_is_finished_on_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends between the rows and their copies leaves a tombstone by which the next one goes on (SQ-13, C20)."""
    mine = [_canary() for _ in range(6)]
    async with opened(tmp_path, durability="os") as store:
        await _fill(store, mine=mine, others=300)
        lease = await _lease(store)
        with monkeypatch.context() as patch:
            patch.setattr(erasure, "empty_log", _killed)
            with pytest.raises(StoreUnavailableError):
                await store.erase("one", lease=lease)
        assert _files_with(tmp_path, mine) != []
    async with opened(tmp_path) as store:
        assert _files_with(tmp_path, mine) == []
        with pytest.raises(SessionNotFoundError):  # nothing is left to be finished
            await store.erase("one", lease=lease)


def _killed(*_: object, **__: object) -> None:
    raise OSError("as if the process had ended here")


async def test_erasing_needs_the_newest_lease(tmp_path: Path) -> None:
    """An older lease erases nothing (SQ-13, C3)."""
    async with opened(tmp_path) as store:
        await begin(store)
        old = await _lease(store)
        await _lease(store)
        with pytest.raises(LeaseLostError):
            await store.erase("one", lease=old)
        assert len(await store.read("one")) == 1


async def test_places_are_not_given_twice_after_an_erasure(tmp_path: Path) -> None:
    """Whoever follows everything misses nothing when the newest events are erased and others come (SQ-14, C13)."""
    async with opened(tmp_path, durability="os") as store:
        await begin(store)
        await begin(store, "two")
        live = store.follow()
        first = await store.append("one", [record(str(n)) for n in range(400)])
        assert (await anext(live)).seq == first.first_seq
        await store.erase("one", lease=await _lease(store))
        await store.append("two", [record("next")])
        seen = await anext(live)
        while seen.session_id != "two":
            seen = await anext(live)
        assert seen.seq == 2
