"""The tables of a schema: made, looked at, and brought on in two phases."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from kipu.errors import NewerFormatError, OlderReleaseError
from kipu.stores.postgres import presence
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.database import connection_settings
from kipu.stores.postgres.schema import FORMAT, Migration
from kipu.stores.postgres.upkeep import check, migrate, opened
from tests.acceptance.postgres import kit
from tests.acceptance.postgres.kit import ask, begin, log, record
from tests.servers import fresh_schema, postgres_url

NEXT = FORMAT + 1
WIDER = Migration(
    NEXT,
    widen=("ALTER TABLE {schema}.heads ADD COLUMN IF NOT EXISTS mood text NOT NULL DEFAULT ''",),
    narrow=("ALTER TABLE {schema}.heads ALTER COLUMN mood DROP DEFAULT",),
)


async def kipu(*words: str, home: Path) -> tuple[int, str, str]:
    """Run a command and return how it ended and what it said."""
    command = [str(Path(sys.executable).with_name("kipu")), *words]
    pipes, environment = asyncio.subprocess.PIPE, {**os.environ, "HOME": str(home)}
    process = await asyncio.create_subprocess_exec(*command, stdout=pipes, stderr=pipes, env=environment, cwd=home)
    said = await process.communicate()
    return process.returncode or 0, said[0].decode(), said[1].decode()


async def forget_who_was_at_work(url: str) -> None:
    """Let two minutes pass for what releases noted of themselves."""
    table = f'"{Address.parse(url).schema}".meta'
    await ask(url, f"UPDATE {table} SET value = value::bigint - 121000000 WHERE name LIKE 'open.%'")


async def test_store_command_makes_checks_and_migrates(tmp_path: Path) -> None:
    """`kipu store check` finds no tables and ends with 1, `init` makes them, and then it ends with 0 (B54, PG-20)."""
    url = fresh_schema(postgres_url())
    code, said, _ = await kipu("store", "check", "--store", url, home=tmp_path)
    assert (code, "run `kipu store init`" in said) == (1, True)
    assert await ask(url, f"SELECT count(*) FROM pg_namespace WHERE nspname = '{Address.parse(url).schema}'") == [(0,)]
    assert (await kipu("store", "init", "--store", url, home=tmp_path))[0] == 0
    code, said, _ = await kipu("store", "check", "--json", "--store", url, home=tmp_path)
    answer = json.loads(said)
    assert (code, answer["is_sound"], answer["format"], answer["missing"]) == (0, True, FORMAT, [])
    code, _, told = await kipu("store", "migrate", "--store", url, home=tmp_path)
    assert (code, "nothing to do" in told) == (0, True)
    await ask(url, f'DROP INDEX "{Address.parse(url).schema}".heads_due')
    code, said, _ = await kipu("store", "--store", url, home=tmp_path)
    assert (code, "missing: heads_due" in said) == (1, True)


async def test_tables_change_in_two_phases_while_the_release_before_runs() -> None:
    """Widened by many at once, each step is done once and the release before writes on; narrowed, it only reads (C25, PG-20)."""
    url = fresh_schema(postgres_url())
    database = await opened(url)
    async with kit.opened(url) as before:
        await begin(before, "one")
        done = await asyncio.gather(*(migrate(database, migrations=[WIDER]) for _ in range(4)))
        assert sorted(done) == [[], [], [], [NEXT]]
        assert (await check(database)).is_sound
        await before.append("one", [record("widened")])
        await begin(before, "two")
    await forget_who_was_at_work(url)
    assert await migrate(database, narrow=True, migrations=[WIDER]) == [NEXT]
    assert not (await check(database)).is_sound
    await database.close()
    async with kit.opened(url) as before:
        assert len(await log(before, "one")) == 2
        with pytest.raises(NewerFormatError):
            await before.append("one", [record("narrowed")])


async def test_tables_are_not_narrowed_under_a_release_that_is_at_work() -> None:
    """While a release that the step shuts out has the store open, narrowing is refused and changes nothing (B54, PG-21)."""
    url = fresh_schema(postgres_url())
    schema = Address.parse(url).schema
    database = await opened(url)
    async with kit.opened(url) as before:
        await begin(before, "one")
        await migrate(database, migrations=[WIDER])
        with pytest.raises(OlderReleaseError, match=f"format {FORMAT}"):
            await migrate(database, narrow=True, migrations=[WIDER])
        assert await ask(url, f"SELECT value FROM \"{schema}\".meta WHERE name = 'oldest'") == [(str(FORMAT),)]
        await before.append("one", [record("it goes on")])
    with pytest.raises(OlderReleaseError):  # it may be gone for a moment only
        await migrate(database, narrow=True, migrations=[WIDER])
    await forget_who_was_at_work(url)
    assert await migrate(database, narrow=True, migrations=[WIDER]) == [NEXT]
    await database.close()


async def test_release_that_becomes_too_old_while_it_runs_stops_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was open when the tables were narrowed finds it out at its next look, and writes nothing after (PG-21)."""
    monkeypatch.setattr(presence, "BEAT_S", 0.05)
    url = fresh_schema(postgres_url())
    database = await opened(url)
    async with kit.opened(url) as frozen:
        await begin(frozen, "one")
        await migrate(database, migrations=[WIDER])
        await ask(url, f"UPDATE \"{Address.parse(url).schema}\".meta SET value = '{NEXT}' WHERE name = 'oldest'")
        async with asyncio.timeout(60):
            while not frozen.describe().read_only:  # noqa: ASYNC110 - it looks by itself
                await asyncio.sleep(0.01)
        with pytest.raises(NewerFormatError):
            await frozen.append("one", [record("too old")])
        assert len(await log(frozen, "one")) == 1
    await database.close()


def test_url_gives_the_driver_what_is_not_kipus_own() -> None:
    """What libpq knows goes through as it is and wins over what Kipu would set; Kipu's own does not (PG-1)."""
    address = Address.parse(
        "postgresql://me@h1:5432,h2:5433/db?sslmode=verify-full&connect_timeout=3&schema=x&connections=3&application_name=a"
    )
    assert address.driver_url == (
        "postgresql://me@h1:5432,h2:5433/db?sslmode=verify-full&connect_timeout=3&application_name=a"
    )
    assert (address.schema, address.connections) == ("x", 3)
    settings = connection_settings(address)
    assert not {"connect_timeout", "application_name"} & set(settings)
    assert "statement_timeout=10000" in settings["options"]
    plain = connection_settings(Address.parse("postgresql://h/db?prepare=off&options=-csearch_path%3Dx"))
    assert "options" not in plain
    assert plain["prepare_threshold"] is None
