"""Running the command line: within this process for many commands, as a process of its own where that matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from kipu.cli.app import make_app

KIPU = (sys.executable, "-c", "import sys; sys.argv[0] = 'kipu'; from kipu.cli import main; main()")


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it wrote."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Return stdout as one JSON value."""
        return json.loads(self.stdout)

    @property
    def lines(self) -> list[Any]:
        """Return stdout as JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]


class CommandLine:
    """A person's command line: a home folder and a store."""

    def __init__(self, home: Path, store: str) -> None:
        self.home = home
        self.store = store
        self.environment = {"HOME": str(home), "KIPU_STORE": store, "KIPU_MODEL": "demo"}

    def run(self, *words: str, stdin: str | bytes = "") -> Ran:
        """Run a command in this process."""
        with chdir(self.home):  # where a chat's agent works
            result = CliRunner().invoke(make_app(), list(words), input=stdin, env=self._cleared())
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def process(self, *words: str, stdin: str = "") -> Ran:
        """Run a command as a process."""
        done = subprocess.run(
            [*KIPU, *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.process_environment(),
            cwd=self.home,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def process_environment(self) -> dict[str, str]:
        """Return the environment of such a process."""
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR", "PYTHONPATH")}
        return {**kept, **self.environment}

    def _cleared(self) -> dict[str, str | None]:
        named: dict[str, str | None] = {
            name: None for name in os.environ if name.startswith(("KIPU_", "XDG_")) or name.endswith("_API_KEY")
        }
        return {**named, **self.environment}

    def chat(self, *lines: str, options: tuple[str, ...] = ()) -> Ran:
        """Chat through a pipe."""
        return self.run("chat", *options, stdin="".join(line + "\n" for line in lines))

    def ids(self) -> list[str]:
        """Return the listed session ids, newest first."""
        return [head["session_id"] for head in self.run("ls", "--json").json]

    def head(self, session_id: str) -> dict[str, Any]:
        """Return a session as `show --json` gives it."""
        shown: dict[str, Any] = self.run("show", session_id, "--json").json
        return shown

    def events(self, session_id: str) -> list[dict[str, Any]]:
        """Return a session's events."""
        events: list[dict[str, Any]] = self.head(session_id)["events"]
        return events
