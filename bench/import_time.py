"""What `import kipu` costs, what it must not load, and how long `kipu ls` takes on 10 000 sessions.

python -m bench.import_time [--quick] [--json]
"""

from __future__ import annotations

import argparse
import sys

from bench.arena import Contestant
from bench.fixture import Fixture
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("import_cpu_s", "import CPU s", "{:.3f}"),
    Metric("import_wall_s", "import wall s", "{:.3f}"),
    Metric("modules", "modules", "{:.0f}"),
    Metric("forbidden", "forbidden", "{:.0f}"),
    Metric("ls_wall_s", "kipu ls wall s", "{:.3f}"),
    Metric("ls_cpu_s", "kipu ls CPU s", "{:.3f}"),
    Metric("rows", "rows", "{:,.0f}"),
]


def figure(options: argparse.Namespace) -> Figure:
    """Return the import and the listing of both stores."""
    sessions = 1_000 if options.quick else 10_000
    contestants = [
        Contestant("import kipu", "bench.kipu_import:import_door", {}, "kipu"),
        Contestant("import kipu, all names", "bench.kipu_import:import_whole", {}, "kipu"),
    ]
    bounds = [
        Bound("import kipu, CPU s", "import kipu", "import_cpu_s", 0.25),
        Bound("all names of kipu, CPU s", "import kipu, all names", "import_cpu_s", 0.25),
        Bound("model, server and UI libraries loaded", "import kipu", "forbidden", 0),
    ]
    fixtures = []
    for store in ("sqlite", "jsonl"):
        made: dict[str, object] = {"sessions": sessions, "store": store}
        fixture = Fixture(f"kipu-ls-{store}", "bench.kipu_list:build_local", made)
        name = f"kipu ls, {store}, {sessions:,} sessions"
        params: dict[str, object] = {"fixture": str(fixture.path), "store": store}
        contestants.append(Contestant(name, "bench.kipu_import:ls", params, "kipu"))
        bounds.append(Bound(f"{name}, wall s", name, "ls_wall_s", 0.5))
        fixtures.append(fixture)
    return Figure("import_time", "import kipu, and kipu ls", contestants, METRICS, bounds, fixtures)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
