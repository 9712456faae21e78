"""The manager over a folder of JSONL files, by the name that the design gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kipu.manager.manager import SessionManager
from kipu.stores.host import SystemClock, SystemEntropy, SystemLiveness, this_process_owner
from kipu.stores.jsonl import JsonlStore


class FileSystemSessionManager(SessionManager):
    """Keep sessions as JSONL files under `storage_dir`, one folder per session (B7, B8). Make one with `open`."""

    @classmethod
    async def open(cls, storage_dir: str | Path = "./sessions", **settings: Any) -> FileSystemSessionManager:
        """Return a manager over `storage_dir`, which is created if it is not there; `settings` are `SessionManager`'s."""
        clock = SystemClock()
        store = await JsonlStore.open(Path(storage_dir), clock=clock, liveness=SystemLiveness())
        return cls(store, clock=clock, entropy=SystemEntropy(), owner=this_process_owner("manager"), **settings)
