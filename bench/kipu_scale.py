"""What one append, claim, look and turn takes of the server, of the disk and of a worker; the same in a big store and a small one.

Figures of a server's processor time are read from its processes in /proc: everything of it is counted, its background writers too.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bench.kipu_postgres import STEP, TIME, WRITERS, Bare, bare, records, serve
from bench.kipu_runtime import Place, running
from bench.kipu_workers import MODEL_S, scaling
from bench.scale_load import MESSAGE, make_template, multiply, serving
from bench.simulated_fleet import Fleet, Load, UnitCosts, simulate
from kipu.ports.head import HeadPatch
from kipu.ports.store import IndexEntry, SearchQuery, SessionQuery
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.session.terms import phrases_of, terms_of
from kipu.stores.postgres.store import PostgresStore
from kipu.testing.fakes import FakeLiveness
from kipu.testing.scripted_model import ScriptedReply
from kipu.wiring import open_manager

Costs: TypeAlias = dict[str, float]
Serving: TypeAlias = Callable[[str], AbstractAsyncContextManager[Place]]
LATER = "2999-01-01T00:00:00.000000Z"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    """A server of this machine: a connection of our own to it, and the processor time of all its processes."""

    url: str
    connection: Bare
    postmaster: int

    def cpu_s(self) -> float:
        """Return the seconds that the server's processes have used, those that ended included."""
        found = 0.0
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(folder.name) == self.postmaster:
                    found += sum(map(int, fields[11:15])) * _TICK_S  # with the children that it has seen end
                elif int(fields[1]) == self.postmaster:
                    found += sum(map(int, fields[11:13])) * _TICK_S
        return found

    async def one(self, sql: str) -> Any:
        """Return a row."""
        return await (await self.connection.execute(sql.encode())).fetchone()

    async def wal_bytes(self) -> float:
        """Return how much was ever written to the log that is written ahead."""
        return float((await self.one("SELECT pg_current_wal_insert_lsn() - '0/0'"))[0])


@asynccontextmanager
async def looked_at(url: str) -> AsyncIterator[Server]:
    """Give a server with a connection to it."""
    async with await bare(url) as connection:
        row = await (await connection.execute(b"SELECT current_setting('data_directory')")).fetchone()
        assert row is not None
        postmaster = int(Path(row[0], "postmaster.pid").read_text().split()[0])
        yield Server(url, connection, postmaster)


@asynccontextmanager
async def opened(url: str, *, schema: str = "kipu") -> AsyncIterator[PostgresStore]:
    """Give a store."""
    sign = "&" if "?" in url else "?"
    store = await PostgresStore.open(f"{url}{sign}connections={WRITERS}&schema={schema}", liveness=FakeLiveness())
    try:
        yield store
    finally:
        await store.close()


async def cost_of(
    server: Server, name: str, ask: Callable[[int], Awaitable[object]], *, times: int, at_once: int = 1
) -> Costs:
    """Return what one asking takes: wall time, the server's and our processor time, bytes of log."""
    for number in range(min(20, times)):
        await ask(-1 - number)
    laps: list[float] = []
    numbers = iter(range(times))
    wal, cpu_s, own_s, began_s = await server.wal_bytes(), server.cpu_s(), time.process_time(), time.perf_counter()

    async def lane() -> None:
        for number in numbers:
            at_s = time.perf_counter()
            await ask(number)
            laps.append(time.perf_counter() - at_s)

    await asyncio.gather(*(lane() for _ in range(at_once)))
    took_s = time.perf_counter() - began_s
    return {
        f"{name}_ms": statistics.median(laps) * 1e3,
        f"{name}_p99_ms": sorted(laps)[int(len(laps) * 0.99)] * 1e3,
        f"{name}_server_cpu_us": (server.cpu_s() - cpu_s) / times * 1e6,
        f"{name}_client_cpu_us": (time.process_time() - own_s) / times * 1e6,
        f"{name}_wal_bytes": (await server.wal_bytes() - wal) / times,
        f"{name}_per_s": times / took_s,
    }


# ---- bytes -----------------------------------------------------------------------------------------------------------


