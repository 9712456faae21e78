"""W2: 200 sessions of 50 turns, 32 at once, every event durable.

    python -m bench.w2_concurrent [--quick] [--json] [--all-peers]

The reference is a bare group commit: for the SQLite store over the same tables, for JSONL a segment log (one file for all
sessions). A file for each session without group commit stands beside it, since JSONL keeps sessions apart (B7).
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("turns_per_s", "turns/s", "{:,.0f}"),
    Metric("wall_s", "wall s", "{:.2f}"),
    Metric("events_per_commit", "events/commit", "{:.1f}"),
]
RAW = {
    "raw group commit, segment log": "bench.raw_group_commit:segment_log",
    "raw group commit, sqlite": "bench.raw_group_commit:sqlite",
    "raw file per session": "bench.raw_group_commit:file_per_session",
}
REFERENCE = {"jsonl": "raw group commit, segment log", "sqlite": "raw group commit, sqlite"}
BEST_PEER = "openai-agents SQLiteSession"
OTHER_PEERS = {
    "google-adk Sqlite": "bench.peer_adk:many_sessions",
    "langgraph SqliteSaver": "bench.peer_langgraph:many_sessions",
}


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds of W2; peers run fewer sessions, the slow ones fewer turns too."""
    size: dict[str, object] = {"sessions": 200, "turns_each": 50, "at_once": 32}
    if options.quick:
        size = {"sessions": 48, "turns_each": 10, "at_once": 32}
    contestants = [Contestant(name, target, size) for name, target in RAW.items()]
    # The best peer runs as many turns of fewer sessions: its rate is the same, and a round stays under a minute.
    peer_size = {**size, "sessions": min(64, int(str(size["sessions"])))}
    contestants.append(Contestant(BEST_PEER, "bench.peer_openai_agents:many_sessions", peer_size, role="peer"))
    if options.all_peers:
        few: dict[str, object] = {**size, "sessions": 32, "turns_each": 20}
        contestants += [Contestant(f"{name}, 32×20", target, few, role="peer") for name, target in OTHER_PEERS.items()]
    for store in ("jsonl", "sqlite"):
        params = {**size, "store": store}
        contestants.append(Contestant(f"kipu {store}", "bench.kipu_turns:many_sessions", params, "kipu"))
    title = f"W2: {size['sessions']} sessions × {size['turns_each']} turns, 32 at once, fsync on (medians)"
    return Figure("w2_concurrent", title, contestants, METRICS, _bounds())


def _bounds() -> list[Bound]:
    bounds = []
    for store, reference in REFERENCE.items():
        name = f"kipu {store}"
        bounds += [
            Bound(f"{name} over {reference}", name, "turns_per_s", 0.4, other=reference, at_least=True),
            Bound(f"{name} over {BEST_PEER}", name, "turns_per_s", 8.0, other=BEST_PEER, at_least=True),
        ]
    return bounds


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
