"""Worker processes with a scripted model over PostgreSQL, on a server of its own in the directory.

Run as a module, it is one of them: python -m bench.kipu_workers URL CONCURRENCY LEASE_S HOST
"""

from __future__ import annotations

import asyncio
import signal
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.kipu_postgres import Bare, bare, begin, fill, opened, serve
from bench.kipu_runtime import Builder
from kipu.manager.manager import SessionManager
from kipu.ports.model import ModelRequest
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.worker import Worker
from kipu.testing.scripted_model import ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager

MODEL_S = 0.05
A_CHAT = 3  # messages that wait in each session
CORES = 2
HELD = 20  # sessions in a queue whose turn runs


async def work(url: str, *, concurrency: int, lease_s: float) -> None:
    """Be a worker: say when it is ready, begin when told, end at SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

    async def think() -> None:
        await asyncio.sleep(MODEL_S)

    def answer(_request: ModelRequest) -> ScriptedReply:
        return ScriptedReply("Seen.", before=think)

    async with await open_manager(url, lease_ttl_s=lease_s) as manager:
        builder = Builder(manager, ScriptedModelClient(answer))
        orchestrator = Orchestrator(manager, builder, monotonic_s=time.monotonic)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        async with Worker(manager, orchestrator, max_turns=concurrency):
            await ended.wait()
        await orchestrator.close()


class WorkerProcess:
    """One of them, as the figures start and end it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, url: str, *, concurrency: int, lease_s: float = 15.0, host: str = "") -> WorkerProcess:
        """Start one and return when it could begin. With a `host`, it says that it is there."""
        pipe = asyncio.subprocess.PIPE
        words = (url, str(concurrency), str(lease_s), host)
        command = (sys.executable, "-m", "bench.kipu_workers", *words)
        found = cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))
        assert found.process.stdout is not None
        await found.process.stdout.readline()
        return found

    def begin(self) -> None:
        """Let it take turns."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    async def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        await self.process.communicate()

    async def end(self) -> None:
        """End it in order."""
        self.process.terminate()
        await self.process.communicate()


@asynccontextmanager
async def _placed(directory: Path) -> AsyncIterator[tuple[str, SessionManager, Bare]]:
    url = serve(directory)
    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(await open_manager(url))
        yield url, manager, await stack.enter_async_context(await bare(url))


async def _say(manager: SessionManager, chat: str, *, times: int = 1) -> str:
    bus, session_id = MessageBus(manager), ""
    for number in range(times):
        message = InboundEvent(channel="bench", chat_id=chat, sender_id="ada", content=f"message {number}")
        session_id = (await bus.publish(message)).session_id
    return session_id


async def _one(connection: Bare, sql: str) -> Any:
    row = await (await connection.execute(sql.encode())).fetchone()
    return None if row is None else row[0]


async def _until_finished(connection: Bare, turns: int) -> None:
    count = "SELECT count(*) FROM kipu.events WHERE event_type = 'turn_finished'"
    while await _one(connection, count) < turns:  # noqa: ASYNC110 - another process tells
        await asyncio.sleep(0.1)


# ---- scaling -------------------------------------------------------------------------------------------------------


def scaling(directory: Path, *, workers: int, turns: int, concurrency: int = 1) -> dict[str, float]:
    """Return how many turns a second so many processes run, each at so many at once, and how busy the processors were."""
    return asyncio.run(_scaling(directory, workers=workers, turns=turns, concurrency=concurrency))


async def _scaling(directory: Path, *, workers: int, turns: int, concurrency: int) -> dict[str, float]:
    async with _placed(directory) as (url, manager, connection):
        chats = -(-turns // A_CHAT)
        for chat in range(chats):
            await _say(manager, str(chat), times=A_CHAT)
        processes = [await WorkerProcess.start(url, concurrency=concurrency) for _ in range(workers)]
        before, began = _busy_s(), time.perf_counter()
        for process in processes:
            process.begin()
        await _until_finished(connection, chats * A_CHAT)
        cpu_s, took_s = _busy_s() - before, time.perf_counter() - began
        for process in processes:
            await process.end()
        span = "SELECT extract(epoch FROM max(at) - min(at))::float FROM kipu.events WHERE event_type = '{}'"
        ran_s = await _one(connection, span.format("turn_finished"))
    return {"turns_per_s": (chats * A_CHAT - 1) / ran_s, "cpu_share": cpu_s / took_s / CORES}


def _busy_s() -> float:
    """Return how long all processors were busy, the server and everybody else included."""
    user, nice, system, *_ = (int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system) / 100


# ---- one turn after the other ----------------------------------------------------------------------------------------


def followups(directory: Path, *, turns: int) -> dict[str, float]:
    """Return how long after the end of a turn the next one of its session begins, by the server's times of both commits."""
    return asyncio.run(_followups(directory, turns=turns))


