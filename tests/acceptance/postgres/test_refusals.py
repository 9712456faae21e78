"""What a server refuses, each by a real one: what the driver raises is Kipu's error, or is tried again, and it goes on by itself."""

from __future__ import annotations

import asyncio
import random
import string
from contextlib import AsyncExitStack, suppress

import pytest

from kipu.errors import InputError, StoreReadOnlyError, StoreUnavailableError, StoreUrlError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, EventStore, IndexEntry
from kipu.stores.postgres.address import Address
from tests.acceptance.postgres.cluster import Server, a_server
from tests.acceptance.postgres.kit import TIME, ask, begin, log, opened, raw, record, until
from tests.acceptance.postgres.test_lost_connections import appending, check_all_stands
from tests.servers import fresh_schema, postgres_url

ROLLED_BACK = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()"
WRITES = "options=-cdefault_transaction_read_only%3Doff"


async def appended_at_last(store: EventStore, text: str) -> Appended:
    """Append, as often as it takes."""
    async with asyncio.timeout(60):
        while True:
            with suppress(StoreUnavailableError):
                return await store.append("one", [record(text)])


async def test_server_without_free_connections_is_told_and_used_with_those_there_are() -> None:
    """Where the server takes no more connections, who opens is told why, and who is open goes on with what it has (PG-27)."""
    with a_server(max_connections="8", superuser_reserved_connections="0", max_wal_senders="0") as server:
        url = fresh_schema(server.url, connections="8", notify="off", statement_timeout_s="5")
        async with opened(url) as store, AsyncExitStack() as stack:
            await begin(store, "one")
            with suppress(Exception):
                while True:
                    await stack.enter_async_context(await raw(server.url))
            with pytest.raises(StoreUnavailableError, match="too many clients"):
                async with opened(url):
                    pass
            done = await asyncio.gather(*(store.append("one", [record(f"{number}")]) for number in range(30)))
            assert sorted(one.first_seq for one in done) == list(range(2, 32))
        async with opened(url) as later:
            assert len(await log(later, "one")) == 31


async def test_server_that_an_administrator_stops_is_gone_for_a_while() -> None:
    """Appends through `pg_ctl stop -m fast` and a start lose and double nothing that was acknowledged (C2, PG-8)."""
    with a_server() as server:
        done: dict[str, Appended] = {}
        async with opened(fresh_schema(server.url, statement_timeout_s="5")) as store:
            for session_id in ("a", "b"):
                await begin(store, session_id)
            work = asyncio.gather(*(appending(store, one, count=80, done=done) for one in ("a", "b")))
            while len(done) < 20:  # noqa: ASYNC110 - whoever appends does not know who waits
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.stop, "fast")
            await asyncio.to_thread(server.start)
            await work
            assert len(done) > 100
            await check_all_stands(store, ["a", "b"], done)


async def test_server_that_only_starts_up_is_waited_for() -> None:
    """A server that takes no connections yet is StoreUnavailableError at opening, and who is open goes on when it does (PG-27)."""
    with a_server() as server:
        url = fresh_schema(server.url, statement_timeout_s="2")
        async with opened(url) as store:
            await begin(store, "one")
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(start_as_closed_standby, server)
            async with asyncio.timeout(60):
                while "accepting connections" not in await refusal_of(url):
                    pass
            with pytest.raises(StoreUnavailableError):
                await store.append("one", [record("too early")])
            await asyncio.to_thread(server.promote)
            assert (await appended_at_last(store, "in time")).first_seq == 2


async def refusal_of(url: str) -> str:
    """Return why a store cannot be opened; nothing while its socket is not there."""
    with pytest.raises(StoreUnavailableError) as failure:
        async with opened(url):
            pass
    return "" if "No such file" in str(failure.value) else str(failure.value)


def start_as_closed_standby(server: Server) -> None:
    """Start a server that takes no connections until it is promoted."""
    server.set(hot_standby="off")
    (server.data / "standby.signal").touch()
    server.own(server.data / "standby.signal")
    server.run("pg_ctl", "-W", "-D", str(server.data), "-l", str(server.folder / "log"), "start")


async def test_server_for_reading_only_is_told_and_written_again_later() -> None:
    """A server set to read only is StoreReadOnlyError for writes, its sessions are read, and set back it is written (PG-27)."""
    with a_server() as server:
        async with opened(fresh_schema(server.url)) as store:
            await begin(store, "one")
            await ask(server.url, "ALTER SYSTEM SET default_transaction_read_only = on")
            server.reload()
            await until(server.url, "SHOW transaction_read_only", "on")
            with pytest.raises(StoreReadOnlyError):
                await store.append("one", [record("x")])
            with pytest.raises(StoreReadOnlyError):
                await store.claim("one", owner="me", ttl_s=30)
            assert len(await log(store, "one")) == 1
            await ask(f"{server.url}&{WRITES}", "ALTER SYSTEM RESET default_transaction_read_only")
            server.reload()
            await until(server.url, "SHOW transaction_read_only", "off")
            assert (await store.append("one", [record("y")])).first_seq == 2


