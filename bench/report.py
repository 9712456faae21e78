"""Print what a figure measured and whether it holds, as tables for people or JSON for machines."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from bench.arena import ROOT, Contestant, Outcome, machine, run_rounds
from bench.fixture import Fixture, ensure

RESULTS = ROOT / "bench" / "results"


@dataclass(frozen=True)
class Metric:
    """Name a column: the sample's field, its heading and how it is written."""

    field: str
    title: str
    style: str = "{:.3g}"


@dataclass(frozen=True)
class Bound:
    """State a limit from the issue: a metric of `name`, over that of `other` if given, at most or at least `limit`."""

    label: str
    name: str
    metric: str
    limit: float
    other: str | None = None
    at_least: bool = False
    other_metric: str | None = None

    def value(self, outcome: Outcome) -> float | None:
        """Return what was measured, None where one side is missing."""
        if self.other is None:
            return outcome.median(self.name, self.metric)
        if self.other_metric is None:
            return outcome.ratio(self.name, self.other, self.metric)
        mine, theirs = outcome.median(self.name, self.metric), outcome.median(self.other, self.other_metric)
        return mine / theirs if mine is not None and theirs else None

    def holds(self, outcome: Outcome) -> bool | None:
        """Return whether the limit is kept, None where it could not be measured."""
        value = self.value(outcome)
        if value is None:
            return None
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Figure:
    """Everything one script measures."""

    name: str
    title: str
    contestants: list[Contestant]
    metrics: list[Metric]
    bounds: list[Bound]
    fixtures: list[Fixture] = field(default_factory=list)


def parser(description: str) -> argparse.ArgumentParser:
    """Return the options that every figure has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, proves nothing")
    options.add_argument("--rounds", type=int, default=None, help="rounds, at least 5 for a figure")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    options.add_argument("--check", action="store_true", help="exit 1 when a bound does not hold")
    options.add_argument("--no-peers", action="store_true", help="leave the peers out")
    options.add_argument("--all-peers", action="store_true", help="the slow peers too, at reduced sizes")
    options.add_argument("--fresh", action="store_true", help="build big test data anew")
    options.add_argument("--only", default="", help="run the contestants whose name contains this")
    return options


def run_figure(build: Callable[[argparse.Namespace], Figure], options: argparse.Namespace) -> int:
    """Measure, print, keep the result under bench/results and return the exit code."""
    console = Console(stderr=True)
    figure = build(options)
    chosen = [one for one in figure.contestants if options.only in one.name]
    if options.no_peers:
        chosen = [one for one in chosen if one.role != "peer"]
    rounds = options.rounds or (1 if options.quick else 5)
    unbuilt = _build_fixtures(figure, chosen, console=console, fresh=options.fresh)
    ready = [one for one in chosen if one.params.get("fixture") not in unbuilt]
    outcome = run_rounds(ready, rounds=rounds, console=console)
    outcome.failures |= {one.name: unbuilt[str(one.params["fixture"])] for one in chosen if one not in ready}
    result = as_json(figure, outcome, quick=options.quick)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{figure.name}{'-quick' if options.quick else ''}.json").write_text(json.dumps(result, indent=1))
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        width = None if sys.stdout.isatty() else 150
        print_tables(figure, outcome, console=Console(file=sys.stdout, width=width))
    failed = any(bound["holds"] is False for bound in result["bounds"])
    return 1 if options.check and failed else 0


def _build_fixtures(figure: Figure, chosen: list[Contestant], *, console: Console, fresh: bool) -> dict[str, str]:
    wanted = {one.params.get("fixture") for one in chosen}
    unbuilt = {}
    for fixture in figure.fixtures:
        reason = ensure(fixture, console=console, fresh=fresh) if str(fixture.path) in wanted else None
        if reason is not None:
            unbuilt[str(fixture.path)] = reason
    return unbuilt


def as_json(figure: Figure, outcome: Outcome, *, quick: bool) -> dict:
    """Return the samples, medians and bounds of a figure."""
    contestants = {}
    for one in figure.contestants:
        samples = outcome.samples.get(one.name, [])
        fields = samples[0] if samples else {}
        medians = {name: outcome.median(one.name, name) for name in fields}
        contestants[one.name] = {**asdict(one), "median": medians, "samples": samples}
    bounds = [
        {**asdict(bound), "value": bound.value(outcome), "holds": bound.holds(outcome)} for bound in figure.bounds
    ]
    return {
        "figure": figure.name,
        "title": figure.title,
        "quick": quick,
        "machine": machine(),
        "contestants": contestants,
        "bounds": bounds,
        "failures": outcome.failures,
    }


def print_tables(figure: Figure, outcome: Outcome, *, console: Console) -> None:
    """Print the medians by contestant, then the bounds."""
    table = Table(title=figure.title)
    table.add_column("contestant")
    for metric in figure.metrics:
        table.add_column(metric.title, justify="right")
    for one in figure.contestants:
        if not outcome.samples.get(one.name):
            continue
        values = [outcome.median(one.name, metric.field) for metric in figure.metrics]
        cells = ["–" if v is None else m.style.format(v) for v, m in zip(values, figure.metrics, strict=True)]
        table.add_row(one.name, *cells)
    console.print(table)
    if figure.bounds:
        console.print(bounds_table([(b.label, b.value(outcome), b.limit, b.at_least) for b in figure.bounds]))
    for name, reason in outcome.failures.items():
        console.print(f"[yellow]not measured:[/] {name}: {reason}", highlight=False)


def bounds_table(rows: list[tuple[str, float | None, float, bool]]) -> Table:
    """Return a table of label, measured value, limit and verdict."""
    table = Table(title="bounds")
    for heading in ("what must hold", "measured", "limit", ""):
        table.add_column(heading, justify="left" if heading == "what must hold" else "right")
    for label, value, limit, at_least in rows:
        sign = "≥" if at_least else "≤"
        if value is None:
            table.add_row(label, "–", f"{sign} {limit:.3g}", "not measured")
            continue
        holds = value >= limit if at_least else value <= limit
        verdict = "[green]holds[/]" if holds else "[red]FAILS[/]"
        table.add_row(label, f"{value:.3g}", f"{sign} {limit:.3g}", verdict)
    return table
