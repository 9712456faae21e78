"""A SQLite store in use moved to PostgreSQL: how fast it is copied, and for how long neither store takes anything."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from pathlib import Path
from typing import Any

from bench.kipu_postgres import BODY, TIME, bare, serve
from kipu.errors import StoreBeingFilledError, StoreMovedError
from kipu.manager.moving import StoreMove
from kipu.manager.store_tail import StoreTail
from kipu.ports.head import HeadPatch
from kipu.ports.store import EventStore, Record
from kipu.stores.event_row import row_of
from kipu.stores.host import SystemClock, SystemLiveness
from kipu.stores.times import iso_from_us
from kipu.wiring import open_store

TURN = ("turn_started", "tool_call", "tool_result", "agent_message")  # behind each message, which has a key of its own
_FIELDS = (
    "session_id",
    "seq",
    "event_id",
    "event_type",
    "timestamp",
    "tokens",
    "turn_id",
    "trace_id",
    "principal",
    "v",
    "crc",
    "body",
)
_BODIES = {
    "session_init": b'{"owner":"local","tenant":"","key":null,"format":1}',
    "user_message": b'{"content":"' + b"m" * 400 + b'"}',
    "turn_started": b'{"turn_id":"t","consumes":[],"worker":"w","token":1}',
    "tool_call": b'{"tool_name":"look","tool_call_id":"c","tool_input":{}}',
    "tool_result": b'{"tool_call_id":"c","result":"' + b"r" * 1200 + b'"}',
    "agent_message": BODY,
}


def record(event_type: str) -> Record:
    """Return an event."""
    return Record(f"0190-{uuid.uuid4().hex}", event_type, TIME, _BODIES[event_type], tokens=100)


async def fill(store: EventStore, *, sessions: int, events: int) -> None:
    """Make sessions of so many events each."""
    for number in range(sessions):
        session_id = f"sess_{number:06}"
        patch = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME, "status": "active", "owner": "local"})
        await store.append(session_id, [record("session_init")], head=patch)
        for step in range((events - 1) // (1 + len(TURN))):
            await store.append(session_id, [record("user_message")], idempotency_key=f"{session_id}/{step}")
            await store.append(session_id, [record(each) for each in TURN])


def moves(directory: Path, *, sessions: int, events: int, writes_per_s: int) -> dict[str, float]:
    """Return events per second of a first copy, of bare COPY of the same rows, and the pause of the cut-over under writers."""
    return asyncio.run(_moves(directory, sessions=sessions, events=events, writes_per_s=writes_per_s))


async def _moves(directory: Path, *, sessions: int, events: int, writes_per_s: int) -> dict[str, float]:
    server = serve(directory)
    place = f"sqlite:///{directory}/a.db?durability=os"
    source, users = await open_store(place), await open_store(place)
    target, later = await open_store(server), await open_store(server)
    await fill(source, sessions=sessions, events=events)
    writers = _Writers(users, later, sessions=sessions)
    tail = StoreTail(source, target, owner="bench")
    clock = SystemClock()

    async def nothing() -> None:
        return None

    work = StoreMove(
        source,
        target,
        names=("the://source", "the://target"),
        tail=tail,
        owner="bench",
        liveness=SystemLiveness(),
        move="bench",
        now=lambda: iso_from_us(clock.now_us()),
        beside=nothing,
    )
    await work.begin()
    began_s = time.perf_counter()
    await work.copy()
    copied_s = time.perf_counter() - began_s
    copied = tail.report.events
    writing = asyncio.ensure_future(writers.run(writes_per_s))
    await asyncio.sleep(2.0)
    done = await work.cut_over(wait_s=5.0)
    await writing
    await tail.end()
    floor = await _bare_copy(server, source, sessions=sessions, events=copied)
    for store in (source, users, target, later):
        await store.close()
    return {
        "copy_per_s": copied / copied_s,
        "bare_per_s": floor,
        "pause_ms": writers.pause_s * 1_000,
        "inner_pause_ms": done.pause_s * 1_000,
        "tail_sessions": done.tail_sessions,
        "events": copied,
    }


class _Writers:
    """Append messages to one store until it refuses, then to the other until it accepts."""

    def __init__(self, source: EventStore, target: EventStore, *, sessions: int) -> None:
        self._source = source
        self._target = target
        self._sessions = sessions
        self._chance = random.Random(7)
        self.pause_s = 0.0

    async def run(self, per_s: int) -> None:
        """Write so often, until one message was accepted by the target."""
        session_id, number = "", 0
        for number in itertools.count():
            session_id = f"sess_{self._chance.randrange(self._sessions):06}"
            try:
                await self._source.append(session_id, [record("user_message")], idempotency_key=f"live/{number}")
            except StoreMovedError:
                break
            await asyncio.sleep(1 / per_s)
        refused_s = time.perf_counter()
        while True:
            try:
                await self._target.append(session_id, [record("user_message")], idempotency_key=f"live/{number}")
            except StoreBeingFilledError:
                await asyncio.sleep(0.01)
                continue
            break
        self.pause_s = time.perf_counter() - refused_s


async def _bare_copy(server: str, source: EventStore, *, sessions: int, events: int) -> float:
    """Return how many of the same events per second the driver's COPY puts into a table that has nothing but them."""
    rows: list[tuple[Any, ...]] = []
    for number in range(min(sessions, 500)):
        found = await source.read(f"sess_{number:06}")
        rows += [(each.session_id, *row_of(each.session_id, each.record, seq=each.seq)) for each in found]
    connection = await bare(server)
    await connection.execute(
        "CREATE TABLE floor(session_id text, seq bigint, event_id text, event_type text, timestamp text, tokens bigint,"
        " turn_id text, trace_id text, principal text, v int, crc bigint, body bytea, PRIMARY KEY (session_id, seq))"
    )
    began_s = time.perf_counter()
    async with connection.cursor() as cursor, cursor.copy(f"COPY floor({', '.join(_FIELDS)}) FROM STDIN") as pipe:
        for row in rows:
            await pipe.write_row(row)
    spent_s = time.perf_counter() - began_s
    await connection.close()
    return len(rows) / spent_s
