"""A real PgBouncer before a server, where this machine has one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

WHY_NOT = "there is no pgbouncer on this machine: apt-get install pgbouncer"
_PLACES = (None, f"/usr/sbin{os.pathsep}/usr/local/sbin")


def pgbouncer() -> str:
    """Return where the program is, or skip the test."""
    found = next((path for path in (shutil.which("pgbouncer", path=place) for place in _PLACES) if path), None)
    if found is None:
        pytest.skip(WHY_NOT)
    return found


@contextmanager
def pooled(server_folder: str, *, user: str | None, connections: int = 8) -> Iterator[str]:
    """Give the URL of a pooler in transaction mode that has so many connections to the server with a socket in a folder."""
    program = pgbouncer()
    folder = Path(tempfile.mkdtemp(prefix="kipu-pooler-"))
    lines = (
        "[databases]", f"* = host={server_folder} user=postgres", "[pgbouncer]", "listen_addr =", "listen_port = 5432",
        f"unix_socket_dir = {folder}", "auth_type = any", "pool_mode = transaction", f"default_pool_size = {connections}",
        "max_client_conn = 500", f"logfile = {folder}/log",
    )  # fmt: skip
    (folder / "pgbouncer.ini").write_text("\n".join(lines))
    if user is not None:
        shutil.chown(folder, user)
    process = subprocess.Popen([program, "-q", str(folder / "pgbouncer.ini")], user=user, cwd=folder)
    url = f"postgresql://postgres@/postgres?host={folder}"
    try:
        _wait_for(process, url)
        yield url
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def _wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    while process.poll() is None:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            continue
        return
    raise RuntimeError("pgbouncer ended")
