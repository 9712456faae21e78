"""Opening a PostgreSQL store: what is wrong is said without a secret, and many may open it at once."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from kipu.errors import KipuError, NewerFormatError, StoreUnavailableError, StoreUrlError
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.schema import FORMAT
from kipu.stores.postgres.store import PostgresStore
from kipu.testing.fakes import FakeLiveness
from tests.acceptance.postgres.kit import ask, begin, log, opened, own_server, record, text_of
from tests.servers import fresh_schema, postgres_url

SECRET = "s3cret/word"
AT_ONCE_S = 10.0
IN_TIME_S = 15.0
OPEN = """
import asyncio, sys
from kipu.wiring import open_store
async def main():
    store = await open_store(sys.argv[1])
    await store.close()
asyncio.run(main())
"""


def everything_said(error: BaseException) -> str:
    """Return all that an error and what lies behind it say."""
    said = [str(error), repr(error), str(getattr(error, "data", ""))]
    return " ".join(said) + (everything_said(error.__cause__) if error.__cause__ else "")


async def test_wrong_password_is_told_without_the_password() -> None:
    """A password that the server refuses is StoreUnavailableError that says so and does not hold it (B54, PG-2)."""
    with own_server() as server:
        (server.folder / "pg_hba.conf").write_text("local all all scram-sha-256\n")
        server.control("reload")
        url = re.sub("postgres:?@", "postgres:s3cret%2Fword@", server.url)
        with pytest.raises(StoreUnavailableError) as failure:
            await PostgresStore.open(url, liveness=FakeLiveness())
    assert "password authentication failed" in str(failure.value)
    assert "s3cret" not in everything_said(failure.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@host/db",
        "postgresql://me:s3cret@word@host/db",
        "postgresql://me:s3cret#word@host/db",
        "postgresql://me:s3cret@host:port/db",
        "postgresql://me:s3cret@host/db?password",
        "postgresql://me:s3cret@host/db?password=s3cret&connections=none",
        "postgresql://me:s3cret@[::1/db",
    ],
)
def test_url_that_cannot_be_taken_apart_is_refused_without_its_password(url: str) -> None:
    """A URL whose password was not encoded, or that is wrong elsewhere, is refused by words without the password (PG-2)."""
    with pytest.raises(StoreUrlError) as failure:
        Address.parse(url)
    assert "s3cret" not in everything_said(failure.value)


@pytest.mark.parametrize(
    "place",
    [
        "me:s3cret word@host/db",
        "me:s3cret%zz@host/db",
        "me:s3cret%ff@host/db",
        "me:s3cret@host/db%00",
        "me\ud800:s3cret@host/db",
        "me:s3cret@host/db?nonsense=s3cret",
    ],
)
async def test_url_that_the_driver_refuses_is_refused_without_its_password(place: str) -> None:
    """What the driver cannot take apart is StoreUrlError too, and none of the driver's words, which quote it, are told (PG-2)."""
    with pytest.raises(StoreUrlError) as failure:
        await PostgresStore.open(f"postgresql://{place}", liveness=FakeLiveness())
    told = f"{everything_said(failure.value)} {failure.value.__context__}"
    assert "s3cret" not in told.replace("nonsense=s3cret", "")  # no setting that anybody knows for a password


async def test_database_of_this_machine_needs_no_host_and_its_settings_are_read_as_the_driver_does() -> None:
    """`postgresql:///database` leads to the server's socket, and a plus in a setting is a plus (PG-1)."""
    with own_server() as server:
        await ask(server.url, "ALTER ROLE postgres PASSWORD 'a+b%'")
        (server.folder / "pg_hba.conf").write_text("local all all scram-sha-256\n")
        server.control("reload")
        url = f"postgresql:///postgres?user=postgres&password=a+b%25&host={server.folder}"
        store = await PostgresStore.open(url, liveness=FakeLiveness())
        try:
            await begin(store, "one")
            assert [text_of(event) for event in await log(store, "one")] == ["begin"]
            shown = store.describe().url
        finally:
            await store.close()
    assert shown == f"postgresql:///postgres?user=postgres&host={quote(str(server.folder), safe='')}"
    assert Address.parse(url).shown == Address.parse(shown).shown


async def test_server_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    """A server that is not there is StoreUnavailableError within seconds, and the URL's password is in no word of it (PG-2)."""
    url = f"postgresql://me:s3cret@/db?host={tmp_path}"
    async with asyncio.timeout(AT_ONCE_S):
        with pytest.raises(StoreUnavailableError) as failure:
            await PostgresStore.open(url, liveness=FakeLiveness())
    assert "s3cret" not in everything_said(failure.value)


async def test_tables_are_made_once_by_many_at_once() -> None:
    """Processes and tasks that open a new schema at the same moment all succeed, and it works (B54, PG-3)."""
    url = fresh_schema(postgres_url(), connections="2")
    command = [sys.executable, "-c", OPEN, url]
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(2)]
    stores = await asyncio.gather(*(PostgresStore.open(url, liveness=FakeLiveness()) for _ in range(3)))
    assert [await process.wait() for process in processes] == [0, 0]
    await begin(stores[0], "one")
    assert [text_of(event) for event in await log(stores[2], "one")] == ["begin"]
    for store in stores:
        await store.close()


