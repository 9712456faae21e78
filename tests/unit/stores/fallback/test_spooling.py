"""While the primary refuses: everything goes on, in the spool."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import ConflictError, LeaseLostError, SessionExistsError, SessionNotFoundError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Binding, Outcome, SessionQuery
from tests.unit.stores.fallback.kit import TIME, begin, log, pair, record


async def test_spool_takes_what_the_primary_refuses_and_reads_show_both(tmp_path: Path) -> None:
    """Events go on behind the primary's, with one history in both directions (A46, A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        await store.append("one", [record("a"), record("b")])
        primary.refuses = True
        assert (await store.append("one", [record("c")])).first_seq == 4
        assert await log(store) == [(1, "begin one"), (2, "a"), (3, "b"), (4, "c")]
        assert [e.seq for e in await store.read("one", backwards=True, limit=3)] == [4, 3, 2]
        assert [e.seq for e in await store.read("one", after=2, limit=2)] == [3, 4]
        head, there = await store.head("one"), await primary.head("one")
        assert head is not None
        assert there is not None
        assert (head.last_seq, head.event_count, head.base_seq, head.owner) == (4, 4, 0, "me")
        assert there.last_seq == 3


async def test_merge_gives_the_primary_everything_once(tmp_path: Path) -> None:
    """When the primary answers again, the next call merges, and the spool is empty (A49, A74)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        for text in "abc":
            await store.append("one", [record(text)], head=HeadPatch(add={"window_seq": 1}))
        await begin(store, "two", title="new")
        await store.append("two", [record("d")])
        blob = await store.put_blob("one", b"data")
        before = [await store.head("one"), await store.head("two")]
        primary.refuses = False
        assert await log(store) == [(1, "begin one"), (2, "a"), (3, "b"), (4, "c")]
        assert await log(primary) == await log(store)
        assert await primary.get_blob("one", blob) == b"data"
        assert await log(store, "two") == [(1, "begin two"), (2, "d")] == await log(primary, "two")
        assert [await primary.head("one"), await primary.head("two")] == before
        assert not [path for path in (tmp_path / "spool").rglob("*.jsonl") if path.stat().st_size]


async def test_merge_waits_for_nobody_to_ask(tmp_path: Path) -> None:
    """Opening the pair merges what an earlier process left in the spool (A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        await store.append("one", [record("a")])
    async with pair(tmp_path) as (store, primary):
        assert [report.merged for report in store.reports] == [1]
        assert await log(primary) == [(1, "begin one"), (2, "a")]


async def test_spool_begins_where_the_primary_ends_again_and_again(tmp_path: Path) -> None:
    """A session that was spooled and merged can be spooled again (A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        for text in "abcd":
            primary.refuses = text in "ac"
            await store.append("one", [record(text)])
        assert await log(store) == [(1, "begin one"), (2, "a"), (3, "b"), (4, "c"), (5, "d")]


async def test_spool_refuses_what_the_primary_would(tmp_path: Path) -> None:
    """Unknown sessions, second beginnings, wrong seqs, tokens and bindings are refused in the spool too (C3, B24)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        await store.bind("k", "one")
        lease = await store.claim("one", owner="a", ttl_s=30)
        assert lease is not None
        primary.refuses = True
        with pytest.raises(SessionNotFoundError):
            await store.append("nobody", [record("a")])
        with pytest.raises(SessionExistsError):
            await begin(store)
        with pytest.raises(ConflictError):
            await store.append("one", [record("a")], expected_seq=7)
        with pytest.raises(ConflictError):
            await store.append("one", [record("a")], bind=Binding("k"))
        with pytest.raises(LeaseLostError):
            await store.append("one", [record("a", "agent_message")], token=lease.token + 1)
        await store.append("one", [record("b", "agent_message")], token=lease.token, expected_seq=1)
        assert await log(store) == [(1, "begin one"), (2, "b")]


async def test_lists_show_the_spooled_history(tmp_path: Path) -> None:
    """A list has every session once, page by page, as its newer history says (A46)."""
    async with pair(tmp_path) as (store, primary):
        for number in range(4):
            await begin(store, f"p{number}", last_activity_at=TIME.replace("08:", f"1{number}:"))
        primary.refuses = True
        newest = TIME.replace("08:", "23:")
        await store.append("p1", [record("x")], head=HeadPatch(max={"last_activity_at": newest}))
        await begin(store, "s1", last_activity_at=TIME.replace("08:", "12:"))
        seen, cursor = [], None
        for _ in range(10):
            page = await store.list(SessionQuery(limit=2, cursor=cursor))
            seen += [(head.session_id, head.last_seq) for head in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == [("p1", 2), ("p3", 1), ("s1", 1), ("p2", 1), ("p0", 1)]


async def test_bindings_of_the_spool_are_the_newer_ones(tmp_path: Path) -> None:
    """`/new` while the primary refuses moves the key, and the merge moves it in the primary (A49, C4)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        await store.bind("k", "one")
        primary.refuses = True
        init = record("begin two", "session_init")
        patch = HeadPatch(set={"created_at": TIME})
        await store.append("two", [init], head=patch, bind=Binding("k", "one"))
        assert await store.resolve("k") == "two"
        assert await primary.resolve("k") == "one"
        primary.refuses = False
        await store.recover()
        assert await primary.resolve("k") == "two" == await store.resolve("k")


async def test_idempotency_holds_over_spool_and_merge(tmp_path: Path) -> None:
    """A retry finds the first outcome in the spool, and in the primary afterwards (C2, C4)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        first = await store.append("one", [record("a")], idempotency_key="k")
        again = await store.append("one", [record("b")], idempotency_key="k")
        primary.refuses = False
        late = await store.append("one", [record("c")], idempotency_key="k")
        assert [first.duplicate, again.duplicate, late.duplicate] == [False, True, True]
        assert {first.first_seq, again.first_seq, late.first_seq} == {2}
        assert await log(primary) == [(1, "begin one"), (2, "a")]


async def test_primary_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    """The pair opens without its primary, takes new sessions, and merges when it is there (A49, A50)."""
    from kipu.errors import StoreUnavailableError
    from kipu.ports.store import EventStore
    from kipu.stores.fallback import FallbackStore
    from kipu.stores.jsonl import JsonlStore
    from kipu.stores.sqlite import SqliteStore
    from kipu.testing.fakes import FakeClock, FakeLiveness

    clock, liveness, there = FakeClock(), FakeLiveness(), False

    async def primary() -> EventStore:
        if not there:
            raise StoreUnavailableError(store="primary", reason="ordered")
        return await SqliteStore.open(tmp_path / "primary.db", clock=clock, liveness=liveness)

    spool = await JsonlStore.open(tmp_path / "spool", clock=clock, liveness=liveness)
    store = await FallbackStore.open(primary, spool=spool, clock=clock)
    await begin(store, "new")
    await store.append("new", [record("a")])
    with pytest.raises(StoreUnavailableError):
        await store.append("old", [record("b")])
    with pytest.raises(StoreUnavailableError):
        await store.head("old")
    there = True
    assert await log(store, "new") == [(1, "begin new"), (2, "a")]
    assert await store.head("old") is None
    await store.close()


async def test_outcomes_and_keys_are_those_of_both(tmp_path: Path) -> None:
    """Keys of batches and of sessions are told wherever they are, and are the same after the merge (A49, ST-220, ST-223)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        await begin(store, "two")
        await store.append("one", [record("a")], idempotency_key="k1", bind=Binding("cli:1"))
        await store.bind("cli:2", "one")
        await store.bind("cli:3", "one")
        primary.refuses = True
        await store.append("one", [record("b"), record("c")], idempotency_key="k2", bind=Binding("cli:4"))
        await store.append("two", [record("d")], bind=Binding("cli:2", expected="one"))
        await begin(store, "three")
        await store.append("three", [record("e")], idempotency_key="k3")
        assert await store.outcomes("one") == [Outcome("k1", 2, 2), Outcome("k2", 3, 4)]
        assert await store.keys("one") == ["cli:1", "cli:3", "cli:4"]
        assert await store.keys("two") == ["cli:2"]
        assert await store.outcomes("three") == [Outcome("k3", 2, 2)]
        primary.refuses = False
        await store.recover()
        assert await store.keys("one") == await primary.keys("one") == ["cli:1", "cli:3", "cli:4"]
        assert await store.keys("two") == ["cli:2"]
        assert await primary.outcomes("one") == [Outcome("k1", 2, 2), Outcome("k2", 3, 4)]
        assert Outcome("k3", 2, 2) in await primary.outcomes("three")
