"""Read event lines: Kipu's own export, its JSONL store's segments, and plain event lines (B10-B14)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kipu.interop.import_run import ImportRun
from kipu.interop.quarantine import Quarantine, quarantine_beside
from kipu.interop.report import ImportReport
from kipu.interop.source_line import SourceFile
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
    was stopped; other events under the same id become a session of their own, always the same one for the same events, so
    that importing twice adds nothing. With `as_new` every session gets a fresh id.
    `quarantine` is the file for what cannot be kept as an event (default: beside the source, or beside the store where the
    source's folder cannot be written). `blobs` is a folder of files named by digest (default: the source's name with
    `.blobs`). `progress` is told bytes done and bytes in all. Keys are not bound, and no model is called.

    Raises:
        ImportFormatError: the source is not text in lines. OSError: it cannot be read. StoreError, SessionBusyError.
    """
    file = SourceFile(source)
    kept = Quarantine(file, quarantine or quarantine_beside(source, manager.store.describe().url))
    run = ImportRun(
        manager,
        file,
        principal=principal or manager.principal,
        as_new=as_new,
        quarantine=kept,
        blobs=blobs or source.with_name(f"{source.name}.blobs"),
    )
    try:
        for line in file.lines():
            await run.take(line)
            if progress is not None:
                progress(min(line.offset + line.length + 1, file.size), file.size)
        return await run.finish()
    finally:
        await run.release()
        kept.drop()
