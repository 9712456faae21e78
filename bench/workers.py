"""Worker processes over PostgreSQL: how turns scale with them, how soon they begin, and what a long queue costs.

python -m bench.workers [--quick] [--json]
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("turns_per_s", "turns/s", "{:.1f}"),
    Metric("cpu_share", "CPU of all", "{:.2f}"),
    Metric("followup_ms", "follow-up ms", "{:.1f}"),
    Metric("followup_p99_ms", "p99 ms", "{:.1f}"),
    Metric("wake_ms", "wake ms", "{:.1f}"),
    Metric("wake_p99_ms", "p99 ms", "{:.1f}"),
    Metric("claim_ms", "claim ms", "{:.2f}"),
    Metric("look_ms", "look ms", "{:.2f}"),
    Metric("bare_claim_ms", "bare claim ms", "{:.2f}"),
    Metric("bare_look_ms", "bare look ms", "{:.2f}"),
    Metric("takeover_s", "takeover s", "{:.2f}"),
    Metric("takeover_worst_s", "worst s", "{:.2f}"),
]
WORKERS = (1, 2, 4)


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds."""
    quick = options.quick
    contestants = [
        _ours(f"{count} workers", "scaling", workers=count, turns=40 if quick else 250 * count) for count in WORKERS
    ]
    few, many = (100, 2_000) if quick else (1_000, 100_000)
    contestants += [
        _ours("follow-ups", "followups", turns=20 if quick else 200),
        _ours("wakes", "wakes", count=10 if quick else 200),
        _ours("short queue", "queue", waiting=few),
        _ours("long queue", "queue", waiting=many),
        _ours("takeovers", "takeovers", kills=1 if quick else 10, lease_s=3.0),
    ]
    bounds = [
        Bound(
            "turns/s of 2 workers, times one worker's",
            "2 workers",
            "turns_per_s",
            2 * 0.85,
            other="1 workers",
            at_least=True,
        ),
        Bound(
            "turns/s of 4 workers, times 2 workers'",
            "4 workers",
            "turns_per_s",
            2 * 0.85,
            other="2 workers",
            at_least=True,
        ),
        Bound("end of a turn to the next one's start, median ms", "follow-ups", "followup_ms", 25.0),
        Bound("idle message to a turn of another process, median ms", "wakes", "wake_ms", 25.0),
        Bound("the same, p99 ms", "wakes", "wake_p99_ms", 150.0),
        Bound(
            "claim with a long queue, times that with a short one", "long queue", "claim_ms", 2.0, other="short queue"
        ),
        Bound("looking for work, the same", "long queue", "look_ms", 2.0, other="short queue"),
        Bound("killed to taken over beyond the lease, worst s", "takeovers", "takeover_worst_s", 3.0 + 2.0),
    ]
    return Figure("workers", "worker processes over PostgreSQL (medians)", contestants, METRICS, bounds)


def _ours(name: str, function: str, **size: object) -> Contestant:
    module = "bench.kipu_postgres" if function == "wakes" else "bench.kipu_workers"
    return Contestant(name, f"{module}:{function}", size, "kipu")


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
