"""`GitProgram`: the git program, run so that nothing in a repository runs anything else."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kipu.errors import GitError

TIMEOUT_S = 30.0
# Settings that a repository could use to run a program of its own. A session may have written them (B41).
_QUIET = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.editor": "true",
    "core.askPass": "true",
    "core.sshCommand": "false",
    "diff.external": "",
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "safe.bareRepository": "explicit",
    "submodule.recurse": "false",
    "protocol.ext.allow": "never",
}
_FILTER = re.compile(r"filter\..+\.(clean|smudge|process)")
# What git needs of the environment: where its programs and the user's own settings are. GIT_* would point it elsewhere.
_KEPT = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "USER", "LOGNAME")


class GitOutput(NamedTuple):
    """How a run ended."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Return what it printed, without the newline at the end."""
        return os.fsdecode(self.stdout).rstrip("\n")


class GitProgram:
    """Run git without hooks, prompts, pager, network helpers or file system monitors, and never longer than `timeout_s`."""

    def __init__(self, environment: Mapping[str, str] | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        given = os.environ if environment is None else environment
        self._environment = {name: given[name] for name in _KEPT if name in given} | {
            "LC_ALL": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_PAGER": "cat",
            "GIT_EDITOR": "true",
        }
        self._timeout_s = timeout_s
        self._program = shutil.which("git", path=self._environment.get("PATH"))

    @property
    def is_there(self) -> bool:
        """Return True when there is a git program."""
        return self._program is not None

    def run(self, *arguments: str, cwd: Path, filters: bool = True) -> GitOutput:
        """Run one command and return how it ended. Blocking.

        With `filters=False` the repository's own filter programs do not run either; files that need them then count as they
        are. Raises: GitError (no git, no directory, or it did not end in time; then nothing of it is left running).
        """
        settings = dict(_QUIET)
        if not filters:
            settings.update(self._without_filters(cwd))
        return self._run(arguments, cwd=cwd, settings=settings)

    def text(self, *arguments: str, cwd: Path) -> str:
        """Return what a command prints. Raises: GitError (also when it fails, with what it said)."""
        output = self.run(*arguments, cwd=cwd)
        if output.status != 0:
            raise GitError(root=str(cwd), reason=_reason(output))
        return output.text

    async def text_of(self, *arguments: str, cwd: Path) -> str:
        """Return what a command prints, run in a thread. Raises: GitError."""
        return await asyncio.to_thread(self.text, *arguments, cwd=cwd)

    def _without_filters(self, cwd: Path) -> dict[str, str]:
        listed = self._run(("config", "--name-only", "-z", "--get-regexp", r"^filter\."), cwd=cwd, settings=_QUIET)
        names = {name for name in os.fsdecode(listed.stdout).split("\0") if _FILTER.fullmatch(name)}
        required = {name.rpartition(".")[0] + ".required" for name in names}
        return dict.fromkeys(sorted(names), "") | dict.fromkeys(sorted(required), "false")

    def _run(self, arguments: Sequence[str], *, cwd: Path, settings: Mapping[str, str]) -> GitOutput:
        if self._program is None:
            raise GitError(root=str(cwd), reason="there is no git program on this machine")
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [self._program, *options, *arguments]
        try:
            # A group of its own: what git started ends with it, and the terminal's Ctrl-C is not for it.
            process = subprocess.Popen(  # noqa: S603 - git, with arguments that no shell reads
                command,
                cwd=cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise GitError(root=str(cwd), reason=error.strerror or str(error)) from error
        with process:
            try:
                stdout, stderr = process.communicate(timeout=self._timeout_s)
            except BaseException as error:
                _end(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    told = f"'git {arguments[0]}' did not end within {self._timeout_s:g} s"
                    raise GitError(root=str(cwd), reason=told) from None
                raise
        return GitOutput(process.returncode, stdout, stderr.decode("utf-8", "replace").strip())


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason(output: GitOutput) -> str:
    lines = [line.removeprefix("fatal: ").removeprefix("error: ") for line in output.stderr.splitlines() if line]
    return "; ".join(lines[-3:]) or f"it ended with status {output.status}"
