"""Kipu on W4's search: what the store answers, and what the façade shows with snippets."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.kipu_store import store_url
from bench.raw_fts import LIMIT, REPEATS, corpus, query_texts
from kipu import UserMessageEvent, open_manager
from kipu.ports.store import Page, SearchQuery
from kipu.session.terms import phrases_of

PER_SESSION = 200


def build(directory: Path, *, store: str, messages: int) -> dict[str, float]:
    """Write the corpus as sessions of two hundred messages, and index it."""
    return asyncio.run(_build(directory, store=store, messages=messages))


async def _build(directory: Path, *, store: str, messages: int) -> dict[str, float]:
    texts = corpus(messages)
    async with await open_manager(store_url(store, directory, durability="os")) as manager:
        for first in range(0, messages, PER_SESSION):
            session = await manager.open(await manager.create_session())
            await session.add_events([UserMessageEvent(content=text) for text in texts[first : first + PER_SESSION]])
        start_s = time.perf_counter()
        await manager.catch_up_index()
        return {"ms_per_1000": (time.perf_counter() - start_s) * 1e6 / messages}


def search(directory: Path, *, store: str, fixture: str, messages: int) -> dict[str, float]:
    """Time each query: the newest fifty hits from the store; in all, also with titles and snippets."""
    del directory
    return asyncio.run(_search(Path(fixture), store=store, messages=messages))


async def _search(fixture: Path, *, store: str, messages: int) -> dict[str, float]:
    report: dict[str, float] = {}
    shown_ms = 0.0
    async with await open_manager(store_url(store, fixture)) as manager:
        await manager.catch_up_index()  # a fixture of an older Kipu may have an index that is made anew
        for name, text in query_texts(messages).items():
            query = SearchQuery(phrases_of(text), limit=LIMIT)
            report[f"{name} ms"], report[f"{name} hits"] = await _median_ms(lambda q=query: manager.store.search(q))
            whole_ms, _ = await _median_ms(lambda t=text: manager.search(t, limit=LIMIT))
            shown_ms += whole_ms
    report["search_ms"] = sum(value for name, value in report.items() if name.endswith(" ms"))
    report["with_snippets_ms"] = shown_ms
    return report


async def _median_ms(ask: Callable[[], Awaitable[Page]]) -> tuple[float, float]:
    laps_ms = []
    hits = 0
    for _ in range(REPEATS):
        start_s = time.perf_counter()
        hits = len((await ask()).items)
        laps_ms.append((time.perf_counter() - start_s) * 1000)
    return statistics.median(laps_ms), float(hits)
