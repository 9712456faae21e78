"""Remove one behaviour at a time from a copy of the source and run the tests that should notice; report those that do not.

`make mutate` runs the whole list (about a quarter of an hour); `python tests/mutations/run_mutations.py ID …` runs some of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutations.toml")
COPIED = ("src", "tests", "docs", "pyproject.toml", "README.md", "README.zh-CN.md", "CHANGELOG.md")
# A removed behaviour may make a test wait for ever: that is noticed too.
TIMEOUT_S = 180.0
_TESTS_FAILED = 1


@dataclass(frozen=True, slots=True)
class Mutation:
    """One behaviour, where it stands, what stands there without it, and which tests must fail then."""

    id: str
    file: str
    old: str
    new: str
    promises: tuple[str, ...]
    tests: tuple[str, ...]


def mutations() -> list[Mutation]:
    """Return the list."""
    with LIST.open("rb") as file:
        entries = tomllib.load(file)["mutation"]
    return [
        Mutation(**{**entry, "promises": tuple(entry["promises"]), "tests": tuple(entry["tests"])}) for entry in entries
    ]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """Yield a copy of what the tests need, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kipu-mutations-") as folder:
        for name in COPIED:
            source, target = ROOT / name, Path(folder, name)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy2(source, target)
        yield Path(folder)


@contextmanager
def applied(mutation: Mutation, tree: Path) -> Iterator[None]:
    """Change the copy for as long as the block lasts."""
    path = tree / mutation.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.id}: its old text occurs {text.count(mutation.old)} times in {mutation.file}")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def outcome_of(tests: Sequence[str], tree: Path) -> str:
    """Run tests in the copy and return "caught", "hung", "survived", or why nothing can be said."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not long", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [*command, "--rootdir", str(tree), "-c", str(tree / "pyproject.toml"), "--basetemp", str(tree / "tmp")],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "hung"
    if process.returncode in {0, _TESTS_FAILED}:
        return "caught" if process.returncode else "survived"
    return f"its tests do not run (pytest says {process.returncode}):\n{said[-1000:]}"


def main(wanted: Sequence[str]) -> int:
    """Run the mutations named, or all; return 1 if any survived."""
    chosen = [mutation for mutation in mutations() if not wanted or mutation.id in wanted]
    bad = 0
    with copied_tree() as tree:
        for number, mutation in enumerate(chosen, 1):
            with applied(mutation, tree):
                outcome = outcome_of(mutation.tests, tree)
            bad += outcome not in {"caught", "hung"}
            print(f"{number}/{len(chosen)} {mutation.id} ({', '.join(mutation.promises)}): {outcome}", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} noticed")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