async def bytes_of(server: Server, *, schema: str = "kipu") -> Costs:
    """Return what a row of each table takes, and its indexes."""
    found: Costs = {}
    for table in ("heads", "events", "docs"):
        rows = (await server.one(f"SELECT count(*) FROM {schema}.{table}"))[0]
        sizes = await server.one(
            f"WITH parts AS (SELECT '{schema}.{table}'::regclass AS oid UNION ALL SELECT inhrelid FROM pg_inherits"
            f" WHERE inhparent = '{schema}.{table}'::regclass)"
            " SELECT sum(pg_table_size(oid)), sum(pg_indexes_size(oid)) FROM parts"
        )
        if rows:
            found |= {
                f"{table}_rows": rows,
                f"{table}_bytes": float(sizes[0]) / rows,
                f"{table}_index_bytes": float(sizes[1]) / rows,
            }
    return found


# ---- single calls ----------------------------------------------------------------------------------------------------


async def calls(server: Server, *, sessions: int, times: int, schema: str = "kipu") -> Costs:
    """Return what the calls of a store take that has sessions g00000000 and on, spread over all of them."""

    def at(number: int) -> str:
        return f"g{number * 7919 % sessions:08d}"

    patch = HeadPatch(set={"last_activity_at": TIME})
    found: Costs = {"sessions": sessions}
    async with opened(server.url, schema=schema) as store:

        async def claim(number: int) -> None:
            lease = await store.claim(at(number), owner="bench", ttl_s=600)
            assert lease is not None
            await store.release(lease)

        async def page(number: int) -> None:
            await store.list(SessionQuery(limit=50, owner="local"))

        asked: dict[str, tuple[Callable[[int], Awaitable[object]], int]] = {
            "append": (lambda number: store.append(at(number), records(STEP), head=patch), times),
            "claim_release": (claim, times),
            "head": (lambda number: store.head(at(number)), times),
            "window": (lambda number: store.read(at(number), limit=200, backwards=True), times),
            "list": (page, min(times, 500)),
            "runnable": (lambda number: store.runnable(now=TIME, limit=100), min(times, 500)),
        }
        for name, (ask, count) in asked.items():
            found |= await cost_of(server, name, ask, times=count)
        await server.connection.execute(b"CHECKPOINT")
        spread = iter(range(10_000_000, 100_000_000, 13))

        async def append(_: int) -> None:
            await store.append(at(next(spread)), records(STEP), head=patch)

        found |= await cost_of(server, "append_after_checkpoint", append, times=min(times, 300))
    return found


async def waking(server: Server, *, times: int) -> Costs:
    """Return what a notice costs, and a look of who follows everything."""
    found: Costs = {}
    async with opened(server.url) as store:
        found |= await cost_of(
            server,
            "notify",
            lambda _: server.connection.execute(b"SELECT pg_notify('kipu_kipu', 'user_message')"),
            times=times,
        )
        found["connections"] = float(
            (await server.one("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'kipu'"))[0]
        )
        cpu_s, began_s, events = server.cpu_s(), time.perf_counter(), store.follow()
        waiting = asyncio.ensure_future(anext(aiter(events)))
        await asyncio.wait([waiting], timeout=10)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        found["idle_follower_server_cpu_us_per_s"] = (server.cpu_s() - cpu_s) / (time.perf_counter() - began_s) * 1e6
    return found


async def hot_session(server: Server, *, seconds: float, writers: int) -> Costs:
    """Return how many appends a second one session takes, from one process with its lease and from several that share it."""
    found: Costs = {}
    for count in (1, writers):
        async with opened(server.url) as store:
            others = [store] + [await PostgresStore.open(server.url, liveness=FakeLiveness()) for _ in range(count - 1)]
            done = 0
            until_s = time.perf_counter() + seconds

            async def write(one: PostgresStore) -> None:
                nonlocal done
                while time.perf_counter() < until_s:  # noqa: B023
                    await one.append("g00000001", records(STEP), head=HeadPatch(set={"last_activity_at": TIME}))
                    done += 1

            await asyncio.gather(*map(write, others))
            found[f"hot_appends_per_s_{count}"] = done / seconds
            for one in others[1:]:
                await one.close()
    return found


