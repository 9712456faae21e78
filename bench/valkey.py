"""Valkey's figures, each beside the bare commands of the same run: appends, windows, pages, waking.

python -m bench.valkey [--quick] [--json]
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
    Metric("first_page_ms", "first page ms", "{:.2f}"),
    Metric("bare_page_ms", "bare ms", "{:.2f}"),
    Metric("rare_ms", "rare ms", "{:.0f}"),
    Metric("bytes_per_session", "B/session", "{:.0f}"),
    Metric("bytes_per_event", "B/event", "{:.0f}"),
    Metric("wake_ms", "wake ms", "{:.1f}"),
    Metric("wake_p99_ms", "p99 ms", "{:.1f}"),
]


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds."""
    quick = options.quick
    sizes: dict[str, dict[str, object]] = {
        "appends_everysec": {"steps": 30 if quick else 300},
        "appends_fsync": {"steps": 30 if quick else 300},
        "reads": {"events": 5_000 if quick else 100_000, "sessions": 3_000 if quick else 100_000},
        "wakes": {"count": 10 if quick else 200},
    }
    contestants = [Contestant(name, f"bench.kipu_valkey:{name}", size, "kipu") for name, size in sizes.items()]
    bounds = [
        Bound(
            "fenced steps over 8 connections, of the same script bare", "appends_everysec", "share", 0.3, at_least=True
        ),
        Bound("window of 200, times the bare command", "reads", "window_times", 3.0),
        Bound("deep page, times the first", "reads", "deep_times", 1.5),
        Bound("idle message to a turn of another process, median ms", "wakes", "wake_ms", 25.0),
    ]
    return Figure("valkey", "Valkey (medians)", contestants, METRICS, bounds)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
