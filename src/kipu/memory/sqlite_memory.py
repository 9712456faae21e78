"""Memory in one SQLite file beside the store, or in this process's own memory (contract: `ports.memory.MemoryStore`)."""

from __future__ import annotations

from pathlib import Path

from kipu.memory.fact_database import FactDatabase
from kipu.memory.tabled_memory import TabledMemory


class SqliteMemory(TabledMemory):
    """Keep facts durably for any number of processes of one machine. The file is made with the first of them."""

    def __init__(self, path: Path | None, *, is_sealed: bool = False) -> None:
        super().__init__(FactDatabase(path, is_sealed=is_sealed))
