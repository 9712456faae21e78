"""How big a log is over what was said, and that it grows in a line under forks, compactions and rewinds.

python -m bench.log_growth [--quick] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure
from bench.workload import text_of, turns

STORES = ("jsonl", "sqlite")
METRICS = [
    Metric("log_over_payload", "log / payload", "{:.3f}"),
    Metric("index_over_payload", "index / payload", "{:.3f}"),
    Metric("payload", "payload bytes", "{:,.0f}"),
    Metric("second_over_first", "2nd / 1st half growth", "{:.3f}"),
    Metric("bytes_per_round", "bytes/round", "{:,.0f}"),
]
SUMMARY_BYTES = 600


def plain(directory: Path, *, store: str, count: int) -> dict[str, float]:
    """Write the conversation of W1, indexed, and return its sizes over the content."""
    return asyncio.run(_plain(directory, store=store, count=count))


async def _plain(directory: Path, *, store: str, count: int) -> dict[str, float]:
    from bench.kipu_store import POLICY, log_bytes, store_url, turn_events
    from kipu import open_manager

    conversation = turns(count)
    async with await open_manager(store_url(store, directory, durability="os"), policy=POLICY) as manager:
        session = await manager.open(await manager.create_session())
        for turn in conversation:
            for event in turn_events(turn):
                await session.add_event(event)
        await manager.catch_up_index()
    payload = sum(turn.payload_bytes for turn in conversation)
    sizes = log_bytes(store, directory)
    return {
        "payload": payload,
        "log_over_payload": sizes["bytes"] / payload,
        "index_over_payload": sizes["index_bytes"] / payload,
    }


def branching(directory: Path, *, store: str, rounds: int) -> dict[str, float]:
    """Each round: open, two turns, a compaction, a rewind of one turn, a fork that goes on. Compare the halves."""
    return asyncio.run(_branching(directory, store=store, rounds=rounds))


async def _branching(directory: Path, *, store: str, rounds: int) -> dict[str, float]:
    from bench.kipu_store import POLICY, log_bytes, store_url
    from kipu import open_manager

    url = store_url(store, directory, durability="os")
    conversation = turns(rounds * 2)
    session_id, sizes = None, [0]
    for half in range(2):
        for number in range(half * rounds // 2, (half + 1) * rounds // 2):
            async with await open_manager(url, policy=POLICY) as manager:
                session_id = session_id or await manager.create_session()
                session_id = await _round(manager, session_id, conversation[2 * number : 2 * number + 2])
        sizes.append(log_bytes(store, directory)["bytes"])
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    return {"second_over_first": second / first, "bytes_per_round": sizes[2] / rounds}


async def _round(manager, session_id: str, conversation: list) -> str:
    import random

    from bench.kipu_store import turn_events
    from kipu import CompactionEvent

    session = await manager.open(session_id)
    for turn in conversation:
        for event in turn_events(turn):
            await session.add_event(event)
        if turn is conversation[0]:
            last = session.head.last_seq
            summary = text_of(SUMMARY_BYTES, random.Random(last))
            compaction = CompactionEvent(from_seq=1, to_seq=last, summary=summary, first_kept_seq=last + 1)
            await session.add_event(compaction)
    await session.rewind(turns=1)
    return (await session.fork()).session_id


def figure(options: argparse.Namespace) -> Figure:
    """Return both measurements for both stores."""
    count, rounds = (100, 20) if options.quick else (1_000, 200)
    contestants, bounds = [], []
    for store in STORES:
        name, branched = f"kipu {store}, {count} turns", f"kipu {store}, {rounds} rounds"
        sizes: dict[str, object] = {"store": store, "count": count}
        contestants.append(Contestant(name, "bench.log_growth:plain", sizes, "kipu"))
        growing: dict[str, object] = {"store": store, "rounds": rounds}
        contestants.append(Contestant(branched, "bench.log_growth:branching", growing, "kipu"))
        bounds.append(Bound(f"{name}: log bytes over payload", name, "log_over_payload", 1.6))
        bounds.append(Bound(f"{branched}: second half over first", branched, "second_over_first", 1.1))
    title = "log bytes over payload, and growth under fork, compact, rewind"
    return Figure("log_growth", title, contestants, METRICS, bounds)


if __name__ == "__main__":
    options = parser(__doc__ or "").parse_args()
    options.rounds = options.rounds or 1  # sizes, not times: every round gives the same
    sys.exit(run_figure(figure, options))
