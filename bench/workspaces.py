"""What it costs to keep a session's files in the store and to lay them out on another machine, beside tar on the same disk.

python -m bench.workspaces [--quick] [--json]
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("first_ms", "first ms", "{:.0f}"),
    Metric("same_ms", "unchanged ms", "{:.0f}"),
    Metric("changed_ms", "10 changed ms", "{:.0f}"),
    Metric("changed_kb", "10 changed kB", "{:.0f}"),
    Metric("out_ms", "laid out ms", "{:.0f}"),
    Metric("back_ms", "brought up to date ms", "{:.0f}"),
]


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds: 2 000 files of 50 MB."""
    size: dict[str, object] = {
        "files": 200 if options.quick else 2_000,
        "megabytes": 5 if options.quick else 50,
        "changed": 10,
    }
    contestants = [
        Contestant("tar", "bench.kipu_workspaces:tar", size),
        Contestant("sqlite", "bench.kipu_workspaces:kipu", {**size, "store": "sqlite"}, "kipu"),
        Contestant("postgresql", "bench.kipu_workspaces:kipu", {**size, "store": "postgresql"}, "kipu"),
    ]
    bounds = [
        Bound("unchanged files at a turn's end, of tar's look", "postgresql", "same_ms", 4.0, other="tar"),
        Bound("10 changed files at a turn's end, of tar", "postgresql", "changed_ms", 10.0, other="tar"),
        Bound("10 changed files, kB more in the store", "postgresql", "changed_kb", 700.0),
    ]
    return Figure("workspaces", "Files of sessions in the store (medians)", contestants, METRICS, bounds)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