async def indexing(server: Server, *, times: int) -> Costs:
    """Return what taking a message into the search index costs, and how big it gets."""
    text = (
        "The quick brown fox jumps over the lazy dog while the committee looks for a figure that nobody has measured yet. "
        * 3
    )
    found: Costs = {}
    words = [f"{word}{number}" for number in range(400) for word in ("alpha", "beta", "gamma")]
    async with opened(server.url) as store:

        async def put(number: int) -> None:
            mixed = f"{text} {' '.join(words[(number * 31 + step * 7) % 1200] for step in range(12))}"
            await store.index(
                [IndexEntry(f"g{abs(number) % 1000:08d}", 2 + number // 1000, terms_of(mixed))], indexed={}
            )

        before = await server.one("SELECT pg_total_relation_size('kipu.docs'), count(*) FROM kipu.docs")
        found |= await cost_of(server, "index", put, times=times)
        await server.connection.execute(b"VACUUM ANALYZE kipu.docs")
        after = await server.one("SELECT pg_total_relation_size('kipu.docs'), count(*) FROM kipu.docs")
        if after[1] > before[1]:
            found["docs_bytes"] = (after[0] - before[0]) / (after[1] - before[1])
        query = SearchQuery(phrases=phrases_of("alpha7 committee"), limit=20)
        found |= await cost_of(server, "search", lambda _: store.search(query), times=50)
    return found


# ---- turns -----------------------------------------------------------------------------------------------------------


async def turn_costs(server: Server, *, sessions: int, turns: int, serve_turns: Serving = serving) -> Costs:
    """Return what a whole turn takes of a worker and of the server; the messages are there before."""
    each = max(1, turns // sessions)
    async with await open_manager(server.url) as manager:
        bus = MessageBus(manager)
        for chat in range(sessions):
            for _ in range(each):
                await bus.publish(
                    InboundEvent(channel="bench", chat_id=f"cost-{chat}", sender_id="ada", content=MESSAGE)
                )
    asked = "SELECT coalesce(sum(last_seq), 0) FROM kipu.heads WHERE key LIKE 'bench:cost-%'"
    synced = "SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal'"
    committed = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    await asyncio.sleep(1.5)  # the server tells its counts with a delay
    counted = [(await server.one(sql))[0] for sql in (asked, synced, committed)]
    wal, cpu_s, own_s, began_s = await server.wal_bytes(), server.cpu_s(), time.process_time(), time.perf_counter()
    async with serve_turns(server.url) as place:
        while await place.manager.store.runnable(now=LATER, limit=1):  # noqa: ASYNC110 - until all is answered
            await asyncio.sleep(0.05)
        await place.worker.until_idle()
        took_s, own_s, cpu_s = time.perf_counter() - began_s, time.process_time() - own_s, server.cpu_s() - cpu_s
        wal = await server.wal_bytes() - wal
    await asyncio.sleep(1.5)
    events, syncs, commits = [
        float((await server.one(sql))[0] - before)
        for sql, before in zip((asked, synced, committed), counted, strict=True)
    ]
    done = each * sessions
    return {
        "turn_worker_cpu_ms": own_s / done * 1e3,
        "turn_server_cpu_ms": cpu_s / done * 1e3,
        "turn_wal_bytes": wal / done,
        "turn_events": events / done,
        "turn_transactions": commits / done,
        "turn_syncs": syncs / done,
        "turns_per_s_one_worker": done / took_s,
    }


async def single_turns(server: Server, *, turns: int) -> Costs:
    """Return how long a turn of one session takes whose model answers at once: what Kipu adds, and what bounds a hot session."""
    laps = []
    async with serving(server.url) as place:
        for number in range(turns + 5):
            began_s = time.perf_counter()
            await place.say("alone", MESSAGE)
            await place.worker.until_idle()
            if number >= 5:
                laps.append(time.perf_counter() - began_s)
    return {"turn_alone_ms": statistics.median(laps) * 1e3, "turns_per_s_of_one_session": 1 / statistics.median(laps)}


# ---- the row that every append changes ---------------------------------------------------------------------------------


async def churn(server: Server, *, updates: int, sessions: int, fillfactor: int) -> Costs:
    """Return what many changes of few heads leave: how many stayed on their page, how many dead rows, how far tables and indexes grew."""
    schema = f"churn{fillfactor}"
    url = server.url
    await server.connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
    async with opened(url, schema=schema) as store:
        await server.connection.execute(f"ALTER TABLE {schema}.heads SET (fillfactor = {fillfactor})".encode())
        for number in range(sessions):
            patch = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME, "status": "active"})
            await store.append(f"g{number:08d}", records(("session_init",)), head=patch)
        await server.connection.execute(f"VACUUM FULL {schema}.heads".encode())
        sizes = f"SELECT pg_relation_size('{schema}.heads'), pg_indexes_size('{schema}.heads')"
        before = await server.one(sizes)
        numbers = iter(range(updates))

        async def lane() -> None:
            for number in numbers:
                await store.append(f"g{number * 7919 % sessions:08d}", records(("tool_started",)), head=HeadPatch())

        wal, cpu_s = await server.wal_bytes(), server.cpu_s()
        await asyncio.gather(*(lane() for _ in range(WRITERS)))
        wal, cpu_s = await server.wal_bytes() - wal, server.cpu_s() - cpu_s
        await asyncio.sleep(1.5)
        stats = await server.one(
            "SELECT n_tup_upd, n_tup_hot_upd, n_dead_tup, autovacuum_count FROM pg_stat_user_tables"
            f" WHERE schemaname = '{schema}' AND relname = 'heads'"
        )
        after = await server.one(sizes)
    await server.connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
    return {
        "hot_share": stats[1] / max(1, stats[0]),
        "dead_rows": stats[2],
        "vacuums": stats[3],
        "heads_times": after[0] / before[0],
        "heads_indexes_times": after[1] / before[1],
        "update_wal_bytes": wal / updates,
        "update_server_cpu_us": cpu_s / updates * 1e6,
    }


# ---- all of it ---------------------------------------------------------------------------------------------------------


def unit_costs(directory: Path, *, sessions: int, times: int) -> Costs:
    """Return every unit cost, on a server of its own that has so many sessions of a turn each."""
    return asyncio.run(measured(serve(directory), sessions=sessions, times=times))


async def measured(url: str, *, sessions: int, times: int) -> Costs:
    """Fill a fresh server, then measure on it."""
    template, _ = await make_template(url, turns=1)
    async with looked_at(url) as server:
        for first in range(0, sessions, 25_000):
            await multiply(server.connection, template, first=first, count=min(25_000, sessions - first))
        await server.connection.execute(b"VACUUM ANALYZE kipu.heads")
        found = await bytes_of(server)
        found |= await calls(server, sessions=sessions, times=times)
        found |= await waking(server, times=times)
        found |= await indexing(server, times=times)
        found |= await turn_costs(server, sessions=20, turns=max(40, times // 10))
        found |= await single_turns(server, turns=max(10, times // 50))
        found |= await hot_session(server, seconds=1 if times < 500 else 4, writers=4)
        found |= {
            f"churn_{name}": value
            for name, value in (await churn(server, updates=times, sessions=200, fillfactor=70)).items()
        }
    return found


# ---- the simulation beside a real run ------------------------------------------------------------------------------------


def compared(directory: Path, *, workers: int, at_once: int, turns: int) -> Costs:
    """Return how fast real workers run turns of one call to a model of 50 ms, and the simulation of it.

    What waits for the medium and for being scheduled is set by one worker with one turn at a time, as this machine is at the moment; how it
    comes to be with more of both is the simulation's.
    """
    for name in ("one", "many", "costs"):
        (directory / name).mkdir()
    one = scaling(directory / "one", workers=1, turns=turns)["turns_per_s"]
    count = turns * workers * at_once
    real = scaling(directory / "many", workers=workers, turns=count, concurrency=at_once)["turns_per_s"]
    found = asyncio.run(_short_turns(serve(directory / "costs"), turns=turns))
    worker_s, server_s = found["turn_worker_cpu_ms"] / 1e3, found["turn_server_cpu_ms"] / 1e3
    waits_s = max(0.0, 1 / one - MODEL_S - worker_s - server_s)
    costs = UnitCosts(worker_cpu_s=worker_s, server_cpu_s=server_s, transactions=10, commit_s=waits_s / 10)
    load = Load(steps=1, model_s=MODEL_S, model_spread=0, backlog=count, a_chat=3)
    fleet = Fleet(workers=workers, slots=at_once, worker_cores=1, database_cores=os.cpu_count() or 1)
    outcome = simulate(fleet, load, costs, seconds=0)
    simulated = outcome.answered / outcome.took_s
    rates = {"one_turns_per_s": one, "real_turns_per_s": real, "simulated_turns_per_s": simulated}
    return rates | {"off_by": abs(1 - simulated / real)} | found


async def _short_turns(url: str, *, turns: int) -> Costs:
    def serve_short(url: str) -> AbstractAsyncContextManager[Place]:
        return running(url, lambda _request: ScriptedReply("Seen."), max_turns=1)

    async with looked_at(url) as server, opened(url):
        return await turn_costs(server, sessions=max(1, turns // 3), turns=turns, serve_turns=serve_short)
