"""Kipu on W4's listing: pages of heads through the manager, by cursor."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import replace
from pathlib import Path

from bench.kipu_store import store_url
from bench.raw_list import OWNERS, PAGE, REPEATS
from kipu import Principal, SessionManager, SessionQuery, StatusChangedEvent, UserMessageEvent, open_manager

AT_ONCE = 64
ADMIN = Principal("admin", roles=frozenset({"admin"}))


def build(directory: Path, *, store: str, sessions: int) -> dict[str, float]:
    """Create so many sessions of ten owners, one in ten archived, without fsync."""
    return asyncio.run(_build(directory, store=store, sessions=sessions))


async def _build(directory: Path, *, store: str, sessions: int) -> dict[str, float]:
    async with await open_manager(store_url(store, directory, durability="os")) as manager:
        for first in range(0, sessions, AT_ONCE):
            numbers = range(first, min(sessions, first + AT_ONCE))
            await asyncio.gather(*(_create(manager, number) for number in numbers))
    return {"sessions": float(sessions)}


def build_local(directory: Path, *, store: str, sessions: int) -> dict[str, float]:
    """Create so many sessions of the local user, each with a message, without fsync."""
    return asyncio.run(_build_local(directory, store=store, sessions=sessions))


async def _build_local(directory: Path, *, store: str, sessions: int) -> dict[str, float]:
    async with await open_manager(store_url(store, directory, durability="os")) as manager:

        async def one(number: int) -> None:
            session = await manager.get_or_create(f"cli:{number}")
            await session.add_event(UserMessageEvent(content=f"what about number {number}, and why is it so?"))

        for first in range(0, sessions, AT_ONCE):
            await asyncio.gather(*(one(number) for number in range(first, min(sessions, first + AT_ONCE))))
    return {"sessions": float(sessions)}


async def _create(manager: SessionManager, number: int) -> None:
    principal = Principal(f"owner{number % OWNERS}")
    title = f"Title of session number {number}"
    session_id = await manager.create_session(key=f"cli:{number}", title=title, principal=principal)
    if number // OWNERS % 10 == 0:
        session = await manager.open(session_id, principal=principal)
        await session.add_event(StatusChangedEvent(status="archived", reason="bench"), principal=principal)


def pages(directory: Path, *, store: str, fixture: str, sessions: int) -> dict[str, float]:
    """Time the first page, the page in the middle, and the page of one owner's archived sessions."""
    del directory
    return asyncio.run(_pages(Path(fixture), store=store, sessions=sessions))


async def _pages(fixture: Path, *, store: str, sessions: int) -> dict[str, float]:
    async with await open_manager(store_url(store, fixture), principal=ADMIN) as manager:
        first = SessionQuery(limit=PAGE)
        archived = SessionQuery(limit=PAGE, owner="owner7", statuses=frozenset({"archived"}))
        deep = replace(first, cursor=await _middle(manager, sessions))
        return {
            "first_page_ms": await _median_ms(manager, first),
            "deep_page_ms": await _median_ms(manager, deep),
            "filtered_page_ms": await _median_ms(manager, archived),
        }


async def _middle(manager: SessionManager, sessions: int) -> str | None:
    query = SessionQuery(limit=1000)
    for _ in range(sessions // 2000):
        page = await manager.list(query)
        query = replace(query, cursor=page.cursor)
    return query.cursor


async def _median_ms(manager: SessionManager, query: SessionQuery) -> float:
    laps_ms = []
    for _ in range(REPEATS):
        start_s = time.perf_counter()
        page = await manager.list(query)
        laps_ms.append((time.perf_counter() - start_s) * 1000)
        if len(page.items) != PAGE:
            raise RuntimeError(f"{len(page.items)} heads instead of a full page")
    return statistics.median(laps_ms)
