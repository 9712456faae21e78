"""What `import kipu` costs, what it must not load, and how long `kipu ls` takes on 10 000 sessions.

python -m bench.import_time [--quick] [--json]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

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
# Models, servers, user interfaces: what a library user has not asked for.
FORBIDDEN = (
    *("pydantic_ai", "openai", "anthropic", "google", "xllamacpp", "httpx", "httpx2", "tiktoken", "rs_bpe"),
    *("fastapi", "starlette", "uvicorn", "websockets", "aiohttp"),
    *("textual", "prompt_toolkit", "rich", "typer", "click", "tkinter"),
    *("mcp", "opentelemetry", "psycopg", "valkey", "redis"),
)


def import_door(directory: Path) -> dict[str, float]:
    """Import the public door in this fresh process, and name what it must not have loaded on stderr."""
    del directory
    before = set(sys.modules)
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    import kipu

    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    for name in kipu.__all__:  # a lazy door must not hide the cost
        getattr(kipu, name)
    found = sorted({name.split(".")[0] for name in sys.modules} & set(FORBIDDEN))
    if found:
        print("loaded without need:", ", ".join(found), file=sys.stderr)
    return {
        "import_cpu_s": cpu_s,
        "import_wall_s": wall_s,
        "modules": len(set(sys.modules) - before),
        "forbidden": len(found),
    }


def import_whole(directory: Path) -> dict[str, float]:
    """As `import_door`, with every public name used within what is timed."""
    del directory
    before = set(sys.modules)
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    import kipu

    for name in kipu.__all__:
        getattr(kipu, name)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return {"import_cpu_s": cpu_s, "import_wall_s": wall_s, "modules": len(set(sys.modules) - before)}


def ls(directory: Path, *, fixture: str, store: str) -> dict[str, float]:
    """Run `kipu ls` as people do, in a process of its own, output captured."""
    import os

    from bench.kipu_store import store_url

    del directory
    kipu = Path(sys.executable).with_name("kipu")
    start_s = time.perf_counter()
    child = subprocess.Popen(
        [str(kipu), "ls", "--store", store_url(store, Path(fixture))], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall_s = time.perf_counter() - start_s
    if status:
        raise RuntimeError(f"kipu ls failed: {output[-400:].decode(errors='replace')}")
    return {"ls_wall_s": wall_s, "ls_cpu_s": usage.ru_utime + usage.ru_stime, "rows": float(output.count(b"\n"))}


def figure(options: argparse.Namespace) -> Figure:
    """Return the import and the listing of both stores."""
    sessions = 1_000 if options.quick else 10_000
    contestants = [
        Contestant("import kipu", "bench.import_time:import_door", {}, "kipu"),
        Contestant("import kipu, all names", "bench.import_time:import_whole", {}, "kipu"),
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
        contestants.append(Contestant(name, "bench.import_time:ls", params, "kipu"))
        bounds.append(Bound(f"{name}, wall s", name, "ls_wall_s", 0.5))
        fixtures.append(fixture)
    return Figure("import_time", "import kipu, and kipu ls", contestants, METRICS, bounds, fixtures)


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
