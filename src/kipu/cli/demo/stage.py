"""Where the tour happens: a folder, a store and a home of its own, and the commands that really run there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kipu.cli.demo.sample_project import make_project
from kipu.errors import DemoStepError

KIPU = (sys.executable, "-c", "import sys; sys.argv[0] = 'kipu'; from kipu.cli import main; main()")
STEP_TIMEOUT_S = 60.0
_DROPPED = ("KIPU_", "XDG_")


@dataclass(slots=True)
class Step:
    """One command of the tour as it ran."""

    title: str
    command: str
    exit_code: int
    seconds: float
    output: str


@dataclass(slots=True)
class Stage:
    """Run `kipu` as processes of their own in `folder`, and tell `show` of each."""

    folder: Path
    show: Callable[[str, str], None]  # a kind (title, command, output) and its text
    has_sandbox: bool = True
    title: str = ""
    steps: list[Step] = field(default_factory=list)

    @property
    def project(self) -> Path:
        """Return the small project that is worked in."""
        return self.folder / "project"

    @property
    def store_url(self) -> str:
        """Return the store of the tour."""
        return f"sqlite:///{self.folder / 'sessions.db'}"

    def prepare(self) -> None:
        """Make the folder's contents."""
        (self.folder / "home").mkdir()
        make_project(self.project)

    def chapter(self, title: str) -> None:
        """Begin a part of the tour."""
        self.title = title
        self.show("title", title)

    def kipu(self, *words: str, expected: Iterable[int] = (0,)) -> Step:
        """Run a command to its end and show it. Raises: DemoStepError (it ended otherwise than expected)."""
        return self.run([*KIPU, *words], shown=shown_command("kipu", *words), expected=expected)

    def run(self, command: list[str], *, shown: str, expected: Iterable[int] | None) -> Step:
        """Run any program in the project. Raises: DemoStepError."""
        self.show("command", shown)
        began_s = time.monotonic()
        try:
            done = subprocess.run(  # noqa: S603 - this program itself, and the project's tests
                command,
                cwd=self.project,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=STEP_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self.failure(f"`{shown}` did not end within {STEP_TIMEOUT_S:.0f} s") from error
        output = done.stdout.decode("utf-8", "replace")
        step = Step(self.title, shown, done.returncode, round(time.monotonic() - began_s, 3), output)
        self.steps.append(step)
        self.show("output", output)
        if expected is not None and done.returncode not in expected:
            raise self.failure(f"`{shown}` ended with exit code {done.returncode}: {output.strip()[-400:]}")
        return step

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on by itself."""
        shown = shown_command("kipu", *words)
        self.show("command", f"{shown} &")
        with (self.folder / "background.log").open("wb") as log:
            return subprocess.Popen(  # noqa: S603 - this program itself
                [*KIPU, *words],
                cwd=self.project,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self, process: subprocess.Popen[bytes]) -> int:
        """Kill it as a crash or a full memory would, and return how it ended: minus the signal's number."""
        self.show("command", f"kill -9 {process.pid}")
        os.kill(process.pid, signal.SIGKILL)
        return process.wait(STEP_TIMEOUT_S)

    def environment(self) -> dict[str, str]:
        """Return the environment of a new user, whatever this one has set."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_DROPPED) and not name.endswith(("_API_KEY", "_BASE_URL"))
        }
        own = {"HOME": str(self.folder / "home"), "KIPU_STORE": self.store_url, "KIPU_MODEL": "demo", "NO_COLOR": "1"}
        # Unbuffered, so that answers and what is said about them come in their order.
        python = {"PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}
        return {**kept, **own, **python, "KIPU_SANDBOX": "auto" if self.has_sandbox else "off"}

    def failure(self, reason: str) -> DemoStepError:
        """Return the error of this part of the tour."""
        return DemoStepError(step=self.title, reason=reason, folder=str(self.folder))

    def require(self, holds: object, reason: str) -> None:
        """Raise DemoStepError unless what the tour says is so."""
        if not holds:
            raise self.failure(reason)


def shown_command(*words: str) -> str:
    """Return a command line that a person could paste.

    >>> shown_command("kipu", "run", "list files")
    "kipu run 'list files'"
    """
    import shlex

    return " ".join(shlex.quote(word) for word in words)


def running_with(argument: str) -> bool | None:
    """Return whether a process with this argument runs on this machine; None where that cannot be seen."""
    if not Path("/proc/self/cmdline").exists():
        return None
    wanted = argument.encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in arguments:
            return True
    return False


def report_of(stage: Stage, facts: dict[str, Any], *, sandbox: str, seconds: float, kept: bool) -> dict[str, Any]:
    """Return the tour for programs."""
    steps = [
        {"title": step.title, "command": step.command, "exit_code": step.exit_code, "seconds": step.seconds}
        for step in stage.steps
    ]
    place = str(stage.folder) if kept else None
    return {"sandbox": sandbox, "seconds": round(seconds, 3), "folder": place, "facts": facts, "steps": steps}
