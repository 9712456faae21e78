"""A folder that is moved away, or whose file system is unmounted, while its store is open: an error, and never "no session" (A50)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kipu.errors import StoreUnavailableError
from kipu.ports.store import Binding, Lease, Phrase, SearchQuery, SessionQuery
from kipu.stores.jsonl import JsonlStore
from tests.unit.stores.jsonl.kit import TIME, begin, opened, record, texts

LEASE = Lease("one", "me", 1, 5.0, TIME)
Call = Callable[[JsonlStore, str], Awaitable[object]]
CALLS: dict[str, Call] = {
    "head": lambda store, _: store.head("one"),
    "read": lambda store, _: store.read("one"),
    "outcomes": lambda store, _: store.outcomes("one"),
    "resolve": lambda store, _: store.resolve("key"),
    "keys": lambda store, _: store.keys("one"),
    "list": lambda store, _: store.list(SessionQuery()),
    "runnable": lambda store, _: store.runnable(now=TIME, limit=5),
    "get_blob": lambda store, digest: store.get_blob("one", digest),
    "blobs": lambda store, _: store.blobs("one"),
    "tombstones": lambda store, _: store.tombstones(),
    "mark": lambda store, _: store.mark(),
    "verify": lambda store, _: store.verify(),
    "verify one": lambda store, _: store.verify("one"),
    "append": lambda store, _: store.append("one", [record("more")]),
    "append and bind": lambda store, _: store.append("one", [record("more")], bind=Binding("other")),
    "begin": lambda store, _: begin(store, "three"),
    "bind": lambda store, _: store.bind("other", "one"),
    "claim": lambda store, _: store.claim("one", owner="me", ttl_s=5),
    "put_blob": lambda store, _: store.put_blob("one", b"more"),
    "erase": lambda store, _: store.erase("one", lease=LEASE),
    "spooled ids": lambda store, _: store.spool.session_ids(),
    "spooled batches": lambda store, _: store.spool.batches("one"),
    "spooled lease": lambda store, _: store.spool.lease_state("one"),
    "spooled keys": lambda store, _: store.spool.keys_of("one"),
}


@pytest.mark.parametrize("known", [True, False], ids=["that was read", "that was not read"])
@pytest.mark.parametrize("index", ["", "elsewhere"], ids=["with its index", "without its index"])
@pytest.mark.parametrize("leaves", [True, False], ids=["an empty folder", "nothing"])
async def test_a_store_that_is_away_says_nothing_of_its_sessions(
    tmp_path: Path, leaves: bool, index: str, known: bool
) -> None:
    """Every call is StoreUnavailableError, nothing is begun in the empty place, and all is there when the folder is back (A50, B25)."""
    folder, away = tmp_path / "store", tmp_path / "away"
    settings = {"index": str(tmp_path / index)} if index else {}
    async with opened(tmp_path, **settings) as store:
        await begin(store, "one")
        await store.bind("key", "one")
        digest = await store.put_blob("one", b"big")
        await begin(store, "two")
    async with opened(tmp_path, **settings) as store:
        if known:
            assert await texts(store) == ["begin"]
            assert await store.resolve("key") == "one"
            assert len((await store.list(SessionQuery())).items) == 2
        folder.rename(away)
        if leaves:
            folder.mkdir()
        answered = [name for name, call in CALLS.items() if not await _is_refused(call(store, digest))]
        # An index that is elsewhere and was compared with the logs still lists what there is.
        assert answered == (["list", "runnable"] if index and known else [])
        if leaves:
            assert {name for name in os.listdir(folder) if not name.endswith(".lock")} == set()
            for name in os.listdir(folder):
                (folder / name).unlink()
            folder.rmdir()
        away.rename(folder)
        assert await texts(store) == ["begin"]
        assert await store.resolve("key") == "one"
        assert await store.get_blob("one", digest) == b"big"
        assert {head.session_id for head in (await store.list(SessionQuery())).items} == {"one", "two"}
        await store.append("one", [record("more")])
    async with opened(tmp_path, **settings) as store:
        assert await texts(store) == ["begin", "more"]


async def test_who_follows_or_searches_a_store_that_is_away_hears_of_it(tmp_path: Path) -> None:
    """Questions that only the index answers fail with the same error where it went away with the folder (A50, B25)."""
    async with opened(tmp_path) as store:
        await begin(store, "one")
    async with opened(tmp_path) as store:
        (tmp_path / "store").rename(tmp_path / "away")
        assert await _is_refused(store.search(SearchQuery((Phrase(("begin",)),))))
        assert await _is_refused(store.index([], indexed={"one": 1}))
        assert await _is_refused(store.drop_index())
        with pytest.raises(StoreUnavailableError):
            store.follow()
        (tmp_path / "away").rename(tmp_path / "store")


async def _is_refused(answer: Awaitable[object]) -> bool:
    try:
        await answer
    except StoreUnavailableError:
        return True
    return False
