"""Commands shut in by bubblewrap."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kipu.errors import SandboxError
from kipu.runtime.sandbox.bubblewrap_arguments import (
    HOME,
    VisibleFiles,
    environment_arguments,
    file_arguments,
    namespace_arguments,
)
from kipu.runtime.sandbox.identity import CommandIdentity, open_identity
from kipu.runtime.sandbox.output_pipe import OutputPipe
from kipu.runtime.sandbox.protected_files import ProtectedFiles
from kipu.runtime.sandbox.sandbox import CommandRequest, SandboxReport
from kipu.runtime.sandbox.sandboxed_command import SandboxedCommand, read_first_process
from kipu.runtime.sandbox.scratch import Scratch
from kipu.runtime.sandbox.seccomp import command_filter
from kipu.runtime.sandbox.shell_line import limited_shell

OUTER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class SandboxFiles:
    """What commands see besides the system: `root` and `writable` to change, `readable` to read, `hidden` never."""

    root: Path
    writable: Sequence[Path] = ()
    readable: Sequence[Path] = ()
    hidden: Sequence[Path] = ()


class BubblewrapSandbox:
    """Start a session's commands where they see the system read-only, their own files, and nobody else's processes.

    Their network is a loopback of their own unless `has_network`. /tmp and HOME are the session's own and go with it.
    """

    def __init__(
        self, program: str, files: SandboxFiles, *, identity: CommandIdentity, scratch: Scratch, has_network: bool
    ) -> None:
        self._program = program
        self._files = files
        self._identity = identity
        self._scratch = scratch
        self._has_network = has_network
        self._protected = ProtectedFiles(files.root, files.writable)
        self._temporary = scratch.directory("tmp", owner=identity.user_id)
        scratch.directory("tmp/home", owner=identity.user_id)

    @classmethod
    def open(
        cls, program: str, files: SandboxFiles, *, session_id: str, has_network: bool = False
    ) -> BubblewrapSandbox:
        """Make what the session's commands need. Blocking: it makes directories and, as root, a mount namespace."""
        if len(files.root.parts) == 1:
            raise SandboxError(tool="shell", reason="the workspace is the whole file system")
        scratch = Scratch()
        try:
            identity = open_identity(session_id, writable=[files.root, *files.writable], scratch=scratch)
        except OSError as error:
            scratch.close()
            raise SandboxError(tool="shell", reason=str(error)) from error
        return cls(program, files, identity=identity, scratch=scratch, has_network=has_network)

    @property
    def report(self) -> SandboxReport:
        """Say that it is in force, and how."""
        note = self._identity.note
        return SandboxReport(
            kind="bubblewrap",
            is_in_force=True,
            has_network=self._has_network,
            has_dropped_privileges=self._identity.user_id is not None,
            notes=() if note is None else (note,),
            read_only=tuple(self._protected.names),
        )

    @property
    def writable(self) -> Sequence[Path]:
        """Return the workspace, what else may be written, and the place of temporary files."""
        return [self._files.root, *self._files.writable, self._temporary]

    def clean(self) -> Sequence[str]:
        """Undo what no mount keeps out."""
        return self._protected.clean()

    async def start(self, request: CommandRequest) -> SandboxedCommand:
        """Start a command in there."""
        pipe = await OutputPipe.open(user_id=self._identity.user_id)
        info_reading, info_writing = os.pipe()
        ours, theirs = socket.socketpair()
        data: list[int] = []
        try:
            arguments = self._arguments(request, data)
            if (filtered := command_filter()) is not None:
                data.append(_data_file(filtered))
                arguments += ["--seccomp", str(data[-1])]
            told = _data_file("\0".join([*arguments, ""]).encode("utf-8", "surrogateescape"))
            data.append(told)
            shell = limited_shell(request.command, request.limits, max_tasks=request.limits.processes, is_awaiting=True)
            inner = [self._program, "--info-fd", str(info_writing), "--args", str(told), "--", *shell]
            monitor = await self._spawn(inner, theirs, pipe.writing, [info_writing, *data])
        except (OSError, ValueError) as error:
            ours.close()
            os.close(info_reading)
            pipe.close()
            raise SandboxError(tool="shell", reason=str(error)) from error
        finally:
            theirs.close()
            pipe.close_writing()
            for descriptor in [info_writing, *data]:
                os.close(descriptor)
        first_process = await read_first_process(info_reading)
        await _let_go(ours)
        return SandboxedCommand(monitor, pipe, first_process=first_process)

    async def _spawn(
        self, inner: list[str], awaited: socket.socket, writing: int, passed: list[int]
    ) -> asyncio.subprocess.Process:
        entered = self._identity.namespace
        if entered is not None:
            user = str(self._identity.user_id)
            # By our own process's name: a descriptor that was passed on would still be open in the command.
            namespace = f"/proc/{os.getpid()}/fd/{entered}"
            inner = ["nsenter", f"--mount={namespace}", "-S", user, "-G", user, "--", *inner]
        # Nothing of the session's environment may reach the programs outside: it would run with our rights.
        return await asyncio.create_subprocess_exec(
            *inner,
            stdin=awaited.fileno(),
            stdout=writing,
            stderr=writing,
            env={"PATH": OUTER_PATH, **self._scratch.mark},
            pass_fds=passed,
            start_new_session=True,
            cwd="/",
        )

    def _arguments(self, request: CommandRequest, data: list[int]) -> list[str]:
        account = None
        if self._identity.user_id is not None:
            account = _account_files(self._identity.user_id)
            data.extend(account)
        files = VisibleFiles(
            writable={place: self._identity.place_of(place) for place in [self._files.root, *self._files.writable]},
            readable=self._files.readable,
            hidden=self._files.hidden,
            temporary=self._temporary,
            protected=self._protected.mounts,
        )
        return [
            *namespace_arguments(has_network=self._has_network),
            *file_arguments(files, limits=request.limits, account=account),
            *environment_arguments(command_environment(request.environment, home=HOME)),
            *("--chdir", str(request.directory)),
        ]

    async def aclose(self) -> None:
        """Remove /tmp and HOME of the session."""
        if not self._scratch.is_closed:
            self._identity.close()
            await asyncio.to_thread(self._scratch.close)


