"""The reference of W2: many sessions at once, one writer thread that commits whatever waits, nothing around it.

Each session is a task that awaits every event's durability before its next, as Kipu's callers do. One wake-up of the
event loop answers a whole commit. The segment log is one file for all sessions; the SQLite variant has the tables of
`raw_schema`; the third variant has no group commit: a file per session, a thread per session, a sync per event.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from bench.raw_schema import add_head, connect, write_event
from bench.workload import WINDOW, event_dicts, turns

Event = dict[str, object]
Waiting = tuple[Event, bytes, "asyncio.Future[None]"]


class GroupWriter:
    """Commit whatever waits, in order, from one thread; resolve the waiters with one call into the loop."""

    def __init__(self, commit: Callable[[list[Waiting]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._commit = commit
        self._waiting: list[Waiting] = []
        self._wake = threading.Event()
        self._closing = False
        self.commits = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def append(self, event: Event) -> None:
        """Return when the event is durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((event, orjson.dumps(event), future))
        self._wake.set()
        await future

    async def close(self) -> None:
        """End the thread after what waits."""
        self._closing = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            if batch:
                self._commit(batch)
                self.commits += 1
                self._loop.call_soon_threadsafe(_resolve, batch)
            elif self._closing:
                return


def _resolve(batch: list[Waiting]) -> None:
    for _, _, future in batch:
        future.set_result(None)


def segment_log(directory: Path, *, sessions: int, turns_each: int, at_once: int) -> dict[str, float]:
    """Write every batch with one os.write and one fdatasync into one file for all sessions."""
    file = os.open(directory / "segment.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def commit(batch: list[Waiting]) -> None:
        block = b"\n".join([body for _, body, _ in batch]) + b"\n"
        if os.write(file, block) != len(block):
            raise OSError("short write")
        os.fdatasync(file)

    return asyncio.run(_run_all(lambda: commit, sessions=sessions, turns_each=turns_each, at_once=at_once))


def sqlite(directory: Path, *, sessions: int, turns_each: int, at_once: int) -> dict[str, float]:
    """Write every batch as one transaction of head updates and event rows."""
    connection = connect(directory / "raw.sqlite")
    connection.execute("BEGIN IMMEDIATE")
    numbers: dict[object, int] = {
        name: add_head(connection, name) for name in (f"sess_{session}" for session in range(sessions))
    }
    connection.execute("COMMIT")
    last_seq: dict[int, int] = {}

    def commit(batch: list[Waiting]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for event, body, _ in batch:
            session = numbers[event["session_id"]]
            seq = last_seq[session] = last_seq.get(session, 0) + 1
            write_event(connection, event, session=session, seq=seq, body=body)
        connection.execute("COMMIT")

    return asyncio.run(_run_all(lambda: commit, sessions=sessions, turns_each=turns_each, at_once=at_once))


async def _run_all(
    make_commit: Callable[[], Callable[[list[Waiting]], None]], *, sessions: int, turns_each: int, at_once: int
) -> dict[str, float]:
    conversation = turns(turns_each)
    writer = GroupWriter(make_commit())
    gate = asyncio.Semaphore(at_once)

    async def one(session: int) -> None:
        async with gate:
            window: list[Event] = []
            for turn in conversation:
                for event in event_dicts(turn, session_id=f"sess_{session}"):
                    await writer.append(event)
                    window.append(event)
                list(window[-WINDOW:])

    start_s = time.perf_counter()
    await asyncio.gather(*(one(session) for session in range(sessions)))
    wall_s = time.perf_counter() - start_s
    await writer.close()
    total = sessions * turns_each
    return {"wall_s": wall_s, "turns_per_s": total / wall_s, "events_per_commit": total * 4 / writer.commits}


def file_per_session(directory: Path, *, sessions: int, turns_each: int, at_once: int) -> dict[str, float]:
    """Give every session its own file and sync every event, with a thread for each session at work."""
    conversation = turns(turns_each)

    def one(session: int) -> None:
        path = directory / f"{session}.jsonl"
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        window: list[Event] = []
        for turn in conversation:
            for event in event_dicts(turn, session_id=f"sess_{session}"):
                os.write(file, orjson.dumps(event) + b"\n")
                os.fdatasync(file)
                window.append(event)
            list(window[-WINDOW:])
        os.close(file)

    start_s = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, range(sessions)))
    wall_s = time.perf_counter() - start_s
    return {"wall_s": wall_s, "turns_per_s": sessions * turns_each / wall_s, "events_per_commit": 1.0}


if __name__ == "__main__":
    from bench.alone import main

    size = {"sessions": 200, "turns_each": 50, "at_once": 32}
    for name in ("segment_log", "sqlite", "file_per_session"):
        main(f"bench.raw_group_commit:{name}", size, quick=size | {"sessions": 64, "turns_each": 10})
