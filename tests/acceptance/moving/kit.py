"""What tests of moving a store begin with: processes that use it, and what must hold at the end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kipu.events.conversation import UserMessageEvent
from kipu.manager.copying import heads_of
from kipu.manager.loader import item_of
from kipu.manager.replaying import difference
from kipu.ports.head import head_to_json
from kipu.ports.store import EventStore, StoredEvent
from kipu.wiring import open_store
from tests.acceptance.runtime.soak_check import SoakLog
from tests.acceptance.runtime.soak_worker import Book

KIPU = str(Path(sys.executable).with_name("kipu"))


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a process that knows nothing of this machine's user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KIPU_", "XDG_DATA"))}
    return {
        **kept,
        "KIPU_MODEL": "demo",
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path.cwd())]),
    }


async def started(*words: str, home: Path, more: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
    """Start a process, with what `more` has of keys."""
    pipes = asyncio.subprocess.PIPE
    keys = {name: value for name, value in (more or {}).items() if name.startswith("KIPU_TEST")}
    return await asyncio.create_subprocess_exec(
        *words, stdout=pipes, stderr=pipes, env={**environment(home), **keys}, cwd=Path.cwd()
    )


async def ran(
    *words: str, home: Path, limit_s: float = 120, more: Mapping[str, str] | None = None
) -> tuple[int, list[Any], str]:
    """Run `kipu` with `--json`; return its exit code, what it told and what it complained of."""
    process = await started(KIPU, *words, "--json", home=home, more=more)
    async with asyncio.timeout(limit_s):
        out, errors = await process.communicate()
    return process.returncode or 0, [json.loads(line) for line in out.splitlines()], errors.decode()


@asynccontextmanager
async def running(*words: str, home: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process until the block ends."""
    process = await started(*words, home=home)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def worker(url: str) -> tuple[str, ...]:
    """Return the command line of a worker."""
    return (KIPU, "worker", "--store", url, "--json", "--drain-s", "10")


def chatter(name: str, folder: Path, urls: tuple[str, str]) -> tuple[str, ...]:
    """Return the command line of a program that sends messages."""
    return (sys.executable, "-m", "tests.acceptance.moving.chatter", name, str(folder), *urls)


def acknowledged(folder: Path, names: Sequence[str]) -> dict[str, tuple[int, float]]:
    """Return, of every message that was acknowledged, which store took it and when."""
    lines = [line for name in names for line in Book(folder / f"{name}.book").lines()]
    return {line[1]: (int(line[2]), float(line[3])) for line in lines if line[0] == "acked"}


def refused_at(folder: Path, names: Sequence[str]) -> list[float]:
    """Return when messages were refused."""
    lines = [line for name in names for line in Book(folder / f"{name}.book").lines()]
    return sorted(float(line[3]) for line in lines if line[0] == "refused")


async def until(condition: Any, *, limit_s: float = 90) -> None:
    """Wait until a condition holds that other processes bring about."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def until_answered(url: str, *, limit_s: float = 120) -> None:
    """Wait until no session of the store has a message that waits or a turn that is open."""
    store = await open_store(url)
    try:
        async with asyncio.timeout(limit_s):
            while [head async for head in heads_of(store) if head.waiting or head.open_turn]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    finally:
        await store.close()


async def whole(store: EventStore, session_id: str) -> list[StoredEvent]:
    """Return every own event of a session."""
    head = await store.head(session_id)
    assert head is not None
    events: list[StoredEvent] = []
    after = head.base_seq
    while after < head.last_seq:
        events += await store.read(session_id, after=after)
        after = events[-1].seq
    return events


async def messages_in(store: EventStore, *, check: bool = False) -> list[str]:
    """Return every message that is in any session, as often as it is there; with `check`, nothing may be wrong with a log."""
    found = []
    async for head in heads_of(store):
        events = [item_of(stored).event for stored in await whole(store, head.session_id)]
        found += [event.content for event in events if isinstance(event, UserMessageEvent)]
        if check:
            problems = SoakLog(events, waiting=head.waiting or (), open_turn=head.open_turn).problems
            assert not problems, problems
    return [str(each) for each in found]


async def assert_same(source: EventStore, target: EventStore) -> int:
    """Assert that both have the same sessions, events, heads, blobs, keys and retries; return how many sessions that is."""
    count = 0
    async for head in heads_of(source):
        session_id, there = head.session_id, await target.head(head.session_id)
        assert there is not None, session_id
        assert difference(head_to_json(head), head_to_json(there)) is None
        assert await whole(target, session_id) == await whole(source, session_id)
        assert await target.keys(session_id) == await source.keys(session_id)
        assert await target.outcomes(session_id) == await source.outcomes(session_id)
        digests = await source.blobs(session_id)
        assert await target.blobs(session_id) == digests
        for digest in digests:
            assert await target.get_blob(session_id, digest) == await source.get_blob(session_id, digest)
        count += 1
    assert len([head async for head in heads_of(target)]) == count
    return count
