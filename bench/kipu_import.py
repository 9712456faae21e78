"""Import Kipu in a fresh process that has loaded nothing but the standard library."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

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
