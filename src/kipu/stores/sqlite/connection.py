"""Opening the file: its modes, its journal, and what is refused before anything is written."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from urllib.parse import quote

import apsw

from kipu.errors import NetworkFileSystemError, NewerFormatError, StoreReadOnlyError, StoreUnavailableError
from kipu.stores.file_system import is_network
from kipu.stores.sqlite.schema import FORMAT, create_if_empty, found_format
from kipu.stores.tables.engine import keep_plans
from kipu.stores.tables.head_query import same_json

BUSY_TIMEOUT_S = 30.0
_OPEN_DEADLINE_S = 30.0
# Nothing of a session may reach a temporary file, and nothing that a damaged file says may be run.
_SETTINGS = ("secure_delete = ON", "cell_size_check = ON", "trusted_schema = OFF", "temp_store = MEMORY")


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A database file and how it is to be opened."""

    path: str
    url: str
    wal: bool  # False keeps a rollback journal: a network file system has no shared memory for a log
    read_only: bool
    vfs: str | None = None
    immutable: bool = False  # the folder may not be written, so that the log's shared memory cannot be made

    def connect(self, *, query_only: bool = False) -> apsw.Connection:
        """Return a connection with Kipu's settings; the file must exist."""
        flags = apsw.SQLITE_OPEN_READONLY if self.read_only else apsw.SQLITE_OPEN_READWRITE
        name = self.path
        if self.immutable:
            name, flags = f"file:{quote(self.path)}?immutable=1", flags | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(name, flags=flags, vfs=self.vfs)
        connection.set_busy_timeout(int(BUSY_TIMEOUT_S * 1_000))
        for setting in _SETTINGS:
            # One by one: several in a text stop at the first that answers with a row.
            connection.execute(f"PRAGMA {setting}").fetchall()
        if query_only or self.read_only:
            connection.execute("PRAGMA query_only = ON")
        keep_plans(connection)
        connection.create_scalar_function("kipu_same", same_json, 2, deterministic=True)
        return connection


def wait_fairly(connection: apsw.Connection, *, limit_s: float) -> None:
    """Let the connection wait for another writer in short steps: the engine's own grow to 0.1 s, and starve some."""
    deadline_s = time.monotonic() + limit_s

    def again(tries: int) -> bool:
        time.sleep(0.001 * min(tries + 1, 5))
        return time.monotonic() < deadline_s

    connection.set_busy_handler(again)


def is_immutable(path: str) -> bool:
    """Return True for a database that can only be read as it stands: nothing can be made beside it, and no log is there."""
    return os.path.exists(path) and not os.access(os.path.dirname(path), os.W_OK) and not os.path.exists(f"{path}-wal")


def holds_nothing(path: str | os.PathLike[str]) -> bool:
    """Return True where a database was never made: no file, an empty one, or one in which nothing was ever committed."""
    try:
        size = os.stat(path).st_size
        wal_size = os.stat(f"{path}-wal").st_size if os.path.exists(f"{path}-wal") else 0
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    if not size or wal_size:
        return not wal_size
    try:
        connection = apsw.Connection(
            f"file:{quote(absolute(path))}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
    except apsw.Error:
        return False
    try:
        return connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    except apsw.Error:
        return False
    finally:
        connection.close()


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the path from the root, so that it stays the same wherever the process goes."""
    return os.path.abspath(path)


def refuse_network(path: str, *, kind: str, allowed: bool, url: str) -> bool:
    """Return whether the path is on a network file system, where that is allowed.

    Raises: NetworkFileSystemError where it is not.
    """
    if not is_network(kind):
        return False
    if not allowed:
        reason = f"the log of {os.path.basename(path)} would be damaged by a second machine"
        raise NetworkFileSystemError(store=url, kind=kind, reason=reason)
    return True


def create_file(path: str) -> None:
    """Make the file with mode 0600 and its missing folders with 0700, whatever the umask (situation 78)."""
    folder = os.path.dirname(path)
    missing = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for name in reversed(missing):
        os.makedirs(name, mode=0o700, exist_ok=True)
        os.chmod(name, 0o700)
    try:
        # Never open a file that is there: closing the handle would drop the locks of this process on it.
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    try:
        os.fchmod(handle, 0o600)
        os.fsync(handle)
    finally:
        os.close(handle)
    _sync_folder(os.path.dirname(path) or ".")


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prepare(connection: apsw.Connection, file: DatabaseFile) -> StoreReadOnlyError | None:
    """Bring the database to Kipu's form; return why it must not be written, or None.

    Raises: StoreUrlError for another program's file, StoreUnavailableError where the journal cannot be had.
    """
    found = found_format(connection, url=file.url)
    if found is not None and found > FORMAT:
        return NewerFormatError(store=file.url, found=found, known=FORMAT)
    if file.read_only or connection.readonly("main"):
        asked = file.read_only and not file.immutable
        reason = "it was asked for" if asked else "the file or its folder may not be written"
        return StoreReadOnlyError(store=file.url, reason=reason)
    _set_journal(connection, file)
    create_if_empty(connection, url=file.url)
    return None


def _set_journal(connection: apsw.Connection, file: DatabaseFile) -> None:
    wanted = "wal" if file.wal else "delete"
    deadline_s = time.monotonic() + _OPEN_DEADLINE_S
    while True:
        try:
            row = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()
        except apsw.BusyError:
            # Changing the journal does not wait for other openers by itself.
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
            continue
        if row != (wanted,):
            raise StoreUnavailableError(store=file.url, reason=f"no {wanted} journal is possible here, only {row}")
        return
