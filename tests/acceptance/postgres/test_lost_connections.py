"""PostgreSQL gone, restarted or silent in the middle of a statement: what was acknowledged stands once, and it goes on by itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from kipu.errors import StoreUnavailableError
from kipu.ports.store import Appended, EventStore
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.database import Connection, Database, run
from tests.acceptance.postgres.kit import ask, begin, log, opened, own_server, proxied, record, text_of
from tests.servers import fresh_schema, postgres_url


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
        texts = [text_of(event) for event in events]
        for text, appended in done.items():
            if appended.session_id == session_id:
                assert texts.count(text) == 1
                assert texts[appended.first_seq - 1] == text
    assert await store.verify() == []


async def test_terminated_backends_lose_and_double_nothing() -> None:
    """Backends terminated again and again during appends without keys leave each acknowledged event once (C2, PG-8)."""
    url = fresh_schema(postgres_url(), connections="4")
    sessions = [f"s{number}" for number in range(4)]
    done: dict[str, Appended] = {}
    async with opened(url) as store:
        for session_id in sessions:
            await begin(store, session_id)
        work = asyncio.gather(*(appending(store, one, count=50, done=done) for one in sessions))
        while not work.done():
            await ask(
                url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kipu'"
                f" AND pid <> pg_backend_pid() AND query LIKE '%{Address.parse(url).schema}%'",
            )
            await asyncio.wait([work], timeout=0.3)
        await work
        assert len(done) > 150  # it goes on by itself, and an open outcome is looked up rather than raised
        await check_all_stands(store, sessions, done)


async def test_server_that_crashes_and_returns_keeps_what_was_acknowledged() -> None:
    """After a crash and restart in mid-append the same store object goes on, and nothing acknowledged is lost (C2, A26, PG-8)."""
    with own_server() as server:
        url = fresh_schema(server.url)
        sessions = ["a", "b", "c"]
        done: dict[str, Appended] = {}
        async with opened(url) as store:
            for session_id in sessions:
                await begin(store, session_id)
            work = asyncio.gather(*(appending(store, one, count=80, done=done) for one in sessions))
            while len(done) < 30:
                await asyncio.wait([work], timeout=0.01)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await work
            assert len(done) > 150
            await check_all_stands(store, sessions, done)


async def test_answer_lost_on_the_way_is_looked_up() -> None:
    """An append whose answer was cut off returns where it stands, without a key, and is there once (C2, PG-8)."""
    async with proxied(postgres_url()) as proxy, opened(fresh_schema(proxy.url, notify="off")) as store:
        await begin(store, "one")
        for number in range(5):
            proxy.swallowed.clear()
            proxy.swallows_answers = True
            appended = await store.append("one", [record(f"{number}")])
            assert proxy.swallowed.is_set()
            assert appended.first_seq == number + 2
        assert [text_of(event) for event in await log(store, "one")] == ["begin", "0", "1", "2", "3", "4"]


async def test_lease_binding_and_erasure_survive_a_lost_answer() -> None:
    """A claim, a binding and an erasure whose answer was cut off end as if it had not been (C2, PG-9)."""
    async with proxied(postgres_url()) as proxy, opened(fresh_schema(proxy.url, notify="off")) as store:
        await begin(store, "one")
        proxy.swallows_answers = True
        lease = await store.claim("one", owner="me", ttl_s=30)
        assert lease is not None
        proxy.swallows_answers = True
        await store.bind("key", "one")
        assert await store.resolve("key") == "one"
        proxy.swallows_answers = True
        receipt = await store.erase("one", lease=lease)
        assert receipt.removed["events"] == 1
        assert await store.head("one") is None


async def test_silent_line_is_cut_and_done_without() -> None:
    """A line that gives no answer and no end is cut by the store, which goes on over another one (C2, PG-10)."""
    async with proxied(postgres_url()) as proxy:
        url = fresh_schema(proxy.url, notify="off", statement_timeout_s="1", connections="1")
        async with opened(url) as store:
            await begin(store, "one")
            proxy.is_silent = True
            appending_one = asyncio.ensure_future(store.append("one", [record("held up")]))
            await proxy.swallowed.wait()
            proxy.is_silent = False
            async with asyncio.timeout(60):
                assert (await appending_one).first_seq == 2
            assert [text_of(event) for event in await log(store, "one")] == ["begin", "held up"]


async def test_transaction_that_sleeps_holds_nobody_up() -> None:
    """A process frozen within a transaction loses it, so that the session is free for the others, and begins it anew (B61, PG-11)."""
    url = fresh_schema(postgres_url(), statement_timeout_s="1")
    async with opened(url) as store:
        await begin(store, "one")
        frozen = Database(Address.parse(url))
        await frozen.open()
        has_row, may_end, began = asyncio.Event(), asyncio.Event(), 0

        async def sleep_within(connection: Connection) -> None:
            nonlocal began
            began += 1
            table = Address.parse(url).schema
            await run(connection, f'UPDATE "{table}".heads SET version = version')
            has_row.set()
            await may_end.wait()
            await run(connection, "SELECT 1")

        sleeping = asyncio.ensure_future(frozen.together(sleep_within))
        await has_row.wait()
        async with asyncio.timeout(60):
            while True:
                try:
                    await store.append("one", [record("by another")])
                except StoreUnavailableError:
                    continue
                break
        may_end.set()
        await sleeping
        assert began == 2
        await frozen.close()


@pytest.mark.parametrize("is_done", [False, True])
async def test_transaction_that_was_lost_is_begun_anew_where_it_was_not_to_be_committed_yet(is_done: bool) -> None:
    """Nothing of it has happened then; where its end was under way nobody knows, and that is told (C2, PG-11)."""
    url = fresh_schema(postgres_url())
    async with opened(url) as store:
        await begin(store, "one")
    database = Database(Address.parse(url))
    await database.open()
    began = 0

    async def work(connection: Connection) -> str:
        nonlocal began
        began += 1
        if began == 1:
            await ask(url, f"SELECT pg_terminate_backend({connection.info.backend_pid}, 60000)")
        if not is_done:
            await run(connection, f'UPDATE "{Address.parse(url).schema}".heads SET version = version')
        return "done"

    try:
        if is_done:
            with pytest.raises(StoreUnavailableError):
                await database.together(work)
        else:
            assert await database.together(work) == "done"
    finally:
        await database.close()
    assert began == (1 if is_done else 2)
