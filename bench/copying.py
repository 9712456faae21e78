"""Moving a store in use to PostgreSQL: events per second beside bare COPY, and the pause in which neither store is written.

python -m bench.copying [--quick] [--json]
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("copy_per_s", "events/s", "{:.0f}"),
    Metric("bare_per_s", "COPY/s", "{:.0f}"),
    Metric("pause_ms", "pause ms", "{:.0f}"),
    Metric("inner_pause_ms", "of it inside", "{:.0f}"),
    Metric("tail_sessions", "last sessions", "{:.0f}"),
    Metric("events", "events", "{:.0f}"),
]


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds."""
    size: dict[str, object] = {"sessions": 2_000, "events": 101, "writes_per_s": 100}
    if options.quick:
        size = {"sessions": 100, "events": 51, "writes_per_s": 50}
    contestants = [Contestant("moves", "bench.kipu_copying:moves", size, "kipu")]
    bounds = [Bound("first refused write to the first one accepted, ms", "moves", "pause_ms", 5_000.0)]
    return Figure("copying", "A store in use moved from SQLite to PostgreSQL", contestants, METRICS, bounds)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
