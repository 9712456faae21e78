"""`GitProgram`: the git program, run so that nothing in a repository runs anything else."""

from __future__ import annotations

import os
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
    # Files that a sandboxed command wrote belong to another user. What that check guards against is closed here.
    "safe.directory": "*",
    "submodule.recurse": "false",
    "protocol.ext.allow": "never",
}
_OWN_SCOPES = frozenset({"local", "worktree"})
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

    def run(self, *arguments: str, cwd: Path, git_dir: Path | None = None, converts: bool = False) -> GitOutput:
        """Run one command in `cwd`, on the repository there or on `git_dir`, and return how it ended. Blocking.

        A command that `converts` contents (checking out, comparing) may need filter programs, such as those for large files:
        it gets those of the user's own settings, never those that the repository's settings name.
        Raises: GitError (no git, no directory, or it did not end in time; then nothing of it is left running).
        """
        place = () if git_dir is None else ("--git-dir", str(git_dir))
        settings = _QUIET | self._filters(place, cwd) if converts else _QUIET
        return self._run([*place, *arguments], cwd=cwd, settings=settings)

    def text(self, *arguments: str, cwd: Path, git_dir: Path | None = None, converts: bool = False) -> str:
        """Return what a command prints. Raises: GitError (also when it fails, with what it said)."""
        output = self.run(*arguments, cwd=cwd, git_dir=git_dir, converts=converts)
        if output.status != 0:
            raise GitError(root=str(cwd), reason=_reason(output))
        return output.text

    def _filters(self, place: Sequence[str], cwd: Path) -> dict[str, str]:
        """Return every filter setting that the repository makes, as the user's own settings have it, else empty."""
        question = (*place, "config", "--show-scope", "-z", "--get-regexp", r"^filter\.")
        answer = self._run(question, cwd=cwd, settings=_QUIET)
        if answer.status > 1:  # 1 is "there are none"; not to know is not to run them
            raise GitError(root=str(cwd), reason=_reason(answer))
        words = os.fsdecode(answer.stdout).split("\0")
        users: dict[str, str] = {}
        repositorys: set[str] = set()
        for scope, entry in zip(words[::2], words[1::2], strict=False):
            name, _, value = entry.partition("\n")
            if scope in _OWN_SCOPES:
                repositorys.add(name)
            else:
                users[name] = value
        return {name: users.get(name, "false" if name.endswith(".required") else "") for name in sorted(repositorys)}

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
                    told = f"'git {' '.join(arguments)}' did not end within {self._timeout_s:g} s"
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
