"""The SQLite engine that tables need: recent enough to keep what it acknowledged, and able to erase from its index."""

from __future__ import annotations

import apsw

from kipu.errors import ConfigurationError

# Engines from 3.7.0 up to this one may lose a commit when the write-ahead log starts anew.
OLDEST = (3, 51, 3)


def check_engine() -> None:
    """Raise ConfigurationError unless the engine is new enough and brings full-text search with secure deletion."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST:
        needed = ".".join(str(part) for part in OLDEST)
        raise ConfigurationError(
            reason=f"SQLite {version} may lose commits; apsw with SQLite {needed} or newer is needed"
        )
    if "ENABLE_FTS5" not in apsw.compile_options:
        raise ConfigurationError(reason="this SQLite has no FTS5; install apsw from its wheel")


def keep_plans(connection: apsw.Connection) -> None:
    """Let the engine plan a statement once, and not anew for every value that is bound to it: that costs more than most reads."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def check_secure_search(connection: apsw.Connection) -> None:
    """Raise ConfigurationError when the search table would keep what is deleted from it."""
    row = connection.execute("SELECT v FROM search_config WHERE k = 'secure-delete'").fetchone()
    if row is None or not row[0]:
        raise ConfigurationError(reason="the search table does not delete securely; make the database anew with Kipu")
