"""Live pieces between processes: how late a token is seen, what one costs, and what a flood of them does to appends.

python -m bench.live [--quick] [--json]
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("late_ms", "late ms", "{:.1f}"),
    Metric("late_p99_ms", "p99 ms", "{:.1f}"),
    Metric("raw_ms", "raw ms", "{:.1f}"),
    Metric("raw_p99_ms", "raw p99 ms", "{:.1f}"),
    Metric("token_us", "us/token", "{:.1f}"),
    Metric("raw_token_us", "raw us/token", "{:.1f}"),
    Metric("unwatched_us", "unwatched us", "{:.2f}"),
    Metric("appends_per_s", "appends/s", "{:.0f}"),
    Metric("share", "in a flood", "{:.2f}"),
    Metric("dry_share", "same, not sent", "{:.2f}"),
]


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds."""
    seconds = 1.0 if options.quick else 6.0
    kinds = ("notify", "valkey", "sockets")
    contestants = [
        Contestant(kind, "bench.kipu_live:pieces", {"kind": kind, "seconds": seconds}, "kipu") for kind in kinds
    ]
    contestants.append(Contestant("flood", "bench.kipu_live:flood", {"seconds": seconds / 2}, "kipu"))
    bounds = [Bound(f"a token over {kind}, median ms late", kind, "late_ms", 60.0) for kind in kinds]
    bounds += [Bound(f"a token over {kind}, p99 ms late", kind, "late_p99_ms", 150.0) for kind in kinds]
    bounds.append(
        Bound(
            "appends while 200 turns are watched, of those while the same are not sent",
            "flood",
            "sent_share",
            0.9,
            at_least=True,
        )
    )
    return Figure("live", "Live pieces between processes (medians)", contestants, METRICS, bounds)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
