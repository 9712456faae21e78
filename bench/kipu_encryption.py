"""The same work with and without encryption, turn about in one process, so that a busy neighbour hits both."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from itertools import islice
from pathlib import Path

from bench.kipu_open import _endless
from bench.kipu_store import POLICY, store_url
from bench.workload import message_text
from kipu import SessionManager, UserMessageEvent, open_manager
from kipu.security.key_file import key_line

SESSION_ID = "encryption"
KEY_NAME = "KIPU_BENCH_KEY"
AT_ONCE = 64
WINDOW_EVENTS = 200


def measure(directory: Path, *, store: str, chain: bool = False, appends: int, rounds: int) -> dict[str, float]:
    """Return the median times of a durable append, of 64 at once, and of opening a window of 200, and their ratios."""
    os.environ[KEY_NAME] = key_line(bytes(range(32))).strip()
    return asyncio.run(_measure(directory, store=store, chain=chain, appends=appends, rounds=rounds))


async def _measure(directory: Path, *, store: str, chain: bool, appends: int, rounds: int) -> dict[str, float]:
    for name in ("plain", "sealed"):
        (directory / name).mkdir()
    sealed = f"&encrypt=env:{KEY_NAME}{'&chain=on' if chain else ''}"
    urls = [store_url(store, directory / "plain"), store_url(store, directory / "sealed") + sealed]
    managers = [await open_manager(url, policy=POLICY) for url in urls]
    report = _pair("append", await _lone_appends(managers, count=appends))
    report |= _pair("group", await _groups(managers, rounds=rounds))
    for manager in managers:
        await manager.close()
    return report | _pair("window", await _windows(urls, rounds=rounds))


def _pair(name: str, times: list[list[float]]) -> dict[str, float]:
    plain, sealed = (statistics.median(each) * 1000 for each in times)
    return {f"{name}_plain_ms": plain, f"{name}_sealed_ms": sealed, f"{name}_ratio": sealed / plain}


async def _lone_appends(managers: list[SessionManager], *, count: int) -> list[list[float]]:
    sessions = [await manager.open(await manager.create_session(SESSION_ID)) for manager in managers]
    events = list(islice(_endless(), WINDOW_EVENTS))
    for session in sessions:
        async with session.holding():
            await session.add_events(events)
    times: list[list[float]] = [[], []]
    for number in range(count):
        for at in (0, 1) if number % 2 else (1, 0):
            event = UserMessageEvent(content=_text(number))
            start_s = time.perf_counter()
            await sessions[at].add_event(event)
            times[at].append(time.perf_counter() - start_s)
    return times


def _text(number: int) -> str:
    rng = random.Random(number)
    return " ".join(message_text(number, rng) for _ in range(8))[:1000]


async def _groups(managers: list[SessionManager], *, rounds: int) -> list[list[float]]:
    sessions = [[await manager.open(await manager.create_session()) for _ in range(AT_ONCE)] for manager in managers]
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        for at in (0, 1) if number % 2 else (1, 0):
            events = [UserMessageEvent(content=_text(number * AT_ONCE + each)) for each in range(AT_ONCE)]
            start_s = time.perf_counter()
            await asyncio.gather(*(s.add_event(e) for s, e in zip(sessions[at], events, strict=True)))
            times[at].append(time.perf_counter() - start_s)
    return times


async def _windows(urls: list[str], *, rounds: int) -> list[list[float]]:
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        for at in (0, 1) if number % 2 else (1, 0):
            manager = await open_manager(urls[at], policy=POLICY)
            start_s = time.perf_counter()
            session = await manager.open(SESSION_ID)
            shown = len(await session.get_context_for_llm())
            times[at].append(time.perf_counter() - start_s)
            await manager.close()
            if shown < WINDOW_EVENTS // 2:
                raise AssertionError(f"only {shown} messages in the window")
    return times
