"""The manager over a folder of JSONL files, by the name that the design gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kipu.manager.manager import SessionManager
from kipu.stores.host import SystemClock, SystemEntropy, SystemLiveness, this_process_owner
from kipu.stores.jsonl import JsonlStore


class FileSystemSessionManager(SessionManager):
    """Keep sessions as JSONL files under `storage_dir`, one folder per session (B7, B8).

    The folder is created if it is not there. `settings` are those of `SessionManager`.
    """

    def __init__(self, storage_dir: str | Path = "./sessions", **settings: Any) -> None:
        clock, entropy = SystemClock(), SystemEntropy()
        super().__init__(
            JsonlStore.open_now(Path(storage_dir), clock=clock, liveness=SystemLiveness()),
            clock=clock,
            entropy=entropy,
            owner=this_process_owner(f"manager-{entropy.random_bytes(4).hex()}"),
            **settings,
        )
