"""What a million live sessions take: unit costs measured here, and a fleet simulated with them.

python -m bench.scale [--quick] [--json]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure
from bench.simulated_fleet import Fleet, Load, UnitCosts, simulate

METRICS = [
    Metric("turn_worker_cpu_ms", "worker CPU ms/turn", "{:.1f}"),
    Metric("turn_server_cpu_ms", "server CPU ms/turn", "{:.1f}"),
    Metric("turn_wal_bytes", "WAL bytes/turn", "{:.0f}"),
    Metric("turn_transactions", "transactions", "{:.0f}"),
    Metric("append_ms", "append ms", "{:.2f}"),
    Metric("claim_release_ms", "claim+release ms", "{:.2f}"),
    Metric("window_ms", "window ms", "{:.2f}"),
    Metric("real_turns_per_s", "real turns/s", "{:.1f}"),
    Metric("simulated_turns_per_s", "simulated", "{:.1f}"),
    Metric("answered", "turns", "{:.0f}"),
    Metric("wait_ms", "wait ms", "{:.1f}"),
    Metric("wait_p99_ms", "p99 ms", "{:.1f}"),
    Metric("met_busy_share", "met a turn", "{:.3f}"),
    Metric("slots_share", "slots", "{:.2f}"),
    Metric("worker_share", "worker CPU", "{:.2f}"),
    Metric("database_share", "database CPU", "{:.2f}"),
    Metric("wal_mb_per_s", "WAL MB/s", "{:.1f}"),
]
TURNS_A_DAY = 5  # of a live session
MEAN = 1_000_000 * TURNS_A_DAY / 86_400
PEAK = MEAN * 3
# The store as a whole at its peak, then one thing after the other: more, less, and what goes wrong.
CASES: dict[str, dict[str, float]] = {
    "a million, mean": {"rate": MEAN},
    "a million, peak": {"rate": PEAK},
    "peak, nobody has to look": {"rate": PEAK, "looking": False},
    "peak, 4 databases": {"rate": PEAK, "databases": 4},
    "the same, a worker dies": {"rate": PEAK, "databases": 4, "crash_at_s": 60.0},
    "the same, failover of 30 s": {"rate": PEAK, "databases": 4, "failover_at_s": 60.0},
    "the same, half the workers": {"rate": PEAK, "databases": 4, "workers": 12},
    "the same, a hot session": {"rate": PEAK, "databases": 4, "hot": 0.02},
    "ten times the peak, 16": {"rate": PEAK * 10, "workers": 288, "databases": 16, "seconds": 40.0},
}
COMPARED = {"2 workers": (2, 1), "1 worker, 4 turns at once": (1, 4)}
# Of the server, for one look of who follows everything; for each session it finds; and of who looks, times that.
LOOK_CPU_S, CHANGED_CPU_S, LOOKER_TIMES = 0.00036, 0.000001, 1.4


def simulated(
    directory: Path,
    *,
    rate: float,
    workers: int = 28,
    databases: int = 1,
    hot: float = 0.0,
    looking: bool = True,
    seconds: float = 120.0,
    crash_at_s: float = float("inf"),
    failover_at_s: float = float("inf"),
) -> dict[str, float]:
    """Return what a fleet makes of a rate of turns, with the costs that docs/reference/scale.md states."""
    fleet = Fleet(
        workers=workers,
        slots=256,
        databases=databases,
        crash_at_s=crash_at_s,
        failover_at_s=failover_at_s,
        database_cores=16,
    )
    load = Load(turns_per_s=rate, hot_turns_per_s=hot)
    costs = UnitCosts()
    if looking:
        costs = replace(costs, look_cpu_s=LOOK_CPU_S, look_changed_cpu_s=CHANGED_CPU_S, look_worker_times=LOOKER_TIMES)
    outcome = simulate(fleet, load, costs, seconds=seconds)
    return {
        "answered": outcome.answered,
        "wait_ms": outcome.wait_s(0.5) * 1e3,
        "wait_p99_ms": outcome.wait_s(0.99) * 1e3,
        "met_busy_share": len(outcome.queued_s) / max(1, outcome.answered),
        "slots_share": outcome.utilisation["turns at once"],
        "worker_share": outcome.utilisation["worker CPU"],
        "database_share": outcome.utilisation["database CPU"],
        "wal_mb_per_s": outcome.wal_mb_per_s,
        "taken_over": outcome.taken_over,
    }


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds."""
    quick = options.quick
    size = {"sessions": 2_000, "times": 100} if quick else {"sessions": 100_000, "times": 2_000}
    contestants = [Contestant("unit costs", "bench.kipu_scale:unit_costs", {**size}, "kipu")]
    contestants += [
        Contestant(
            name,
            "bench.kipu_scale:compared",
            {"workers": workers, "at_once": at_once, "turns": 30 if quick else 150},
            "kipu",
        )
        for name, (workers, at_once) in COMPARED.items()
    ]
    for name, case in CASES.items():
        shorter = {"seconds": 20.0, "rate": case["rate"] / 10} if quick else {}
        contestants.append(Contestant(name, "bench.scale:simulated", {**case, **shorter}, "kipu"))
    bounds = [Bound(f"simulation of {name}, off by", name, "off_by", 0.25) for name in COMPARED]
    bounds.append(Bound("a million sessions at their peak, p99 wait ms", "a million, peak", "wait_p99_ms", 150.0))
    return Figure("scale", "a million live sessions (medians)", contestants, METRICS, bounds)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
