"""W4: pages of 100 000 sessions against bare SQL, search of 200 000 messages against bare FTS5.

python -m bench.w4_list_search [--quick] [--json]
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.fixture import Fixture
from bench.raw_fts import QUERIES
from bench.report import Bound, Figure, Metric, parser, run_figure

PAGES = {"first_page_ms": "first page", "deep_page_ms": "deep page", "filtered_page_ms": "filtered page"}
METRICS = [Metric(field, f"{title} ms", "{:.3f}") for field, title in PAGES.items()]
METRICS += [Metric("search_ms", "all queries ms", "{:.2f}"), Metric("with_snippets_ms", "with snippets ms", "{:.2f}")]
METRICS += [Metric(f"{name} ms", name, "{:.2f}") for name in QUERIES]


def figure(options: argparse.Namespace) -> Figure:
    """Return the contestants and bounds of W4."""
    sessions, messages = (12_000, 20_000) if options.quick else (100_000, 200_000)
    listing: dict[str, object] = {"sessions": sessions}
    searching: dict[str, object] = {"messages": messages}
    contestants, fixtures, bounds = [], [], []

    def add(name: str, role: str, *, made: Fixture, target: str, params: dict[str, object]) -> None:
        fixtures.append(made)
        contestants.append(Contestant(name, target, {**params, "fixture": str(made.path)}, role))

    raw_heads = Fixture("raw-heads", "bench.raw_list:build", listing)
    add("bare SQL listing", "raw", made=raw_heads, target="bench.raw_list:pages", params=listing)
    raw_fts = Fixture("raw-fts", "bench.raw_fts:build", searching)
    add("bare FTS5", "raw", made=raw_fts, target="bench.raw_fts:search", params=searching)
    for store in ("sqlite", "jsonl"):
        params = {**listing, "store": store}
        made = Fixture(f"kipu-heads-{store}", "bench.kipu_list:build", params)
        add(f"kipu {store} listing", "kipu", made=made, target="bench.kipu_list:pages", params=params)
        params = {**searching, "store": store}
        made = Fixture(f"kipu-messages-{store}", "bench.kipu_search:build", params)
        add(f"kipu {store} search", "kipu", made=made, target="bench.kipu_search:search", params=params)
        bounds += _bounds(store)
    title = f"W4: {sessions:,} sessions listed, {messages:,} messages searched (medians)"
    return Figure("w4_list_search", title, contestants, METRICS, bounds, fixtures)


def _bounds(store: str) -> list[Bound]:
    bounds = [
        Bound(f"kipu {store} {title} over bare SQL", f"kipu {store} listing", field, 3.0, other="bare SQL listing")
        for field, title in PAGES.items()
    ]
    search = f"kipu {store} search"
    bounds.append(Bound(f"{search}, all queries over bare FTS5", search, "search_ms", 3.0, other="bare FTS5"))
    return bounds


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
