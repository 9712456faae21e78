"""What encryption costs: a durable append, a group commit of 64, a window of 200, beside the same without.

    python -m bench.encryption [--quick] [--json]

Both stores are written turn about in one process; the figures are medians, and the ratio is of the medians.
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric(f"{what}_{how}", f"{what} {title}", style)
    for what in ("append", "group", "window")
    for how, title, style in (
        ("plain_ms", "ms", "{:.3f}"),
        ("sealed_ms", "sealed ms", "{:.3f}"),
        ("ratio", "×", "{:.2f}"),
    )
]
LIMITS = {"append": ("a durable append", 1.1), "group": ("64 at once", 1.6), "window": ("a window of 200", 2.0)}


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds."""
    size: dict[str, object] = {"appends": 100, "rounds": 10} if options.quick else {"appends": 1000, "rounds": 60}
    contestants = [
        Contestant(f"kipu {store}", "bench.kipu_encryption:measure", {**size, "store": store}, "kipu")
        for store in ("jsonl", "sqlite")
    ]
    chained = {**size, "store": "sqlite", "chain": True}
    contestants.append(Contestant("kipu sqlite, chained too", "bench.kipu_encryption:measure", chained, "kipu"))
    bounds = [
        Bound(f"kipu {store}: {label} over without", f"kipu {store}", f"{what}_ratio", limit)
        for store in ("jsonl", "sqlite")
        for what, (label, limit) in LIMITS.items()
    ]
    return Figure("encryption", "Encryption: with over without, fsync on (medians)", contestants, METRICS, bounds)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
