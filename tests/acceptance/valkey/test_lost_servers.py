"""Valkey killed, restarted, cut off or silent in the middle of a command: what was acknowledged is as durable as it says."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kipu.errors import StoreUnavailableError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, EventStore
from tests.acceptance.valkey.kit import ask, begin, keys_of, log, opened, proxied, record, text_of, texts
from tests.valkey_servers import fresh_prefix, own_server, valkey_url

FSYNC = {"appendonly": "yes", "appendfsync": "always"}


async def appending(store: EventStore, session_id: str, *, count: int, done: dict[str, Appended]) -> None:
    """Append one by one without keys, remembering what was acknowledged."""
    for number in range(count):
        text = f"{session_id}.{number}"
        with suppress(StoreUnavailableError):
            done[text] = await store.append(session_id, [record(text)])


async def check_all_stands(store: EventStore, sessions: list[str], done: dict[str, Appended]) -> None:
    """Check that each acknowledged event stands once and where it was said to, and that no number is missing."""
    for session_id in sessions:
        events = await log(store, session_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        said = [text_of(event) for event in events]
        for text, appended in done.items():
            if appended.session_id == session_id:
                assert said.count(text) == 1
                assert said[appended.first_seq - 1] == text
    assert await store.verify() == []


async def test_server_killed_with_fsync_keeps_all_that_was_acknowledged() -> None:
    """SIGKILL of the server in tight append loops loses nothing acknowledged with appendfsync=always (C2, B54, VK-14)."""
    sessions = ["a", "b", "c", "d"]
    done: dict[str, Appended] = {}
    with own_server(**FSYNC) as server:
        async with opened(fresh_prefix(server.url, durability="fsync")) as store:
            assert store.describe().durability == "fsync"
            for session_id in sessions:
                await begin(store, session_id)
            work = asyncio.gather(*(appending(store, one, count=150, done=done) for one in sessions))
            for _ in range(4):
                known = len(done)
                while len(done) < known + 40 and not work.done():
                    await asyncio.wait([work], timeout=0.005)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await work
            assert len(done) > 200  # the store object goes on by itself
            await check_all_stands(store, sessions, done)


async def test_server_killed_without_fsync_may_lose_and_the_store_says_so() -> None:
    """With everysec and with none, `describe` says what a crash may take; what is left is whole, and it goes on (B54, VK-13)."""
    for settings, word, window in (
        ({"appendonly": "yes", "appendfsync": "everysec"}, "everysec", "last second"),
        ({"appendonly": "no", "save": ""}, "none", "everything"),
    ):
        with own_server(**settings) as server:
            async with opened(fresh_prefix(server.url)) as store:
                said = store.describe()
                assert (said.durability, window in said.loss_window, len(said.notes)) == (word, True, 1)
                await begin(store, "s")
                for number in range(60):
                    await store.append("s", [record(str(number))])
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                head = await store.head("s")
                if head is None:
                    assert await store.verify() == []
                    await begin(store, "s")
                kept = await texts(store, "s")
                assert kept == ["begin", *map(str, range(60))][: len(kept)]
                assert (await store.append("s", [record("after")])).first_seq == len(kept) + 1
                assert await store.verify() == []


async def test_follower_goes_on_after_a_restart() -> None:
    """Followers of one session and of all, waiting when the server is killed and started again, miss nothing (C13, VK-22)."""
    with own_server(**FSYNC) as server:
        async with opened(fresh_prefix(server.url)) as store, opened(fresh_prefix(server.url)) as other:
            await begin(store, "s")
            one, every = store.follow("s", after=1), store.follow()
            waiting = [asyncio.ensure_future(anext(one)), asyncio.ensure_future(anext(every))]
            await asyncio.sleep(0)
            await store.append("s", [record("before")])
            assert [text_of(event) for event in await asyncio.gather(*waiting)] == ["before", "before"]
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await store.append("s", [record("after")])
            async with asyncio.timeout(60):
                assert [text_of(await anext(follower)) for follower in (one, every)] == ["after", "after"]
            assert await other.head("s") is None


async def test_answer_lost_on_the_way_is_looked_up() -> None:
    """An append whose answer was cut off returns where it stands, without a key, and is there once (C2, VK-8)."""
    async with proxied(valkey_url()) as proxy, opened(fresh_prefix(proxy.url, notify="off")) as store:
        await begin(store, "one")
        for number in range(5):
            proxy.swallowed.clear()
            proxy.swallows_answers = 1
            appended = await store.append("one", [record(f"{number}")])
            assert proxy.swallowed.is_set()
            assert (appended.first_seq, appended.duplicate) == (number + 2, False)
        assert await texts(store, "one") == ["begin", "0", "1", "2", "3", "4"]


async def test_command_that_arrives_late_does_nothing() -> None:
    """An append that reaches the server between the look for it and the next try is not done beside that one (C2, VK-8)."""
    async with proxied(valkey_url()) as proxy, opened(fresh_prefix(proxy.url, notify="off")) as store:
        await begin(store, "one")
        await store.append("one", [record("known")])
        proxy.reorders = True
        await store.append("one", [record("once")])
        assert proxy.swallowed.is_set()
        await store.append("one", [record("next")])
        assert await texts(store, "one") == ["begin", "known", "once", "next"]


async def test_new_session_whose_answer_was_lost_is_there_once() -> None:
    """Beginning a session whose answer was cut off succeeds and makes it once (C2, VK-8)."""
    async with proxied(valkey_url()) as proxy, opened(fresh_prefix(proxy.url, notify="off")) as store:
        await begin(store, "warm")
        proxy.swallows_answers = 1
        await store.head("warm")  # a read is asked again
        proxy.swallowed.clear()
        proxy.reorders = True
        assert (await begin(store, "new")).first_seq == 1
        assert proxy.swallowed.is_set()
        assert await texts(store, "new") == ["begin"]


async def test_lease_binding_and_erasure_survive_a_lost_answer() -> None:
    """A claim, a binding, a blob and an erasure whose answer was cut off end as if it had not been (C2, VK-9)."""
    async with proxied(valkey_url()) as proxy, opened(fresh_prefix(proxy.url, notify="off")) as store:
        await begin(store, "one")
        lease = await store.claim("one", owner="me", ttl_s=30)
        assert lease is not None
        proxy.swallows_answers = 1
        lease = await store.renew(lease)
        proxy.swallows_answers = 1
        await store.bind("key", "one")
        assert await store.resolve("key") == "one"
        proxy.swallows_answers = 1
        digest = await store.put_blob("one", b"blob")
        assert await store.get_blob("one", digest) == b"blob"
        for number in range(8):  # whichever of its steps it is
            lease = await store.claim(f"e{number}", owner="me", ttl_s=30) if number else lease
            await begin(store, f"e{number + 1}")
            assert lease is not None
            proxy.swallows_answers = 1
            receipt = await store.erase(lease.session_id, lease=lease)
            assert receipt.removed["events"] == 1
            assert await store.head(lease.session_id) is None


async def test_silent_line_is_cut_and_done_without() -> None:
    """A line that gives no answer and no end is given up after timeout_s, and it goes on over another one (C2, VK-10)."""
    async with proxied(valkey_url()) as proxy:
        url = fresh_prefix(proxy.url, notify="off", timeout_s="1", connections="1")
        async with opened(url) as store:
            await begin(store, "one")
            proxy.is_silent = True
            held_up = asyncio.ensure_future(store.append("one", [record("held up")]))
            await proxy.swallowed.wait()
            proxy.is_silent = False
            async with asyncio.timeout(60):
                assert (await held_up).first_seq == 2
            assert await texts(store, "one") == ["begin", "held up"]


async def test_dropped_connections_lose_and_double_nothing() -> None:
    """Connections killed again and again during appends without keys leave each acknowledged event once (C2, VK-8)."""
    url = fresh_prefix(valkey_url(), connections="4")
    sessions = [f"s{number}" for number in range(4)]
    done: dict[str, Appended] = {}
    async with opened(url) as store:
        for session_id in sessions:
            await begin(store, session_id)
        work = asyncio.gather(*(appending(store, one, count=60, done=done) for one in sessions))
        while not work.done():
            await ask(url, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await asyncio.wait([work], timeout=0.05)
        await work
        assert len(done) > 200
        await check_all_stands(store, sessions, done)


async def test_scripts_that_the_server_forgot_are_given_again() -> None:
    """After SCRIPT FLUSH, or over a server that never saw them, everything goes on (VK-5)."""
    url = fresh_prefix(valkey_url())
    async with opened(url) as store:
        await begin(store, "one")
        await ask(url, "SCRIPT", "FLUSH")
        assert (await store.append("one", [record("more")])).first_seq == 2
        await ask(url, "SCRIPT", "FLUSH")
        assert await texts(store, "one") == ["begin", "more"]


async def test_head_of_a_lost_write_is_not_taken_for_the_one_that_came_after() -> None:
    """A head remembered from writes that the server has lost is not written over another one of the same number (C2, VK-7)."""
    url = fresh_prefix(valkey_url())
    async with opened(url) as one, opened(url) as two:
        await begin(one, "s")
        head = keys_of(url).of("s").head
        kept = await ask(url, "HGETALL", head)
        await one.append("s", [record("lost")])
        await ask(url, "DEL", head)
        await ask(url, "HSET", head, *kept)
        await two.append("s", [record("in its place")], head=HeadPatch(set={"title": "theirs"}))
        await one.append("s", [record("next")])
        now = await two.head("s")
        assert now is not None
        assert (now.title, now.event_count) == ("theirs", 3)
        assert await texts(two, "s") == ["begin", "in its place", "next"]
