"""PostgreSQL's figures, each beside the bare statements of the same run: appends, windows, pages, searches, waking.

python -m bench.postgres [--quick] [--json]
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("steps_per_s", "steps/s", "{:.0f}"),
    Metric("bare_per_s", "bare/s", "{:.0f}"),
    Metric("share", "of bare", "{:.2f}"),
    Metric("window_ms", "window ms", "{:.2f}"),
    Metric("bare_window_ms", "bare ms", "{:.2f}"),
    Metric("page_ms", "deep page ms", "{:.2f}"),
    Metric("bare_page_ms", "bare ms", "{:.2f}"),
    Metric("search_ms", "search ms", "{:.1f}"),
    Metric("search_worst_ms", "worst ms", "{:.1f}"),
    Metric("wake_ms", "wake ms", "{:.1f}"),
    Metric("wake_p99_ms", "p99 ms", "{:.1f}"),
]


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds."""
    quick = options.quick
    sizes: dict[str, dict[str, object]] = {
        "appends": {"steps": 30 if quick else 300},
        "reads": {"events": 5_000 if quick else 100_000, "sessions": 5_000 if quick else 100_000},
        "searches": {"messages": 5_000 if quick else 200_000},
        "wakes": {"count": 10 if quick else 200},
    }
    contestants = [Contestant(name, f"bench.kipu_postgres:{name}", size, "kipu") for name, size in sizes.items()]
    bounds = [
        Bound("fenced steps over 8 connections, of the same statements bare", "appends", "share", 0.7, at_least=True),
        Bound("window of 200, times the bare query", "reads", "window_times", 3.0),
        Bound("deep page, times the bare query", "reads", "page_times", 3.0),
        Bound("two Chinese characters, median ms", "searches", "search_ms", 20.0),
        Bound("idle message to a turn of another process, median ms", "wakes", "wake_ms", 25.0),
        Bound("the same, p99 ms", "wakes", "wake_p99_ms", 150.0),
    ]
    return Figure("postgres", "PostgreSQL (medians)", contestants, METRICS, bounds)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
