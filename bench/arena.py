"""Run contestants interleaved, each round in fresh processes, and keep every sample."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parent.parent
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
WORK = ROOT / "bench" / ".work"
Sample = dict[str, float]


@dataclass(frozen=True)
class Contestant:
    """Name a runner: `module:function` called with a fresh directory and the parameters."""

    name: str
    target: str
    params: dict[str, object] = field(default_factory=dict)
    role: str = "raw"

    @property
    def python(self) -> str:
        """Return the interpreter: peers live in an environment of their own."""
        return str(PEERS_PYTHON) if self.role == "peer" else sys.executable


@dataclass
class Outcome:
    """Hold what the rounds gave: samples by contestant, and why some have none."""

    samples: dict[str, list[Sample]]
    failures: dict[str, str]

    def median(self, name: str, metric: str) -> float | None:
        """Return the median of a metric over the rounds, None where it was not measured."""
        values = [sample[metric] for sample in self.samples.get(name, []) if metric in sample]
        return statistics.median(values) if values else None

    def ratio(self, name: str, other: str, metric: str) -> float | None:
        """Return the median of the per-round ratios: a busy neighbour hits both sides of a round."""
        mine, theirs = self.samples.get(name, []), self.samples.get(other, [])
        pairs = [(a[metric], b[metric]) for a, b in zip(mine, theirs, strict=False) if metric in a and metric in b]
        return statistics.median(a / b for a, b in pairs) if pairs else None


def run_rounds(contestants: list[Contestant], *, rounds: int, console: Console) -> Outcome:
    """Run every contestant once a round, in an order that turns, showing progress."""
    outcome = Outcome(samples={one.name: [] for one in contestants}, failures={})
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=rounds * len(contestants))
        for number in range(rounds):
            turned = contestants[number % len(contestants) :] + contestants[: number % len(contestants)]
            for contestant in turned:
                progress.update(task, description=f"round {number + 1} {contestant.name}")
                _run_one(contestant, outcome)
                progress.advance(task)
    return outcome


def _run_one(contestant: Contestant, outcome: Outcome) -> None:
    if contestant.name in outcome.failures:
        return
    if contestant.role == "peer" and not PEERS_PYTHON.exists():
        outcome.failures[contestant.name] = "no .venv-bench: run `python -m bench.peers_env` first"
        return
    WORK.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=WORK))
    try:
        outcome.samples[contestant.name].append(run_worker(contestant, directory))
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        outcome.failures[contestant.name] = _reason(error)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_worker(contestant: Contestant, directory: Path) -> Sample:
    """Run the contestant in a fresh process and return its sample."""
    command = [contestant.python, "-m", "bench.worker", contestant.target, str(directory)]
    done = subprocess.run(
        [*command, json.dumps(contestant.params)],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=1800,
        check=True,
    )
    sample: Sample = json.loads(done.stdout.strip().splitlines()[-1])
    return sample


def _environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OTEL_SDK_DISABLED": "true"}


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = error.stderr.strip().splitlines() or ["no message"]
        return f"exit {error.returncode}: {lines[-1][:200]}"
    return f"{type(error).__name__}: {error}"


def machine() -> dict[str, object]:
    """Describe what the figures depend on."""
    WORK.mkdir(parents=True, exist_ok=True)
    found = subprocess.run(["df", "--output=fstype", str(WORK)], capture_output=True, text=True, check=False)
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "file_system": found.stdout.split()[-1] if found.stdout else "unknown",
    }
