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
        start_s = time.perf_counter()
        for _ in range(number):
            may(who, verb, head=head)
        return (time.perf_counter() - start_s) / number * 1e6

    permit_us = asyncio.run(_permit_us(directory, who, members=members, number=max(number // 100, 100)))
    return {"check_us": each_us(Verb.READ), "denied_us": each_us(Verb.ERASE), "permit_us": permit_us}


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


def pages(directory: Path, *, store: str, sessions: int) -> dict[str, float]:
    """Time the first and a deep page of sessions of which half are owned and half are shared, beside as many of others."""
    return asyncio.run(_pages(directory, store, sessions))


async def _pages(directory: Path, kind: str, sessions: int) -> dict[str, float]:
    from kipu.ports.principal import Principal
    from kipu.ports.store import SessionQuery
    from kipu.wiring import open_manager

    ada, bob = Principal("ada", "acme"), Principal("bob", "acme")
    url = f"sqlite:///{directory}/s.db?durability=os" if kind == "sqlite" else f"jsonl:///{directory}/s?durability=os"
    async with await open_manager(url, max_sessions=8) as manager:
        for number in range(sessions):
            session_id = await manager.create_session(principal=bob if number % 2 else ada)
            if number % 4 == 0:
                session = await manager.open(session_id, principal=ada)
                await session.share("bob", principal=ada)
        query, times_ms, count = SessionQuery(limit=PAGE), [], 0
        while True:
            start_s = time.perf_counter()
            page = await manager.list(query, principal=bob)
            times_ms.append((time.perf_counter() - start_s) * 1000)
            count += len(page.items)
            if page.cursor is None:
                break
            query = SessionQuery(limit=PAGE, cursor=page.cursor)
    assert count == sessions * 3 // 4, count
    edge = max(1, len(times_ms) // 5)
    return {
        "first_page_ms": sorted(times_ms[:edge])[edge // 2],
        "deep_page_ms": sorted(times_ms[-edge - 1 : -1])[edge // 2],
    }


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
    for store in ("sqlite", "jsonl"):
        name = f"shared lists, {store}, {sessions:,} sessions"
        size: dict[str, object] = {"store": store, "sessions": sessions}
        contestants.append(Contestant(name, "bench.access:pages", size, "kipu"))
    return Figure(
        "access",
        f"Access: one check, and lists of what is shared ({sessions:,} sessions)",
        contestants,
        METRICS,
        bounds,
    )


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
