"""W1: one long session, every event its own durable append, a window of 200 each turn.

python -m bench.w1_turns [--quick] [--json] [--all-peers]
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("ms_per_turn", "ms/turn"),
    Metric("p50_ms", "p50"),
    Metric("p99_ms", "p99"),
    Metric("cpu_s", "CPU s"),
    Metric("last_over_first", "last/first 100", "{:.2f}"),
    Metric("bytes", "bytes", "{:,.0f}"),
    Metric("index_ms_per_event", "index ms/event", "{:.3f}"),
]
RAW = {"raw jsonl": "bench.raw_jsonl:turns_floor", "raw sqlite": "bench.raw_sqlite:turns_floor"}
MAIN_PEER = "openai-agents SQLiteSession"
SLOW_PEERS = {
    "google-adk Sqlite": "bench.peer_adk:one_session",
    "langgraph SqliteSaver": "bench.peer_langgraph:one_session",
    "strands file (no fsync)": "bench.peer_strands:one_session",
}


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds of W1; the slow peers run 100 turns, since theirs grow with the history."""
    count = 200 if options.quick else 2_000
    size: dict[str, object] = {"count": count}
    contestants = [Contestant(name, target, size) for name, target in RAW.items()]
    contestants.append(Contestant(MAIN_PEER, "bench.peer_openai_agents:one_session", size, role="peer"))
    if options.all_peers:
        few: dict[str, object] = {"count": 30 if options.quick else 100}
        contestants += [
            Contestant(f"{name}, {few['count']} turns", target, few, role="peer") for name, target in SLOW_PEERS.items()
        ]
    for store in ("jsonl", "sqlite"):
        contestants.append(
            Contestant(f"kipu {store}", "bench.kipu_turns:one_session", {**size, "store": store}, "kipu")
        )
    title = f"W1: one session, {count} turns of 4 durable events, window of 200 each turn (medians)"
    return Figure("w1_turns", title, contestants, METRICS, _bounds())


def _bounds() -> list[Bound]:
    bounds = []
    for store, limit in (("jsonl", 3.0), ("sqlite", 2.0)):
        name = f"kipu {store}"
        bounds += [
            Bound(f"{name} wall over raw {store}", name, "wall_s", limit, other=f"raw {store}"),
            Bound(f"{name} wall over {MAIN_PEER}", name, "wall_s", 1 / 3, other=MAIN_PEER),
            Bound(f"{name} last 100 turns over first 100", name, "last_over_first", 1.1),
            Bound(f"{name} index, ms per 4 kB event", name, "index_ms_per_event", 0.3),
        ]
    return bounds


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
