"""Which memory store stands beside a store: plain, or sealed with the store's keys."""

from __future__ import annotations

from pathlib import Path

from kipu.memory.sealed_memory import SealedMemory
from kipu.memory.sqlite_memory import SqliteMemory
from kipu.ports.cipher import StoreKeys
from kipu.ports.memory import MemoryStore


def open_memory_store(path: Path | None, *, keys: StoreKeys | None = None) -> MemoryStore:
    """Return the memory at `path` (None: in this process only), sealed where there are keys.

    Its calls raise StoreSealedError where the file is sealed and no keys are given, and the other way round.
    """
    if keys is None:
        return SqliteMemory(path)
    return SealedMemory(SqliteMemory(path, is_sealed=True), keys)
