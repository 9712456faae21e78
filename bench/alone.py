"""Run one raw reference by itself, for a look at the machine."""

from __future__ import annotations

import sys

from rich.console import Console

from bench.arena import Contestant, run_rounds


def main(target: str, params: dict[str, object], *, quick: dict[str, object]) -> None:
    """Measure a runner five times (once with --quick) and print its medians."""
    is_quick = "--quick" in sys.argv
    contestant = Contestant(target.split(".", 1)[1], target, quick if is_quick else params)
    console = Console()
    outcome = run_rounds([contestant], rounds=1 if is_quick else 5, console=console)
    for name, reason in outcome.failures.items():
        console.print(f"{name}: {reason}")
    for field in outcome.samples[contestant.name][0] if outcome.samples[contestant.name] else ():
        console.print(f"{contestant.name:<40} {field:<22} {outcome.median(contestant.name, field):.4g}")