async def _let_go(awaited: socket.socket) -> None:
    """Wait for a command to say that it is there, and let it begin.

    By then all of bubblewrap's processes are bound to this one. If it died before, they might not be, and would run on: so
    the command begins only on a word that a dead process cannot say.
    """
    loop = asyncio.get_running_loop()
    awaited.setblocking(False)
    with awaited, contextlib.suppress(OSError):
        if await loop.sock_recv(awaited, 1):
            await loop.sock_sendall(awaited, b"\n")


def command_environment(environment: Mapping[str, str], *, home: str) -> dict[str, str]:
    """Return the whole environment of a command."""
    path = os.environ.get("PATH", OUTER_PATH)
    return {"PATH": path, "LANG": "C.UTF-8", "HOME": home, "TERM": "dumb", **environment}


def _account_files(user_id: int) -> tuple[int, int]:
    """Return descriptors of a passwd and a group file that know the session's user."""
    passwd = f"kipu:x:{user_id}:{user_id}:Kipu session:{HOME}:/bin/sh\n"
    group = f"kipu:x:{user_id}:\n"
    return (
        _data_file(Path("/etc/passwd").read_bytes().rstrip(b"\n") + b"\n" + passwd.encode()),
        _data_file(Path("/etc/group").read_bytes().rstrip(b"\n") + b"\n" + group.encode()),
    )


def _data_file(data: bytes) -> int:
    descriptor = os.memfd_create("kipu", os.MFD_CLOEXEC)
    while data:
        data = data[os.write(descriptor, data) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