async def _followups(directory: Path, *, turns: int) -> dict[str, float]:
    async with _placed(directory) as (url, manager, connection):
        for chat in range(4):
            await _say(manager, str(chat), times=turns // 4)
        process = await WorkerProcess.start(url, concurrency=16)
        process.begin()
        await _until_finished(connection, turns // 4 * 4)
        await process.end()
        text = (
            "SELECT extract(epoch FROM next - at)::float * 1000 FROM (SELECT at, event_type, lead(at) OVER"
            " (PARTITION BY session_id ORDER BY seq) AS next FROM kipu.events WHERE event_type IN ('turn_started',"
            " 'turn_finished')) AS e WHERE event_type = 'turn_finished' AND next IS NOT NULL ORDER BY 1"
        )
        laps = [row[0] for row in await (await connection.execute(text.encode())).fetchall()]
    return {"followup_ms": statistics.median(laps), "followup_p99_ms": laps[int(len(laps) * 0.99)]}


# ---- a long queue ----------------------------------------------------------------------------------------------------


def queue(directory: Path, *, waiting: int) -> dict[str, float]:
    """Return what looking for work and taking a session cost while so many sessions wait, and the bare statements."""
    return asyncio.run(_queue(serve(directory), waiting=waiting))


async def _queue(url: str, *, waiting: int) -> dict[str, float]:
    async with opened(url) as store, await bare(url) as connection:
        await begin(store, "long")
        await fill(connection, sessions=waiting, due=True)
        for number in range(HELD):
            assert await store.claim(f"s{number * (waiting // HELD)}", owner="another", ttl_s=600) is not None
        looks, claims, bare_looks, bare_claims = [], [], [], []
        now = "2027-01-15T08:00:00.000000Z"
        free = (
            "SELECT session_id, data FROM kipu.heads WHERE due_at IS NOT NULL AND due_at <= %s AND (lease_owner IS NULL"
            " OR lease_until <= %s) ORDER BY due_at, last_event_at, session_id LIMIT 100"
        )
        take = "UPDATE kipu.heads SET version = version + 1, data = data WHERE session_id = %s AND data IS NOT NULL"
        for lap in range(200):
            session_id = f"s{(lap * 7919) % waiting}"
            if lap * 7919 % waiting % (waiting // HELD) == 0:
                continue
            began = time.perf_counter()
            await store.runnable(now=now, limit=100)
            looked = time.perf_counter()
            lease = await store.claim(session_id, owner="bench", ttl_s=30)
            took = time.perf_counter()
            assert lease is not None
            await store.release(lease)
            begun = time.perf_counter()
            await (await connection.cursor(binary=True).execute(free.encode(), (now, now))).fetchall()
            found = time.perf_counter()
            await connection.execute(take.encode(), (session_id,))
            ended = time.perf_counter()
            for laps, lap_s in zip(
                (looks, claims, bare_looks, bare_claims),
                (looked - began, took - looked, found - begun, ended - found),
                strict=True,
            ):
                laps.append(lap_s * 1_000)
    names = ("look_ms", "claim_ms", "bare_look_ms", "bare_claim_ms")
    return dict(zip(names, map(statistics.median, (looks, claims, bare_looks, bare_claims)), strict=True))


# ---- takeovers -------------------------------------------------------------------------------------------------------


def takeovers(directory: Path, *, kills: int, lease_s: float) -> dict[str, float]:
    """Return how long after a worker's SIGKILL a worker on another host goes on with its turn."""
    return asyncio.run(_takeovers(directory, kills=kills, lease_s=lease_s))


async def _takeovers(directory: Path, *, kills: int, lease_s: float) -> dict[str, float]:
    async with _placed(directory) as (url, manager, _):
        laps = []
        for number in range(kills):
            victim = await WorkerProcess.start(url, concurrency=1, lease_s=lease_s, host=f"victim-{number}")
            victim.begin()
            other = await WorkerProcess.start(url, concurrency=1, lease_s=lease_s, host=f"other-{number}")
            session_id = await _say(manager, str(number))
            session = await manager.open(session_id)
            async for event in session.follow():
                if event.event_type == "turn_started":
                    other.begin()
                    began = time.perf_counter()
                    await victim.kill()
                if event.event_type == "turn_resumed":
                    laps.append(time.perf_counter() - began)
                if event.event_type == "turn_finished":
                    break
            await other.end()
    return {"takeover_s": statistics.median(laps), "takeover_worst_s": max(laps)}


def main() -> None:
    """Be a worker."""
    url, concurrency, lease_s, host = sys.argv[1:]
    if host:
        setattr(socket, "gethostname", lambda: host)  # noqa: B010 - elsewhere nobody can tell that it is dead
    asyncio.run(work(url, concurrency=int(concurrency), lease_s=float(lease_s)))


if __name__ == "__main__":
    main()
