"""What archiving a big session and bringing it back costs, in time and memory, and that it is linear.

python -m bench.archive [--quick] [--json]
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("mb", "MB", "{:.0f}"),
    Metric("archive_s", "archive s", "{:.2f}"),
    Metric("restore_s", "restore s", "{:.2f}"),
    Metric("file_mb", "file MB", "{:.1f}"),
    Metric("archive_peak_mb", "archive RSS +MB", "{:.0f}"),
    Metric("restore_peak_mb", "restore RSS +MB", "{:.0f}"),
]


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds."""
    sizes = (2, 4) if options.quick else (16, 64)
    contestants = [
        Contestant(f"kipu {store} {mb} MB", "bench.kipu_lifecycle:measure_archive", {"mb": mb, "store": store}, "kipu")
        for store in ("sqlite", "jsonl")
        for mb in sizes
    ]
    small, large = sizes
    bounds = []
    for store in ("sqlite", "jsonl"):
        big, little = f"kipu {store} {large} MB", f"kipu {store} {small} MB"
        for what in ("archive", "restore"):
            bounds.append(Bound(f"{big}: {what}, RSS added, MB", big, f"{what}_peak_mb", 50))
            bounds.append(
                Bound(
                    f"{big}: {what} over {small} MB's, times {large // small}",
                    big,
                    f"{what}_s",
                    1.5 * large / small,
                    little,
                )
            )
    return Figure("archive", "One session into an archive and back", contestants, METRICS, bounds)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
