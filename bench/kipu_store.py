"""Kipu as the figures use it: its public door, a store in a directory, the workload as its events."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.workload import WINDOW, Turn
from kipu import (
    AgentMessageEvent,
    SessionEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
    WindowPolicy,
)

# Never fewer than the 200 messages that the others load: a jump at 250 leaves 200. The budget in tokens never binds.
POLICY = WindowPolicy(max_tokens=10_000_000, max_messages=WINDOW * 5 // 4, low_water=0.8)


def store_url(store: str, directory: Path, *, durability: str = "fsync") -> str:
    """Return the URL of the store of that kind in the directory."""
    place = directory / ("kipu.db" if store == "sqlite" else "kipu")
    return f"{store}:///{place}?durability={durability}"


def turn_events(turn: Turn) -> list[SessionEvent]:
    """Return the turn's four events."""
    return [
        UserMessageEvent(content=turn.user),
        ToolCallEvent(tool_name="shell", tool_call_id=turn.call_id, tool_input=turn.call_input),
        ToolResultEvent(tool_call_id=turn.call_id, result=turn.result),
        AgentMessageEvent(content=turn.answer),
    ]


def size_of(paths: Iterable[Path]) -> int:
    """Return the bytes of files, and of everything in folders."""
    total = 0
    for path in paths:
        files = path.rglob("*") if path.is_dir() else [path]
        total += sum(file.stat().st_size for file in files if file.is_file())
    return total


def log_bytes(store: str, directory: Path) -> dict[str, int]:
    """Return the bytes of the log and, apart, of the index; the caller has closed the store."""
    if store == "jsonl":
        index = list((directory / "kipu").glob("index.sqlite*"))
        return {"bytes": size_of([directory / "kipu"]) - size_of(index), "index_bytes": size_of(index)}
    return _sqlite_bytes(directory / "kipu.db")


def _sqlite_bytes(path: Path) -> dict[str, int]:
    import apsw

    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = (
        "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name LIKE 'search%' OR name LIKE 'sqlite_autoindex_search%'"
    )
    row = connection.execute(pages).fetchone()
    free = connection.execute(
        "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"
    ).fetchone()
    connection.close()
    index, unused = int(row[0]), int(free[0])
    return {"bytes": path.stat().st_size - index - unused, "index_bytes": index}
