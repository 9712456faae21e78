"""Run every figure, keep the results under bench/results, and print one table of what holds.

python -m bench [FIGURE ...] [--quick] [--all-peers] [--no-peers] [--rounds N] [--only W1,W2] [--check] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from rich.console import Console

from bench import peers_env
from bench.arena import ROOT
from bench.report import RESULTS, bounds_table

FIGURES = {
    "w1": "w1_turns",
    "w2": "w2_concurrent",
    "w3": "w3_open",
    "w4": "w4_list_search",
    "prefix": "prefix_share",
    "growth": "log_growth",
    "import": "import_time",
    "encryption": "encryption",
    "redaction": "redaction",
    "access": "access",
    "sweep": "sweep",
    "archive": "archive",
    "runtime": "runtime_turns",
    "postgres": "postgres",
    "live": "live",
    "scale": "scale",
    "workspaces": "workspaces",
    "workers": "workers",
    "valkey": "valkey",
    "copying": "copying",
}


def main() -> int:
    """Run what was asked for, one process a figure; return 1 with --check when a bound does not hold."""
    options = _options()
    console = Console(stderr=True)
    chosen = [name for name in (*options.figures, *options.only.lower().split(",")) if name] or list(FIGURES)
    unknown = [name for name in chosen if name not in FIGURES]
    if unknown:
        console.print(f"No figure called {', '.join(unknown)}. There are: {', '.join(FIGURES)}.")
        return 2
    if not options.no_peers:
        _ensure_peers(options, console=console)
    results = []
    for name in chosen:
        console.rule(name)
        if _run(FIGURES[name], options) == 0:
            suffix = "-quick" if options.quick else ""
            results.append(json.loads((RESULTS / f"{FIGURES[name]}{suffix}.json").read_text()))
    return _finish(results, options, complete=len(results) == len(chosen))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", help="the same as --only, as words")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, proves nothing")
    parser.add_argument("--all-peers", action="store_true", help="the slow peers too, at reduced sizes")
    parser.add_argument("--no-peers", action="store_true", help="leave the peers out")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--only", default="", help=f"comma-separated, of {', '.join(FIGURES)}")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bound does not hold")
    parser.add_argument("--json", action="store_true", help="print all results as one JSON list")
    return parser.parse_args()


def _ensure_peers(options: argparse.Namespace, *, console: Console) -> None:
    try:
        peers_env.ensure()
    except (OSError, subprocess.SubprocessError) as error:
        console.print(f"[yellow]The peers could not be installed, going on without them:[/] {error}")
        options.no_peers = True


def _run(module: str, options: argparse.Namespace) -> int:
    """Run one figure, with the options that it shares; its tables go where ours go."""
    command = [sys.executable, "-m", f"bench.{module}"]
    command += [f"--{name.replace('_', '-')}" for name in ("quick", "all_peers", "no_peers") if getattr(options, name)]
    if options.rounds:
        command += ["--rounds", str(options.rounds)]
    out = subprocess.DEVNULL if options.json else None
    return subprocess.run(command, cwd=ROOT, stdout=out, check=False).returncode


def _finish(results: list[dict], options: argparse.Namespace, *, complete: bool) -> int:
    bounds = [bound for result in results for bound in result["bounds"]]
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        rows = [(bound["label"], bound["value"], bound["limit"], bound["at_least"]) for bound in bounds]
        Console(width=None if sys.stdout.isatty() else 150).print(bounds_table(rows))
    failed = not complete or any(bound["holds"] is not True for bound in bounds)
    return 1 if options.check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
