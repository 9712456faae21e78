"""PostgreSQL with every table of sessions in parts: the whole contract, and what the server was asked to do for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import psycopg
import pytest

from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import EventStore
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.database import Database
from kipu.stores.postgres.partitioning import make_in_parts
from kipu.testing.conformance import Requirement, all_requirements
from kipu.testing.conformance.expectation import NotSupportedError
from kipu.testing.conformance.place import FunctionPlace
from kipu.testing.conformance.runner import check
from tests.architecture.sql_rules import OVER_ALL, banned_in, is_whole, unplaced
from tests.architecture.sql_source import sql_texts
from tests.conformance.test_postgres import KEPT_BY_A_SERVER
from tests.servers import fresh_schema, open_postgres, postgres_url

PARTS = 2
COMPOSED = {"appending.py", "following.py", "heads.py", "listing.py", "reading.py", "searching.py"}
SESSIONS_TABLES = ("heads", "events", "blobs", "members", "docs")


@cache
def _logging_url() -> str:
    """Return the URL of a server of this run that keeps every statement in its log."""
    url = postgres_url()
    return f"{url}{'&' if '?' in url else '?'}options=-c%20log_statement%3Dall%20-c%20synchronous_commit%3Doff"


async def _open(url: str, *, clock: Clock, liveness: Liveness) -> EventStore:
    database = Database(Address.parse(url))
    await database.open()
    try:
        if not (await database.rows("SELECT to_regclass(%s) IS NOT NULL", (f"{database.address.schema}.meta",)))[0][0]:
            await make_in_parts(database, PARTS, names=SESSIONS_TABLES)
    finally:
        await database.close()
    return await open_postgres(url, clock=clock, liveness=liveness)


@pytest.mark.parametrize(
    "requirement",
    # Processes beside one another ask nothing else of the server, and take most of the time.
    [
        pytest.param(one, id=f"{one.id}-{one.name}")
        for one in all_requirements()
        if not {"files", "multi_process"} & set(one.needs)
    ],
)
async def test_requirement_in_parts(requirement: Requirement) -> None:
    """With its tables in parts by the hash of the session's id the store does what the contract says (PG-17, PG-40)."""
    # All tables are made in one transaction, which the server ends where this process stands still for so long within it.
    url = fresh_schema(_logging_url(), statement_timeout_s="60")
    place = FunctionPlace(partial(_open, url), KEPT_BY_A_SERVER)
    try:
        await check(requirement, place)
    except NotSupportedError as error:
        pytest.skip(str(error))


def _said(text: str) -> str:
    """Return a statement as the log and the source both have it: one space between words, places without their numbers."""
    text = re.sub(r'"?t_[0-9a-f]{16}"?', "{schema}", text)
    return " ".join(re.sub(r"\$\d+|%[sb]", "%s", text).split())


@pytest.fixture(scope="module")
def asked() -> list[str]:
    """Return each statement that the suite above had the server carry out, once."""
    with psycopg.connect(postgres_url()) as connection:
        row = connection.execute("SELECT current_setting('data_directory')").fetchone()
    assert row is not None
    return sorted(set(_statements(Path(row[0], "log"))))


def _statements(log: Path) -> Iterator[str]:
    text = log.read_text(encoding="utf-8", errors="replace") + "\n0000-00-00 "
    for found in re.finditer(
        r"LOG:  (?:statement|execute [^:\n]*): (.*?)(?=^\d{4}-\d\d-\d\d )", text, re.DOTALL | re.MULTILINE
    ):
        statement = _said(found[1])
        if "{schema}" in statement:
            yield statement


def test_what_the_suite_asked_keeps_to_the_rules(asked: list[str]) -> None:
    """Every statement that the suite makes the server carry out is in the common SQL and says of which session it is (PG-16, PG-17)."""
    ours = [one for one in asked if not one.startswith(("SELECT pg_notify", "LISTEN "))]
    assert len(ours) > 60, "the suite did not run before, or the log is not read"
    strays = [f"{what}: {one[:200]}" for one in ours if is_whole(one) for what in (*banned_in(one), *unplaced(one))]
    assert not strays, "\n".join(strays)
    assert all(map(is_whole, ours)), [one for one in ours if not is_whole(one)]


def test_every_text_of_the_store_was_asked(asked: list[str]) -> None:
    """No text of the store that is put together while it runs is left out of what the suite asked and the rules looked at (PG-16)."""
    everything = "\n".join(asked)
    unseen = [
        f"{one.file}: {piece}"
        for one in sql_texts()
        for piece in map(_said, one.pieces)
        if not is_whole(one.text) and piece not in everything and Path(one.file).name in COMPOSED
    ]
    assert not unseen, "\n".join(unseen)


def test_no_statement_over_all_sessions_is_listed_in_vain(asked: list[str]) -> None:
    """Each entry in the list of statements over all sessions is one that the store uses (PG-17)."""
    unused = [pattern for pattern in OVER_ALL if not any(re.search(pattern, one) for one in asked)]
    assert unused in ([], [next(reversed(OVER_ALL))]), unused  # old keys are forgotten with every 256th
