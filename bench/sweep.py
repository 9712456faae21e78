"""What a sweep over many heads costs: nothing due, a hundred due, all due (a dry run).

    python -m bench.sweep [--quick] [--json]

The heads are written once by the store's own append; the sweep is `kipu gc --dry-run`'s, so that it can be repeated.
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("heads", "heads", "{:.0f}"),
    Metric("none_due_ms", "none due ms", "{:.1f}"),
    Metric("some_due_ms", "100 due ms", "{:.1f}"),
    Metric("all_due_ms", "all due ms", "{:.0f}"),
]


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds."""
    heads = 2_000 if options.quick else 100_000
    contestants = [
        Contestant(f"kipu {store}", "bench.kipu_lifecycle:measure_sweep", {"heads": heads, "store": store}, "kipu")
        for store in ("sqlite", "jsonl")
    ]
    bounds = [
        Bound(f"kipu {store}: a sweep, {label}", f"kipu {store}", f"{metric}_ms", 1000)
        for store in ("sqlite", "jsonl")
        for metric, label in (("none_due", "none due"), ("some_due", "100 due"), ("all_due", "all due"))
    ]
    return Figure("sweep", f"Sweep of {heads} heads", contestants, METRICS, bounds)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
