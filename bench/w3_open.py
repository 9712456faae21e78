"""W3: opening a session and building its window costs the same with a million events as with a thousand.

    python -m bench.w3_open [--quick] [--json]

Each sample is a fresh process; `first` is its first opening, `open` the median of thirty over a new store each.
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.fixture import Fixture
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("open_ms", "open ms", "{:.2f}"),
    Metric("with_store_ms", "with its store ms", "{:.2f}"),
    Metric("first_ms", "first ms", "{:.2f}"),
    Metric("rss_mb", "RSS + MB", "{:.1f}"),
    Metric("rss_peak_mb", "peak + MB", "{:.1f}"),
    Metric("shown", "messages", "{:.0f}"),
]


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds of W3."""
    small, large = (1_000, 20_000) if options.quick else (1_000, 1_000_000)
    contestants, fixtures, bounds = [], [], []
    for store in ("jsonl", "sqlite"):
        for events in (small, large):
            fixture = Fixture(f"raw-{store}-{events}", f"bench.raw_tail:build_{store}", {"events": events})
            params: dict[str, object] = {"fixture": str(fixture.path)}
            contestants.append(Contestant(f"raw {store} {events}", f"bench.raw_tail:open_{store}", params))
            fixtures.append(fixture)
        for events in (small, large):
            made: dict[str, object] = {"events": events, "store": store}
            fixture = Fixture(f"kipu-{store}-{events}", "bench.kipu_open:build", made)
            params = {"fixture": str(fixture.path), "store": store}
            contestants.append(Contestant(f"kipu {store} {events}", "bench.kipu_open:open_session", params, "kipu"))
            fixtures.append(fixture)
        bounds += _bounds(store, small=small, large=large)
    title = f"W3: open a session and build its window of 200, {small:,} and {large:,} events (medians)"
    return Figure("w3_open", title, contestants, METRICS, bounds, fixtures)


def _bounds(store: str, *, small: int, large: int) -> list[Bound]:
    name = f"kipu {store} {large}"
    return [
        Bound(f"{name} over {small} events", name, "open_ms", 2.0, other=f"kipu {store} {small}"),
        Bound(f"{name} over the raw tail read", name, "open_ms", 5.0, other=f"raw {store} {large}"),
        Bound(f"{name} peak growth, MB", name, "rss_peak_mb", 10.0),
    ]


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
