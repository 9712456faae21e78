"""The raw side of W4's listing: bare SQL over the same heads table, every column, pages by keyset."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import apsw

from bench.raw_schema import HEAD_TEXT, INSERT_HEAD, connect

PAGE = 100
REPEATS = 30
OWNERS = 10
_ORDER = "ORDER BY last_activity_at DESC, session_id DESC LIMIT ?"
FIRST = f"SELECT * FROM heads {_ORDER}"
DEEP = f"SELECT * FROM heads WHERE (last_activity_at, session_id) < (?, ?) {_ORDER}"
FILTERED = f"SELECT * FROM heads WHERE owner = ? AND status = 'archived' {_ORDER}"


def build(directory: Path, *, sessions: int) -> dict[str, float]:
    """Write so many heads; one in ten is archived, ten owners share them."""
    connection = connect(directory / "heads.sqlite")
    rows = [
        (f"sess_{n:026d}", f"owner{n % OWNERS}", f"cli:{n}", _status(n), moment(n), moment(n), HEAD_TEXT % (n, n, n))
        for n in range(sessions)
    ]
    connection.execute("BEGIN")
    connection.executemany(INSERT_HEAD, rows)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return {"bytes": (directory / "heads.sqlite").stat().st_size}


def moment(number: int) -> str:
    """Return a time of fixed width that grows with the number."""
    return f"2026-11-29T12:00:00.{number:06d}Z"


def _status(number: int) -> str:
    return "archived" if number // OWNERS % 10 == 0 else "active"


def pages(directory: Path, *, fixture: str, sessions: int) -> dict[str, float]:
    """Time the first page, the page in the middle, and the page of one owner's archived sessions."""
    del directory
    connection = connect(Path(fixture) / "heads.sqlite")
    middle = sessions // 2
    return {
        "first_page_ms": _median_ms(connection, FIRST, (PAGE,)),
        "deep_page_ms": _median_ms(connection, DEEP, (moment(middle), f"sess_{middle:026d}", PAGE)),
        "filtered_page_ms": _median_ms(connection, FILTERED, ("owner7", PAGE)),
    }


def _median_ms(connection: apsw.Connection, sql: str, values: tuple[object, ...]) -> float:
    laps_ms = []
    for _ in range(REPEATS):
        start_s = time.perf_counter()
        rows = connection.execute(sql, values).fetchall()
        laps_ms.append((time.perf_counter() - start_s) * 1000)
        if len(rows) != PAGE:
            raise RuntimeError(f"{len(rows)} rows instead of a full page: the fixture is too small")
    return statistics.median(laps_ms)
