"""How a worker is: for those who start, watch and end it (health and readiness checks, metrics)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kipu.errors import InputError, KipuError, MissingExtraError

if TYPE_CHECKING:
    from starlette.requests import Request

    from kipu.runtime.runtime import Runtime

_ASK_S = 2.0


class Health:
    """Answer `/healthz` (the process works), `/readyz` (it takes turns: not draining, its store there) and `/metrics`."""

    def __init__(self, runtime: Runtime, *, capacity: int) -> None:
        self._runtime = runtime
        self._capacity = capacity
        self._since_s = time.monotonic()
        self._asking: asyncio.Future[bool] | None = None
        self.is_draining = False

    async def is_ready(self) -> bool:
        """Return True while it takes turns."""
        return not self.is_draining and await self._reaches_store()

    async def _reaches_store(self) -> bool:
        """Ask the store, one question at a time: who waits for a store that is gone may wait long, and checks do not."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask_store())
        await asyncio.wait([self._asking], timeout=_ASK_S)
        return self._asking.done() and not self._asking.cancelled() and self._asking.result()

    async def _ask_store(self) -> bool:
        try:
            await self._runtime.manager.store.resolve("kipu:health")
        except KipuError:
            return False
        return True

    async def metrics(self) -> str:
        """Return the figures in the text format that Prometheus reads."""
        worker, elsewhere = self._runtime.worker, self._runtime.elsewhere.waiting
        figures = (
            ("turns_running", "gauge", "Turns that run here.", len(worker.running)),
            ("turns_waiting", "gauge", "Sessions that wait here for a free place.", worker.waiting_count),
            ("sessions_elsewhere", "gauge", "Sessions with work whose files another machine has.", len(elsewhere)),
            ("turns_capacity", "gauge", "Turns that may run here at once.", self._capacity),
            ("sessions_due", "gauge", "Sessions with work that nobody had at the last look.", worker.due_count),
            ("turns_served_total", "counter", "Turns that were run here, or a part of them.", worker.served_count),
            ("turns_failed_total", "counter", "Times that serving a session failed here.", worker.failed_count),
            ("turns_fenced_total", "counter", "Turns that another worker had taken over.", worker.fenced_count),
            ("claims_total", "counter", "Sessions that were taken.", worker.claimed_count),
            ("claims_held_total", "counter", "Sessions that another worker had.", worker.held_count),
            ("store_reachable", "gauge", "Whether the store answers.", int(await self._reaches_store())),
            ("draining", "gauge", "Whether it begins no turns any more.", int(self.is_draining)),
            ("uptime_seconds", "gauge", "Since it began.", round(time.monotonic() - self._since_s, 1)),
        )
        lines = [
            f"# HELP kipu_worker_{name} {text}\n# TYPE kipu_worker_{name} {kind}\nkipu_worker_{name} {value}\n"
            for name, kind, text, value in figures
        ]
        return "".join(lines)

    @asynccontextmanager
    async def served(self, host: str, port: int) -> AsyncIterator[None]:
        """Answer at an address meanwhile, from the first moment on. Raises: MissingExtraError, InputError (it is taken, or not ours)."""
        try:
            import uvicorn
        except ImportError as error:
            raise MissingExtraError(extra="agent", feature="--health", package="uvicorn") from error
        config = uvicorn.Config(self._app(), log_level="warning", lifespan="off")
        try:
            place = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise InputError(reason=f"--health {host}:{port}: {error.strerror or error}") from error

        class Server(uvicorn.Server):
            @contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield  # the command hears them

        server = Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[place]))
        try:
            yield
        finally:
            server.should_exit = True
            with suppress(asyncio.CancelledError):
                await serving

    def _app(self) -> Any:
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        async def healthz(_request: Request) -> PlainTextResponse:
            return PlainTextResponse("ok\n")

        async def readyz(_request: Request) -> PlainTextResponse:
            ready = await self.is_ready()
            return PlainTextResponse("ready\n" if ready else "not ready\n", status_code=200 if ready else 503)

        async def metrics(_request: Request) -> PlainTextResponse:
            return PlainTextResponse(await self.metrics(), media_type="text/plain; version=0.0.4")

        return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)])
