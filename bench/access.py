"""What one access check costs, for each role, against the façade's own call; what a page of shared sessions costs, first and deep.

python -m bench.access [--quick] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path

from bench.arena import Contestant
from bench.fixture import Fixture
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("check_us", "check µs", "{:.3f}"),
    Metric("denied_us", "denied check µs", "{:.3f}"),
    Metric("permit_us", "Session.permit µs", "{:.2f}"),
    Metric("first_page_ms", "first page of 100 ms", "{:.2f}"),
    Metric("deep_page_ms", "deep page ms", "{:.2f}"),
]
MEMBERS = 100
PAGE = 100


def checks(directory: Path, *, role: str, number: int) -> dict[str, float]:
    """Time the table for somebody in this role, and `Session.permit` as every call of the façade does it."""
    from kipu.manager.access import Verb, may
    from kipu.ports.head import Head
    from kipu.ports.principal import Principal

    members = {f"someone{at}": "viewer" for at in range(MEMBERS)} | {"them": role}
    head = Head("s", tenant="acme", owner="ada", members=members)
    who = Principal("ada" if role == "owner" else "them", "acme")

    def each_us(verb: Verb) -> float:
        start_s = time.process_time()
        for _ in range(number):
            may(who, verb, head=head)
        return (time.process_time() - start_s) / number * 1e6

    permit_us = asyncio.run(_permit_us(directory, who, members=members, number=max(number // 100, 100)))
    denied = Verb.LEAVE if role == "owner" else Verb.ERASE
    return {"check_us": each_us(Verb.READ), "denied_us": each_us(denied), "permit_us": permit_us}


async def _permit_us(directory: Path, who, *, members: dict[str, str], number: int) -> float:
    from kipu.errors import SessionNotFoundError
    from kipu.manager.access import Verb
    from kipu.ports.principal import Principal
    from kipu.wiring import open_manager

    owner = Principal("ada", "acme")
    async with await open_manager(f"sqlite:///{directory}/permit.db") as manager:
        session = await manager.get_or_create("chat:1", principal=owner)
        for name, role in members.items():
            if role in ("viewer", "participant", "admin"):
                await session.share(name, role=role, principal=owner)
        start_s = time.perf_counter()
        for _ in range(number):
            with suppress(SessionNotFoundError):
                await session.permit(Verb.READ, who)
        return (time.perf_counter() - start_s) / number * 1e6


def build(directory: Path, *, store: str, sessions: int) -> dict[str, float]:
    """Create sessions of which somebody owns half and is a member of another quarter."""
    return asyncio.run(_build(directory, store, sessions))


async def _build(directory: Path, store: str, sessions: int) -> dict[str, float]:
    from bench.kipu_store import store_url
    from kipu.ports.principal import Principal
    from kipu.wiring import open_manager

    ada, bob = Principal("ada", "acme"), Principal("bob", "acme")
    async with await open_manager(store_url(store, directory, durability="os")) as manager:
        for number in range(sessions):
            session_id = await manager.create_session(principal=bob if number % 2 else ada)
            if number % 4 == 0:
                session = await manager.open(session_id, principal=ada)
                await session.share("bob", principal=ada)
    return {"sessions": float(sessions)}


def pages(directory: Path, *, fixture: str, store: str, sessions: int) -> dict[str, float]:
    """Time the first and the last whole page of what is visible to a member, as medians of several."""
    del directory
    return asyncio.run(_pages(Path(fixture), store, sessions))


async def _pages(directory: Path, store: str, sessions: int) -> dict[str, float]:
    from bench.kipu_store import store_url
    from kipu.ports.principal import Principal
    from kipu.ports.store import SessionQuery
    from kipu.wiring import open_manager

    bob = Principal("bob", "acme")
    async with await open_manager(store_url(store, directory)) as manager:
        cursors: list[str | None] = [None]
        count = 0
        while len(cursors) < 2 or cursors[-1] is not None:
            page = await manager.list(SessionQuery(limit=PAGE, cursor=cursors[-1]), principal=bob)
            count += len(page.items)
            cursors.append(page.cursor)
        assert count == sessions * 3 // 4, count

        async def median_ms(cursor: str | None) -> float:
            times_ms = []
            for _ in range(51):
                start_s = time.perf_counter()
                await manager.list(SessionQuery(limit=PAGE, cursor=cursor), principal=bob)
                times_ms.append((time.perf_counter() - start_s) * 1000)
            return sorted(times_ms)[25]

        return {"first_page_ms": await median_ms(None), "deep_page_ms": await median_ms(cursors[-3])}


def figure(options: argparse.Namespace) -> Figure:
    """Return the checks and the pages, with the bound of issue 4."""
    number, sessions = (20_000, 400) if options.quick else (500_000, 10_000)
    contestants, bounds = [], []
    for role in ("owner", "participant", "stranger"):
        name = f"check, {role}"
        params: dict[str, object] = {"role": role if role != "stranger" else "none", "number": number}
        contestants.append(Contestant(name, "bench.access:checks", params, "kipu"))
        bounds += [
            Bound(f"access check, {role}, µs", name, "check_us", 2.0),
            Bound(f"access check that denies, {role}, µs", name, "denied_us", 2.0),
        ]
    fixtures = []
    for store in ("sqlite", "jsonl"):
        size: dict[str, object] = {"store": store, "sessions": sessions}
        fixture = Fixture(f"kipu-shared-{store}", "bench.access:build", size)
        params = {**size, "fixture": str(fixture.path)}
        name = f"shared lists, {store}, {sessions:,} sessions"
        contestants.append(Contestant(name, "bench.access:pages", params, "kipu"))
        fixtures.append(fixture)
    return Figure("access", "Access: one check, and lists of what is shared", contestants, METRICS, bounds, fixtures)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
