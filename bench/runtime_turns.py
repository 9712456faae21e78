"""The runtime's figures: message to first event, processor time of a step, a thousand slow turns at once.

python -m bench.runtime_turns [--quick] [--json]
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("bare_ms", "bare append ms", "{:.2f}"),
    Metric("first_ms", "first event ms", "{:.2f}"),
    Metric("over_ms", "over it ms", "{:.2f}"),
    Metric("step_cpu_ms", "CPU ms/step", "{:.2f}"),
    Metric("step_ms", "ms/step", "{:.2f}"),
    Metric("at_once", "turns at once", "{:.0f}"),
    Metric("short_start_ms", "short starts ms", "{:.1f}"),
    Metric("short_worst_ms", "worst ms", "{:.1f}"),
    Metric("live_kb", "kB/live", "{:.1f}"),
    Metric("idle_kb", "kB/idle", "{:.1f}"),
]


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds."""
    count, turns, slow = (50, 5, 100) if options.quick else (300, 40, 1_000)
    contestants, bounds = [], []
    for store in ("sqlite", "jsonl"):
        name = f"kipu {store}, message to turn"
        contestants.append(Contestant(name, "bench.kipu_runtime:first_event", {"store": store, "count": count}, "kipu"))
        bounds.append(Bound(f"{name}: median over a bare durable append, ms", name, "over_ms", 5.0))
    for store in ("memory", "sqlite", "jsonl"):
        name = f"kipu {store}, steps"
        contestants.append(Contestant(name, "bench.kipu_runtime:step_cpu", {"store": store, "turns": turns}, "kipu"))
        bounds.append(Bound(f"{name}: CPU of one step, ms", name, "step_cpu_ms", 3.0))
    for store in ("sqlite", "jsonl"):
        name = f"kipu {store}, {slow} slow turns"
        many: dict[str, object] = {"store": store, "slow": slow, "short": 20}
        contestants.append(Contestant(name, "bench.kipu_runtime:many", many, "kipu"))
        bounds.append(Bound(f"{name}: at once", name, "at_once", slow, at_least=True))
        bounds.append(Bound(f"{name}: a short one starts, ms", name, "short_start_ms", 50.0))
        bounds.append(Bound(f"{name}: kB a live session", name, "live_kb", 1024.0))
        name = f"kipu {store}, idle sessions"
        idle: dict[str, object] = {"store": store, "sessions": slow}
        contestants.append(Contestant(name, "bench.kipu_runtime:idle", idle, "kipu"))
        bounds.append(Bound(f"{name}: kB each", name, "idle_kb", 20.0))
    return Figure("runtime_turns", "the runtime (medians)", contestants, METRICS, bounds)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