async def test_connection_that_became_read_only_is_replaced_unseen() -> None:
    """Connections that can only read, as of a server that is primary no more, are given up and the append done over others (PG-23)."""
    with a_server() as server:
        async with opened(fresh_schema(server.url, connections="3")) as store:
            await begin(store, "one")
            await ask(server.url, "ALTER DATABASE postgres SET default_transaction_read_only = on")
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kipu'"
            await ask(server.url, ended)
            await asyncio.gather(*(store.head("one") for _ in range(12)))
            await ask(f"{server.url}&{WRITES}", "ALTER DATABASE postgres RESET default_transaction_read_only")
            done = await asyncio.gather(*(store.append("one", [record(f"{number}")]) for number in range(6)))
            assert sorted(one.first_seq for one in done) == list(range(2, 8))


async def test_statements_that_the_server_cannot_put_in_an_order_are_tried_again() -> None:
    """With serializable transactions a crowd on one session gets through, each append once (C2, PG-28)."""
    url = fresh_schema(postgres_url(), options="-cdefault_transaction_isolation%3Dserializable")
    [(before,)] = await ask(url, ROLLED_BACK)
    async with opened(url) as one, opened(url) as two:
        await begin(one, "hot")
        work = [(one, two)[number % 2].append("hot", [record(str(number))]) for number in range(60)]
        done = await asyncio.gather(*work)
        assert sorted(each.first_seq for each in done) == list(range(2, 62))
        assert len(await log(one, "hot")) == 61
    await until(url, f"SELECT ({ROLLED_BACK}) > {before}", True)  # which is counted when connections end


async def test_deadlock_with_somebody_else_is_tried_again() -> None:
    """A change of many heads that the server ends to resolve a deadlock is done once more and succeeds (PG-28)."""
    url = fresh_schema(postgres_url())
    table = f'"{Address.parse(url).schema}".heads'
    sessions = [f"s{number:02}" for number in range(30)]
    async with opened(url) as store:
        for session_id in sessions:
            patch = HeadPatch(set={"created_at": TIME})
            await store.append(session_id, [record("x", event_type="session_init")], head=patch)
        entries = [IndexEntry(session_id, 1, ("x",)) for session_id in sessions]
        await store.index(entries, indexed=dict.fromkeys(sessions, 1))
        async with await raw(url) as other, other.transaction():
            await other.execute(b"SET LOCAL deadlock_timeout = '60s'")  # the store is to be whom it ends
            await other.execute(f"UPDATE {table} SET pinned = 0 WHERE session_id = 's15'".encode())
            dropping = asyncio.ensure_future(store.drop_index())
            await until(url, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted", True)
            await other.execute(f"UPDATE {table} SET pinned = 0 WHERE session_id <> 's15'".encode())
        async with asyncio.timeout(60):
            await dropping
        heads = [await store.head(session_id) for session_id in sessions]
        assert [head.indexed_seq for head in heads if head is not None] == [0] * 30


async def test_server_says_less_than_is_asked_of_it() -> None:
    """With synchronous_commit or fsync off `durability=fsync` is refused, and without it the store says what may be lost (B54, PG-25)."""
    with a_server(synchronous_commit="off") as server:
        url = fresh_schema(server.url)
        with pytest.raises(StoreUrlError, match="synchronous_commit=off"):
            async with opened(f"{url}&durability=fsync"):
                pass
        async with opened(url) as store:
            described = store.describe()
            assert (described.durability, "synchronous_commit=off" in described.loss_window) == ("buffered", True)
        server.set(synchronous_commit="on", fsync="off", full_page_writes="off")
        server.reload()
        await until(server.url, "SHOW fsync", "off")
        with pytest.raises(StoreUrlError, match="fsync=off"):
            async with opened(f"{url}&durability=fsync"):
                pass
        async with opened(url) as store:
            described = store.describe()
            assert described.durability == "os"
            assert any("full_page_writes=off" in note for note in described.notes)
        server.set(fsync="on", full_page_writes="on")
        server.reload()
        await until(server.url, "SHOW fsync", "on")
        async with opened(f"{url}&durability=fsync") as store:
            assert store.describe().durability == "fsync"
            assert "no standby is waited for" in store.describe().loss_window


async def test_what_is_longer_than_an_index_takes_is_said_to_be_so() -> None:
    """A retry's key of some kilobytes that do not compress is InputError, not a server that is to be waited for (B25, PG-27)."""
    chance = random.Random(7)
    key = "".join(chance.choices(string.ascii_letters + string.digits, k=9000))
    async with opened(fresh_schema(postgres_url())) as store:
        await begin(store, "one")
        with pytest.raises(InputError, match="cannot keep"):
            await store.append("one", [record("two")], idempotency_key=key)
        assert (await store.append("one", [record("two")])).first_seq == 2
