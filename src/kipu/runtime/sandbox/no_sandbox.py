"""Commands that nothing shuts in."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from kipu.errors import SandboxError
from kipu.runtime.sandbox.bubblewrap import OUTER_PATH, command_environment
from kipu.runtime.sandbox.identity import CommandIdentity, open_identity
from kipu.runtime.sandbox.output_pipe import OutputPipe
from kipu.runtime.sandbox.process_tree import count_tasks_of
from kipu.runtime.sandbox.sandbox import CommandRequest, SandboxReport
from kipu.runtime.sandbox.scratch import Scratch
from kipu.runtime.sandbox.shell_line import limited_shell
from kipu.runtime.sandbox.supervised_command import SupervisedCommand

SUPERVISOR = Path(__file__).with_name("supervisor.py")
MARKER_NAME = "KIPU_COMMAND"


class NoSandbox:
    """Start a session's commands with the rights of a person at a terminal, and say so.

    Limits hold and every process ends with its command, but files, network and other processes are open. When this process
    is root's the commands still run as a user of the session's own, where the system can map owners.
    """

    def __init__(self, root: Path, *, identity: CommandIdentity, scratch: Scratch, reason: str) -> None:
        self._root = root
        self._identity = identity
        self._scratch = scratch
        self._reason = reason
        self._temporary = scratch.directory("tmp", owner=identity.user_id)
        self._home = scratch.directory("tmp/home", owner=identity.user_id)

    @classmethod
    def open(cls, root: Path, *, session_id: str, reason: str) -> NoSandbox:
        """Make what the session's commands need. Blocking."""
        scratch = Scratch()
        try:
            identity = open_identity(session_id, writable=[root], scratch=scratch, is_in_place=True)
        except OSError as error:
            scratch.close()
            raise SandboxError(tool="shell", reason=str(error)) from error
        return cls(root, identity=identity, scratch=scratch, reason=reason)

    @property
    def report(self) -> SandboxReport:
        """Say that there is none, and why."""
        note = self._identity.note
        return SandboxReport(
            kind="none",
            is_in_force=False,
            has_network=True,
            has_dropped_privileges=self._identity.user_id is not None,
            reason=self._reason,
            notes=() if note is None else (note,),
        )

    @property
    def writable(self) -> Sequence[Path]:
        """Return the workspace and the place of temporary files; commands can write elsewhere too."""
        return [self._root, self._temporary]

    def clean(self) -> Sequence[str]:
        """Undo nothing: what a command may do here is anything."""
        return ()

    async def start(self, request: CommandRequest) -> SupervisedCommand:
        """Start a command below a supervisor of its own."""
        marker = f"{MARKER_NAME}={secrets.token_hex(16)}"
        pipe = await OutputPipe.open(user_id=self._identity.user_id)
        try:
            told = await asyncio.to_thread(self._request_line, request, marker)
            supervisor = await self._spawn(pipe.writing)
        except (OSError, ValueError) as error:
            pipe.close()
            raise SandboxError(tool="shell", reason=str(error)) from error
        pipe.close_writing()
        assert supervisor.stdin is not None  # noqa: S101
        supervisor.stdin.write(told)
        return SupervisedCommand(supervisor, pipe, marker=marker.encode())

    async def _spawn(self, writing: int) -> asyncio.subprocess.Process:
        entered = self._identity.namespace
        return await asyncio.create_subprocess_exec(
            *[sys.executable, "-I", "-S", str(SUPERVISOR)],
            stdin=asyncio.subprocess.PIPE,
            stdout=writing,
            stderr=writing,
            env={"PATH": OUTER_PATH, **self._scratch.mark},
            pass_fds=[] if entered is None else [entered],
            start_new_session=True,
            cwd="/",
        )

    def _request_line(self, request: CommandRequest, marker: str) -> bytes:
        user = self._identity.user_id
        # The kernel counts all of a user's tasks, also those that are none of ours.
        others = count_tasks_of(os.geteuid() if user is None else user)
        shell = limited_shell(request.command, request.limits, max_tasks=others + request.limits.processes)
        environment = command_environment({"TMPDIR": str(self._temporary), **request.environment}, home=str(self._home))
        environment = {
            name: value
            for name, value in environment.items()
            if name and "=" not in name and "\0" not in name + value and name != MARKER_NAME
        }
        environment |= dict([marker.split("=", 1)])
        told = {
            "arguments": shell,
            "environment": environment,
            "directory": str(request.directory),
            "user_id": user,
            "namespace": self._identity.namespace,
        }
        return json.dumps(told).encode() + b"\n"

    async def aclose(self) -> None:
        """Remove the session's temporary files."""
        if not self._scratch.is_closed:
            self._identity.close()
            await asyncio.to_thread(self._scratch.close)