async def test_schema_of_another_program_is_left_alone() -> None:
    """A schema with a table `meta` of another program's is StoreUrlError, and nothing is made there (PG-4)."""
    url = fresh_schema(postgres_url())
    schema = Address.parse(url).schema
    await ask(url, f'CREATE SCHEMA "{schema}"')
    await ask(url, f'CREATE TABLE "{schema}".meta(name text PRIMARY KEY, value text)')
    with pytest.raises(StoreUrlError):
        await PostgresStore.open(url, liveness=FakeLiveness())
    assert await ask(url, f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'") == [(1,)]


async def test_newer_tables_are_written_until_they_say_otherwise() -> None:
    """Tables that a newer release has widened are written; once they name a newer `oldest`, they are read only (B54, PG-5)."""
    url = fresh_schema(postgres_url())
    schema = Address.parse(url).schema
    async with opened(url) as store:
        await begin(store, "one")
    await ask(url, f"UPDATE \"{schema}\".meta SET value = '{FORMAT + 1}' WHERE name = 'format'")
    await ask(url, f'ALTER TABLE "{schema}".heads ADD COLUMN invented text')
    await ask(url, f"ALTER TABLE \"{schema}\".events ADD COLUMN invented text NOT NULL DEFAULT ''")
    async with opened(url) as store:
        await store.append("one", [record("by the old release")])
    await ask(url, f"UPDATE \"{schema}\".meta SET value = '{FORMAT + 1}' WHERE name = 'oldest'")
    async with opened(url) as store:
        assert store.describe().read_only
        assert len(await log(store, "one")) == 2
        with pytest.raises(NewerFormatError):
            await store.append("one", [record("too old")])


async def test_store_behind_a_pooler_works_without_notices_and_prepared_statements() -> None:
    """With notify=off and prepare=off all is done, followers across stores included, and nothing is set on a connection (PG-7)."""
    url = fresh_schema(postgres_url(), notify="off", prepare="off")
    async with opened(url) as one, opened(url) as two:
        await begin(one, "s")
        events, everything = two.follow("s"), two.follow()
        waiting = asyncio.ensure_future(anext(everything))
        assert text_of(await anext(events)) == "begin"
        await two.append("s", [record("its own")])  # which waits until what this store follows has begun
        await one.append("s", [record("more"), *[record(str(number)) for number in range(40)]], idempotency_key="k")
        async with asyncio.timeout(60):
            assert [text_of(await anext(events)) for _ in range(2)] == ["its own", "more"]
            assert text_of(await waiting) == "its own"
            assert text_of(await anext(everything)) == "more"
        assert (await two.append("s", [record("x")], idempotency_key="k")).duplicate
        lease = await two.claim("s", owner="me", ttl_s=30)
        assert lease is not None
        await two.erase("s", lease=lease)
        assert any("looked for" in note for note in one.describe().notes)
    rows = await ask(url, "SELECT count(*) FROM pg_prepared_statements")
    assert rows == [(0,)]


async def test_statement_that_takes_too_long_is_given_up() -> None:
    """A statement that the server cannot end in time is StoreUnavailableError, has changed nothing, and may be tried again (PG-6)."""
    url = fresh_schema(postgres_url(), statement_timeout_s="1")
    schema = Address.parse(url).schema
    async with opened(url) as store, opened(url) as other:
        await begin(store, "one")
        from tests.acceptance.postgres.kit import raw

        async with await raw(url) as connection, connection.transaction():
            await connection.execute(f'LOCK TABLE "{schema}".heads'.encode())
            with pytest.raises(StoreUnavailableError, match="statement_timeout_s"):
                await store.append("one", [record("late")])
        assert (await store.append("one", [record("later")])).first_seq == 2
        assert len(await log(other, "one")) == 2


async def test_connections_are_waited_for_in_turn() -> None:
    """With one connection a crowd of appends, with keys, bindings and one hot session, waits and does not lock itself up (PG-12)."""
    url = fresh_schema(postgres_url(), connections="1")
    async with opened(url) as one, opened(url) as two:
        await begin(one, "hot")
        stores = (one, two)
        work = [
            stores[number % 2].append("hot", [record(str(number))], idempotency_key=f"k{number // 2}")
            for number in range(40)
        ]
        async with asyncio.timeout(60):
            await asyncio.gather(*work, *(begin(stores[n % 2], f"s{n}") for n in range(20)))
        assert len(await log(one, "hot")) == 21


async def test_pool_that_stays_exhausted_is_told() -> None:
    """Where no connection comes free in time, it is StoreUnavailableError within that time and not a minute later (PG-12)."""
    url = fresh_schema(postgres_url(), connections="1", statement_timeout_s="1")
    schema = Address.parse(url).schema
    async with opened(url) as store:
        await begin(store, "one")
        from tests.acceptance.postgres.kit import raw

        async with await raw(url) as connection, connection.transaction():
            await connection.execute(f'LOCK TABLE "{schema}".heads'.encode())
            async with asyncio.timeout(IN_TIME_S):
                outcomes = await asyncio.gather(
                    *(store.append(f"s{n}", [record("x", event_type="session_init")]) for n in range(12)),
                    return_exceptions=True,
                )
        assert all(isinstance(outcome, KipuError) for outcome in outcomes)
        assert any("every connection is in use" in str(outcome) for outcome in outcomes)
        assert (await store.append("one", [record("after")])).first_seq == 2
