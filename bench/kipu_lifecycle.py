"""The sweep and the archive as one contestant each: their own store in a fresh folder, their own process."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from pathlib import Path

import orjson

from bench.memory import Memory
from kipu.manager.lifecycle.retention import Retention
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.manager.lifecycle.sweeper import Sweeper
from kipu.ports.head import HeadPatch
from kipu.ports.store import EventStore, Record
from kipu.stores.times import iso_from_us
from kipu.wiring import open_manager

_DAY_US = 24 * 3600 * 1_000_000
_AT_ONCE = 500


def measure_sweep(directory: Path, *, store: str, heads: int) -> dict[str, float]:
    """Return how long a dry sweep takes when nothing, a hundred sessions, and all of them are due."""
    return asyncio.run(_sweep(directory, heads, store))


async def _sweep(folder: Path, heads: int, store: str) -> dict[str, float]:
    async with await open_manager(f"{store}:///{folder}/store?durability=os") as manager:
        now_us = manager.now_us()
        # A hundred were last used 50 days ago, the others 20 days ago; one just now, so that the clock is believed.
        ages = [50] * 100 + [20] * (heads - 101) + [0]
        for start in range(0, heads, _AT_ONCE):
            some = enumerate(ages[start : start + _AT_ONCE], start)
            await asyncio.gather(*(_begin(manager.store, number, now_us - age * _DAY_US) for number, age in some))
        await Sweeper(manager, Retention(expire_after_days=90)).sweep(
            dry_run=True
        )  # caches are warm, the index compared
        times = {}
        for name, days, due in (("none_due", 90, 0), ("some_due", 30, 100), ("all_due", 10, heads - 1)):
            sweeper = Sweeper(manager, Retention(expire_after_days=days))
            start_s = time.perf_counter()
            sweep = await sweeper.sweep(dry_run=True)
            times[f"{name}_ms"] = (time.perf_counter() - start_s) * 1000
            if sweep.done.total() != due:
                raise AssertionError(f"{sweep.done.total()} due, not {due}")
        return {"heads": float(heads), **times}


async def _begin(store: EventStore, number: int, at_us: int) -> None:
    at, session_id = iso_from_us(at_us), f"s{number:07d}"
    record = Record(f"e{number}", "session_init", at, b'{"owner":"local"}')
    patch = {
        "created_at": at,
        "last_activity_at": at,
        "status": "active",
        "owner": "local",
        "title": f"Number {number}",
    }
    await store.append(session_id, [record], head=HeadPatch(set=patch))


def measure_archive(directory: Path, *, store: str, mb: int) -> dict[str, float]:
    """Return what archiving a session of so many megabytes takes, and bringing it back."""
    session_id = asyncio.run(_fill(directory, mb, store))
    return {"mb": float(mb), **asyncio.run(_archive(directory, session_id, store))}


async def _fill(folder: Path, mb: int, store: str) -> str:
    chance = random.Random(7)
    words = [hashlib.sha256(str(number).encode()).hexdigest()[: chance.randint(2, 9)] for number in range(4000)]
    async with await open_manager(f"{store}:///{folder}/store?durability=os") as manager:
        session_id, written = await manager.create_session(title="big"), 0
        while written < mb << 20:
            bodies = [orjson.dumps({"content": " ".join(chance.choices(words, k=600))}) for _ in range(200)]
            at = iso_from_us(manager.now_us())
            records = [Record(f"e{written}-{n}", "user_message", at, body, 900) for n, body in enumerate(bodies)]
            await manager.store.append(session_id, records)
            written += sum(map(len, bodies))
    return session_id


async def _archive(folder: Path, session_id: str, store: str) -> dict[str, float]:
    figures: dict[str, float] = {}
    async with await open_manager(f"{store}:///{folder}/store") as manager:
        archives = SessionArchives(manager)
        await manager.store.read(session_id, limit=1, backwards=True)
        memory, start_s = Memory(), time.perf_counter()
        done = await archives.archive(session_id)
        figures["archive_s"] = time.perf_counter() - start_s
        figures["archive_peak_mb"] = memory.grown()["rss_peak_mb"]
        figures["file_mb"] = done.bytes / (1 << 20)
        memory, start_s = Memory(), time.perf_counter()
        await archives.unarchive(session_id)
        figures["restore_s"] = time.perf_counter() - start_s
        figures["restore_peak_mb"] = memory.grown()["rss_peak_mb"]
    return figures
