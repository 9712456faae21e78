"""What is at the server: lists that cost the same however long, erasures that go on, notices that may be lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kipu.errors import SessionNotFoundError
from kipu.ports.head import HeadPatch
from kipu.ports.store import SessionQuery, StoredEvent
from kipu.stores.valkey.address import Address
from kipu.stores.valkey.changes import Changes
from kipu.stores.valkey.server import Server
from kipu.testing.fakes import FakeClock
from tests.acceptance.valkey.kit import TIME, ask, begin, keys_of, opened, proxied, record, text_of
from tests.valkey_servers import fresh_prefix, valkey_url


async def commands_of(url: str) -> int:
    """Return how many commands the server has carried out, those of scripts included."""
    told = (await ask(url, "INFO", "stats")).decode()
    return int(told.partition("total_commands_processed:")[2].split()[0])


async def test_deep_page_of_a_facet_reads_as_little_as_the_first() -> None:
    """A page of one owner's sessions among many others' walks theirs alone, and a deep one costs what the first does (B6, VK-17)."""
    url = fresh_prefix(valkey_url())
    async with opened(url) as store:
        for number in range(300):
            await begin(
                store,
                f"s{number:03}",
                owner="ada" if number % 10 == 0 else "bob",
                created_at=f"2027-01-15T{number:06}Z",
            )
        query = SessionQuery(owner="ada", order="created_at", limit=5)
        prices, cursor, seen = [], None, list[str]()
        while cursor is not None or not seen:
            before = await commands_of(url)
            page = await store.list(SessionQuery(owner="ada", order="created_at", limit=5, cursor=cursor))
            prices.append(await commands_of(url) - before)
            seen += [head.session_id for head in page.items]
            cursor = page.cursor
        assert seen == [f"s{number:03}" for number in range(290, -1, -10)]
        assert query.limit == 5
        assert max(prices) < 60  # not the 300 there are
        assert max(prices[1:-1]) - min(prices[1:-1]) <= 10


@pytest.mark.parametrize(
    ("filled", "asked"),
    [
        (
            {"metadata": {"n": 1.0, "deep": {"b": 1, "a": [1, 2]}}},
            {"metadata": {"n": 1, "deep": {"a": [1, 2], "b": 1}}},
        ),
        ({"metadata": {"long": "x" * 500}}, {"metadata": {"long": "x" * 500}}),
        ({"metadata": {"gone": None}}, {"metadata": {"gone": None}}),
        ({"owner": 'o"\x1f\\x'}, {"owner": 'o"\x1f\\x'}),
        ({"tags": ["a\x1fb"]}, {"tags": frozenset({"a\x1fb"})}),
        ({"key": "k:\x1f1"}, {"key_prefix": "k:\x1f"}),
    ],
)
async def test_odd_values_are_filtered_by(filled: dict[str, Any], asked: dict[str, Any]) -> None:
    """Values with quotes, fences, equal numbers of two kinds and long ones are found as they are, and no others (B26, VK-17)."""
    async with opened(fresh_prefix(valkey_url())) as store:
        await begin(store, "this", **filled)
        await begin(store, "that", owner="b", tags=["a"], key="k", metadata={"n": True, "long": "x" * 499, "gone": 1})
        found = [head.session_id for head in (await store.list(SessionQuery(**asked))).items]
        assert found == ["this"]


async def test_facets_follow_the_head() -> None:
    """A session whose owner, tags, status and members change is in the lists of what it is now, and in no other (B26, VK-17)."""
    url = fresh_prefix(valkey_url())
    async with opened(url) as store:
        await begin(store, "s", owner="a", tags=["one"], members={"m": "viewer"}, pinned=True)
        change = HeadPatch(set={"owner": "b", "tags": ["two"], "members": None, "pinned": False, "status": "archived"})
        await store.append("s", [record("x", event_type="note")], head=change)
        lists = {name.decode() for name in await ask(url, "KEYS", f"{keys_of(url).lists}active:*")}
        assert {name.removeprefix(keys_of(url).lists) for name in lists} == {
            "active:*", "active:v:b", "active:g:two", "active:s:archived",
        }  # fmt: skip


async def test_work_behind_many_leases_is_found() -> None:
    """Sessions under leases take no place among those that can run, however many; those whose lease is over do (C12, VK-18)."""
    clock = FakeClock()
    async with opened(fresh_prefix(valkey_url()), clock=clock) as store:
        for number in range(30):
            await begin(store, f"s{number:02}", waiting=[2], last_event_at=TIME)
            if number < 25:
                assert await store.claim(f"s{number:02}", owner="w", ttl_s=60 if number else 5)
        found = await store.runnable(now=clock.iso(), limit=3)
        assert [head.session_id for head in found] == ["s25", "s26", "s27"]
        clock.advance(10)
        found = await store.runnable(now=clock.iso(), limit=10)
        assert [head.session_id for head in found] == ["s00", "s25", "s26", "s27", "s28", "s29"]


async def test_long_log_is_read_at_its_end_for_the_price_of_a_short_one() -> None:
    """The last 200 events of 20 000 come with as many commands as those of 300, and large ones in several scripts (B6, VK-19)."""
    url = fresh_prefix(valkey_url())
    async with opened(url) as store:
        prices = {}
        for session_id, laps in (("short", 1), ("long", 40)):
            await begin(store, session_id)
            for _ in range(laps):
                await store.append(session_id, [record("x") for _ in range(500)])
            before = await commands_of(url)
            assert len(await store.read(session_id, limit=200, backwards=True)) == 200
            prices[session_id] = await commands_of(url) - before
        assert abs(prices["long"] - prices["short"]) < 5  # a listener may say something in between
        assert prices["long"] < 30
        await begin(store, "large")
        await store.append("large", [record("x" * 1_500_000) for _ in range(6)])
        assert [event.seq for event in await store.read("large")] == [1, 2, 3, 4, 5, 6, 7]
        assert [event.seq for event in await store.read("large", limit=5, backwards=True)] == [7, 6, 5, 4, 3]


async def test_erasure_that_was_cut_off_is_finished_by_the_next_who_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries of an erased session count no more at once, and go when the store is opened after a kill in between (C20, VK-20)."""
    url = fresh_prefix(valkey_url())
    keys = keys_of(url)
    async with opened(url) as store:
        await begin(store, "s")
        await begin(store, "other")
        for number in range(700):
            await store.append("s", [record(str(number))], idempotency_key=f"k{number}")
        lease = await store.claim("s", owner="me", ttl_s=30)
        assert lease is not None

        async def cut_off(*_: object) -> None:
            return

        monkeypatch.setattr(Changes, "finish_erasing", cut_off)
        await store.erase("s", lease=lease)
        monkeypatch.undo()
        assert await ask(url, "EXISTS", keys.of("s").outcomes, keys.erasing, keys.outcome("k2")) == 3
        again = await store.append("other", [record("x")], idempotency_key="k1")
        assert (again.session_id, again.duplicate) == ("other", False)
        with pytest.raises(SessionNotFoundError):
            await store.read("s")
    async with opened(url) as store:
        assert await ask(url, "EXISTS", keys.of("s").outcomes, keys.erasing, keys.outcome("k2")) == 0
        assert (
            await store.append("other", [record("x")], idempotency_key="k1")
        ).duplicate  # taken meanwhile, and left alone


async def test_lost_notices_lose_no_event() -> None:
    """A store whose notices are cut off hears of another's commits by looking, and again by notices once they come (C13, VK-23)."""
    url = fresh_prefix(valkey_url())
    async with proxied(valkey_url()) as proxy:
        far = proxy.url + "?" + url.partition("?")[2]
        async with opened(url) as store, opened(far) as other:
            await begin(store, "s")
            follower = other.follow("s", after=1)
            for number in range(6):
                waiting: asyncio.Future[StoredEvent] = asyncio.ensure_future(anext(follower))
                if number % 2:
                    proxy.cut()
                await store.append("s", [record(str(number))])
                async with asyncio.timeout(60):
                    assert text_of(await waiting) == str(number)


async def test_server_answers_for_the_right_address() -> None:
    """A store is asked over no more connections than the URL allows, in turn (VK-1)."""
    server = Server(Address.parse(fresh_prefix(valkey_url(), connections="2")))
    assert [answer.decode() for answer in await asyncio.gather(*(server.ask("ECHO", str(n)) for n in range(50)))] == [
        str(n) for n in range(50)
    ]
    clients = (await server.ask("CLIENT", "LIST")).decode()
    assert clients.count("name=kipu") >= 1
    await server.close()
