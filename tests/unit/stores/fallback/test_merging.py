"""The merge: in order, once, after a kill too; leases; and what came too late."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from kipu.errors import LeaseLostError, StoreUnavailableError
from kipu.ports.head import HeadPatch
from kipu.ports.store import MAX_PAGE, Binding, SessionQuery
from kipu.testing.fakes import FakeClock
from tests.unit.stores.fallback.kit import begin, begin_turn, log, pair, record


@pytest.mark.parametrize("left", range(5))
async def test_merge_that_was_cut_goes_on_where_it_was(tmp_path: Path, left: int) -> None:
    """Cut after any number of batches and continued by another process, nothing is lost or doubled (A49, C16)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        for text in "abcd":
            await store.append("one", [record(text)])
        primary.refuses, primary.appends_left = False, left
        if left < 4:
            with pytest.raises(StoreUnavailableError):
                await store.recover()
        else:
            await store.recover()
    async with pair(tmp_path) as (store, primary):
        whole = [(1, "begin one"), (2, "a"), (3, "b"), (4, "c"), (5, "d")]
        assert await log(store) == await log(primary) == whole


async def test_append_that_had_happened_after_all_is_not_doubled(tmp_path: Path) -> None:
    """A batch that the primary wrote although it said no is known by its event's id (A49, C2)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        await store.append("one", [record("a")])
        await primary.inner.append("one", [record("a")])
        primary.refuses = False
        assert await log(store) == [(1, "begin one"), (2, "a")]


async def test_holder_goes_on_over_refusal_and_merge(tmp_path: Path) -> None:
    """A turn that began in the primary runs on in the spool, and in the primary again, under one token (LS-8, C3, A39)."""
    async with pair(tmp_path) as (store, primary):
        lease = await begin_turn(store)
        for text in "abcd":
            primary.refuses = text in "bc"
            await store.append("one", [record(text, "agent_message")], token=lease.token)
            assert await store.claim("one", owner="b", ttl_s=30) is None
            lease = await store.renew(lease)
        assert await log(primary) == [(1, "begin one"), (2, "a"), (3, "b"), (4, "c"), (5, "d")]
        assert await store.release(lease, expected_seq=5)
        head = await primary.head("one")
        assert head is not None
        assert (head.lease_owner, head.lease_token) == (None, 1)


async def test_claim_while_the_primary_refuses_is_kept_by_the_merge(tmp_path: Path) -> None:
    """A lease of the spool is the primary's after the merge; older tokens are stale in both (LS-8, LS-1, C3)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        old = await store.claim("one", owner="a", ttl_s=30)
        assert old is not None
        primary.refuses = True
        await store.release(old)
        new = await store.claim("one", owner="b", ttl_s=30)
        assert new is not None
        assert new.token == 2
        await store.append("one", [record("a", "agent_message")], token=new.token)
        primary.refuses = False
        await store.append("one", [record("b", "agent_message")], token=new.token)
        with pytest.raises(LeaseLostError):
            await store.append("one", [record("c", "agent_message")], token=old.token)
        head = await primary.head("one")
        assert head is not None
        assert (head.lease_owner, head.lease_token) == ("b", 2)
        assert await log(primary) == [(1, "begin one"), (2, "a"), (3, "b")]


