"""Read event lines: Kipu's own export, its JSONL store's segments, and plain event lines (B10-B14)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kipu.interop.report import ImportReport
from kipu.manager.manager import SessionManager
from kipu.ports.principal import Principal


async def import_events(
    manager: SessionManager,
    source: Path,
    *,
    as_new: bool = False,
    quarantine: Path | None = None,
    blobs: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    principal: Principal | None = None,
) -> ImportReport:
    """Import a file of event lines as sessions of `principal`; no line stops it, and each ends in exactly one account.

    Ids stay where they are free. A session that is there already is never changed, except that an import goes on where it
    was stopped; other events under the same id become a session of their own, always the same one for the same file, so
    that importing twice adds nothing. With `as_new` every session gets a fresh id.
    `quarantine` is the file for what cannot be kept as an event (default: beside the store, or beside the source for a
    store without a place). `blobs` is a folder of files named by their digest (default: the source's name with `.blobs`).
    `progress` is told bytes done and bytes in all. No model is called.

    Raises:
        ImportFormatError: the source is not a file of lines at all. OSError: it cannot be read. StoreError.
    """
    raise NotImplementedError
