"""Machines that each run one worker process behind a proxy of its own, and the server that they all use."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.acceptance.many_machines.line_proxy import LineProxy, line_proxy
from tests.acceptance.postgres.cluster import Server, both
from tests.acceptance.runtime import soak_worker
from tests.acceptance.runtime.soak_worker import Book, Machine

FIVE_MINUTES_S = 300.0


class WorkerMachine:
    """One of them: its worker may be killed, frozen and thawed, and comes back on the same machine."""

    def __init__(self, machine: Machine, proxy: LineProxy, *, url: str, book: Path, options: Mapping[str, Any]) -> None:
        self.machine = machine
        self.proxy = proxy
        self.is_frozen = False
        self._url, self._book, self._options = url, book, dict(options)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.acceptance.runtime.soak_worker"])
        self.worker: Any = None

    def start(self, *, seed: int) -> None:
        """Start its worker."""
        arguments = (self._url, str(self._book), seed, self._options, self.machine)
        self.worker = self._context.Process(target=soak_worker.main, args=arguments, daemon=True)
        self.worker.start()

    async def begun(self) -> None:
        """Return when its worker works."""
        async with asyncio.timeout(90):
            while not Book(self._book).has_begun(self.worker.pid):
                assert self.worker.exitcode is None, f"a worker that began ended with {self.worker.exitcode}"
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """End its worker by SIGKILL."""
        self.worker.kill()
        await asyncio.to_thread(self.worker.join)

    def freeze(self) -> None:
        """Stop its worker where it is."""
        os.kill(self.worker.pid, signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        """Let its worker go on as if nothing had been."""
        os.kill(self.worker.pid, signal.SIGCONT)
        self.is_frozen = False

    async def end(self) -> int | None:
        """End its worker in order, and return its exit code."""
        if self.is_frozen:
            self.thaw()
        self.worker.terminate()
        await asyncio.to_thread(self.worker.join, 60)
        code: int | None = self.worker.exitcode
        if code is None:
            await self.kill()
        return code


class ServerPair:
    """A primary, and a standby that has all that is acknowledged; what happens to the server happens to whichever is primary."""

    def __init__(self, primary: Server, standby: Server) -> None:
        self.url = f"{both(primary, standby)}&target_session_attrs=read-write"
        self._primary, self._standby = primary, standby

    def folder(self) -> Path:
        """Return where the primary has its socket."""
        return self._primary.folder

    def stop(self, mode: str) -> None:
        """Stop the primary: `fast`, or `immediate` as a crash would."""
        self._primary.stop(mode)

    def start(self) -> None:
        """Start it again."""
        self._primary.start()

    def fail_over(self) -> None:
        """Have the primary lose its power for good, and the standby take over. It happens once."""
        self._primary.kill()
        self._standby.promote()
        self._primary, self._standby = self._standby, self._primary


class Place:
    """All machines and the server. What happens to them is in `troubles`."""

    def __init__(self, server: ServerPair, machines: list[WorkerMachine], follower_proxy: LineProxy) -> None:
        self.server = server
        self.machines = machines
        self.follower_proxy = follower_proxy

    @property
    def proxies(self) -> list[LineProxy]:
        """Return every proxy: the machines', and that of who follows from afar."""
        return [*(machine.proxy for machine in self.machines), self.follower_proxy]

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        server: ServerPair,
        *,
        schema: str,
        book: Path,
        options: Mapping[str, Any],
        lease_ttl_s: float,
    ) -> Place:
        """Give three machines: one with a single connection, one with two and a clock that is late, one with one that is early."""
        machines = []
        for number, (connections, off_s) in enumerate(((1, 0.0), (2, -FIVE_MINUTES_S), (8, FIVE_MINUTES_S))):
            proxy = await stack.enter_async_context(line_proxy(server.folder))
            url = f"{proxy.url}&schema={schema}&connections={connections}&statement_timeout_s=5"
            machine = Machine(f"machine-{number}", off_s, lease_ttl_s)
            machines.append(WorkerMachine(machine, proxy, url=url, book=book, options=options))
        return cls(server, machines, await stack.enter_async_context(line_proxy(server.folder)))