async def test_nobody_claims_a_session_before_it_is_merged(tmp_path: Path) -> None:
    """A claim merges first, so that the turn sees what was spooled (LS-8, A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        await store.append("one", [record("a")])
        primary.refuses = False
        assert await store.claim("one", owner="a", ttl_s=30) is not None
        assert await log(primary) == [(1, "begin one"), (2, "a")]


async def test_stale_turn_goes_to_a_reported_fork_and_arrivals_merge(tmp_path: Path) -> None:
    """Somebody took the session over in the primary: the old turn is kept apart, what people said is not (LS-9, C3, A49)."""
    async with pair(tmp_path) as (store, primary):
        lease = await begin_turn(store)
        primary.refuses = True
        await store.append("one", [record("said")], head=HeadPatch(insert_at={"waiting": [0]}))
        await store.append("one", [record("old answer", "agent_message")], token=lease.token)
        await primary.inner.release(lease)
        other = await primary.inner.claim("one", owner="b", ttl_s=30)
        assert other is not None
        await primary.inner.append("one", [record("new answer", "agent_message")], token=other.token)
        primary.refuses = False
        (report,) = await store.recover()
        assert await log(store) == [(1, "begin one"), (2, "new answer"), (3, "said")]
        assert (report.merged, report.forked) == (1, 1)
        assert report.forked_to is not None
        fork = await store.head(report.forked_to)
        assert fork is not None
        assert (fork.forked_from, fork.base_seq, fork.owner) == ("one", 1, "me")
        events = await store.read(report.forked_to)
        assert [(event.seq, event.record.event_type) for event in events] == [(2, "session_init"), (3, "agent_message")]
        assert any(report.forked_to in note for note in store.describe().notes)
        head = await store.head("one")
        assert head is not None
        assert head.waiting == (3,)


async def test_arrivals_of_both_sides_are_kept_in_order(tmp_path: Path) -> None:
    """What another process could still write comes before what was spooled, and patches name the final numbers (A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        arrives = HeadPatch(insert_at={"waiting": [0]})
        await store.append("one", [record("a")], head=arrives)
        await store.append("one", [record("b", "message_settled")], head=HeadPatch(discard={"waiting": [2]}))
        await store.append("one", [record("c")], head=arrives)
        await primary.inner.append("one", [record("x")], head=arrives)
        primary.refuses = False
        assert await log(store) == [(1, "begin one"), (2, "x"), (3, "a"), (4, "b"), (5, "c")]
        head = await store.head("one")
        assert head is not None
        assert head.waiting == (2, 5)


async def test_followers_see_each_event_once_over_a_merge(tmp_path: Path) -> None:
    """A follower of one session and one of everything see spooled events as they come, and none twice (A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        everything, one = store.follow(), store.follow("one", after=1)

        async def take(count: int) -> list[list[str]]:
            async with asyncio.timeout(60):
                return [[(await anext(stream)).record.event_id for _ in range(count)] for stream in (everything, one)]

        pulled = asyncio.ensure_future(take(2))
        await asyncio.sleep(0)
        primary.refuses = True
        await store.append("one", [record("a")])
        await store.append("one", [record("b")])
        assert await pulled == [["id-a", "id-b"]] * 2
        primary.refuses = False
        await store.append("one", [record("c")])
        assert await take(1) == [["id-c"]] * 2


async def test_concurrent_appends_at_the_edge_of_a_refusal_are_all_there(tmp_path: Path) -> None:
    """When the primary fails in the middle of many appends, each acknowledged one is read, once (A49, A74)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.appends_left = 5
        outcomes = await asyncio.gather(*(store.append("one", [record(str(number))]) for number in range(20)))
        assert sorted(outcome.first_seq for outcome in outcomes) == list(range(2, 22))
        assert sorted(text for _, text in (await log(store))[1:]) == sorted(map(str, range(20)))
        primary.appends_left = None
        assert len(await log(store)) == len(await log(primary)) == 21


async def test_of_a_long_stretch_that_had_happened_after_all_nothing_is_doubled(tmp_path: Path) -> None:
    """Events that the primary wrote although it said no are known on every page of its log (A49, C2)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        long = [record(f"a{number}") for number in range(MAX_PAGE)]
        for batch in (long, [record("the last")]):
            await store.append("one", batch)
        for batch in (long, [record("the last")]):
            await primary.inner.append("one", batch)
        primary.refuses = False
        (report,) = await store.recover()
        assert (report.forked_to, report.merged) == (None, MAX_PAGE + 1)
        head = await primary.head("one")
        assert head is not None
        assert head.last_seq == MAX_PAGE + 2


async def test_a_lease_that_was_renewed_in_the_spool_ends_when_it_said_there(tmp_path: Path) -> None:
    """After the merge nobody takes the session from its holder before the time that the spool gave, and anybody after it (LS-8, C3)."""
    clock = FakeClock()
    async with pair(tmp_path, clock) as (store, primary):
        await begin(store)
        lease = await store.claim("one", owner="a", ttl_s=10)
        assert lease is not None
        primary.refuses = True
        clock.advance(8)
        await store.append("one", [record("a", "agent_message")], token=lease.token)
        lease = await store.renew(lease)
        primary.refuses = False
        await store.recover()
        head = await primary.head("one")
        assert head is not None
        assert (head.lease_owner, head.lease_token, head.lease_until) == ("a", 1, clock.iso(10))
        clock.advance(9)
        assert await primary.claim("one", owner="b", ttl_s=10) is None
        clock.advance(2)
        assert await primary.claim("one", owner="b", ttl_s=10) is not None


async def test_a_token_that_was_given_and_given_back_in_the_spool_is_not_given_again(tmp_path: Path) -> None:
    """After the merge the primary's token is above every one of the spool, and the session is free (LS-1, LS-8, C3)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        await store.append("one", [record("a")])
        for owner in "ab":
            lease = await store.claim("one", owner=owner, ttl_s=30)
            assert lease is not None
            assert await store.release(lease)
        primary.refuses = False
        await store.recover()
        head = await primary.head("one")
        assert head is not None
        assert (head.lease_owner, head.lease_token) == (None, 2)
        lease = await primary.claim("one", owner="c", ttl_s=30)
        assert lease is not None
        assert lease.token == 3


async def test_what_was_said_to_a_session_that_was_erased_meanwhile_goes_to_a_reported_fork(tmp_path: Path) -> None:
    """What the spool took in for a session that is no more in the primary is kept apart, and the report says so (LS-9, A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        await store.append("one", [record("a", "agent_message")], head=HeadPatch(insert={"pins": [1]}))
        await store.append("one", [record("b")], head=HeadPatch(insert={"pins": [2]}))
        await store.append("one", [record("c")])
        lease = await primary.inner.claim("one", owner="eraser", ttl_s=30)
        assert lease is not None
        await primary.inner.erase("one", lease=lease)
        primary.refuses = False
        (report,) = await store.recover()
        assert (report.merged, report.forked) == (0, 3)
        assert report.forked_to is not None
        assert len(report.notes) == 2
        kept = await primary.read(report.forked_to, after=1)
        assert [orjson.loads(each.record.body)["content"] for each in kept] == ["a", "b", "c"]
        fork = await primary.head(report.forked_to)
        assert fork is not None
        assert fork.pins == (2,)  # and not the event that was erased
        assert await store.head("one") is None


async def test_what_was_merged_has_left_the_spool(tmp_path: Path) -> None:
    """After a merge the spool has no folder, row or key of the session: nothing of it hides what the primary says later (A46, A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store, "one")
        await begin(store, "two")
        primary.refuses = True
        await store.append("one", [record("a")], bind=Binding("k"))
        assert len((await store.list(SessionQuery())).items) == 2
        primary.refuses = False
        await store.recover()
        assert not (tmp_path / "spool" / "one").exists()
        # Another process goes on in the primary alone.
        await primary.bind("k", "two", expected="one")
        await primary.append("one", [record("b")])
        assert await store.resolve("k") == "two"
        assert await store.keys("one") == []
        primary.refuses = True
        await store.append("two", [record("c")])
        listed = {head.session_id: head.last_seq for head in (await store.list(SessionQuery())).items}
        assert listed == {"one": 3, "two": 2}
        assert [report.session_id for report in store.reports] == ["one"]


@pytest.mark.parametrize("left", [2, 9])
async def test_fork_of_a_stale_turn_names_its_own_events(left: int, tmp_path: Path) -> None:
    """In the fork what is pinned and waits are the events that were, and none that went elsewhere; cut or not (LS-9, A49)."""
    async with pair(tmp_path) as (store, primary):
        lease = await begin_turn(store)
        primary.refuses = True
        await store.append("one", [record("said")], head=HeadPatch(insert_at={"waiting": [0]}))
        for text in ("first", "second"):
            await store.append("one", [record(text, "agent_message")], token=lease.token)
        pinned = HeadPatch(insert={"pins": [1, 2, 3], "waiting": [4]}, discard={"waiting": [2, 3]})
        await store.append("one", [record("third", "agent_message")], head=pinned, token=lease.token)
        await primary.inner.release(lease)
        assert await primary.inner.claim("one", owner="b", ttl_s=30) is not None
        primary.refuses, primary.appends_left = False, left
        if left == 2:
            with pytest.raises(StoreUnavailableError):
                await store.recover()
            primary.appends_left = None
        (report,) = await store.recover()
        assert report.forked_to is not None
        fork = await primary.head(report.forked_to)
        assert fork is not None
        texts = {
            event.seq: orjson.loads(event.record.body).get("content") for event in await primary.read(fork.session_id)
        }
        assert texts == {2: None, 3: "first", 4: "second", 5: "third"}
        assert (fork.base_seq, fork.pins, fork.waiting) == (1, (1, 3), (4,))
        assert await log(primary) == [(1, "begin one"), (2, "said")]


async def test_turn_whose_place_was_taken_goes_to_a_fork(tmp_path: Path) -> None:
    """Its lease is still its holder's, but it did not see what came before it in the primary (LS-9, C3)."""
    async with pair(tmp_path) as (store, primary):
        lease = await begin_turn(store)
        primary.refuses = True
        await store.append("one", [record("a", "agent_message")], token=lease.token)
        await primary.inner.append("one", [record("x")])
        primary.refuses = False
        (report,) = await store.recover()
        assert (report.merged, report.forked) == (0, 1)
        assert await log(primary) == [(1, "begin one"), (2, "x")]


async def test_turn_behind_an_event_that_others_were_before_goes_to_a_fork(tmp_path: Path) -> None:
    """Where an event stands in the primary after all, but behind others, what the turn did next has lost its place (LS-9, C3)."""
    async with pair(tmp_path) as (store, primary):
        lease = await begin_turn(store)
        primary.refuses = True
        for text in "ab":
            await store.append("one", [record(text, "agent_message")], token=lease.token)
        await primary.inner.append("one", [record("x")])
        await primary.inner.append("one", [record("a", "agent_message")], token=lease.token)
        primary.refuses = False
        (report,) = await store.recover()
        assert (report.merged, report.forked) == (1, 1)
        assert await log(primary) == [(1, "begin one"), (2, "x"), (3, "a")]
