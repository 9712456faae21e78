"""A session as lines of JSON: one event each, envelope and body flat (docs/formats/event.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from kipu.errors import BlobNotFoundError
from kipu.interop.event_line import blob_digests, body_of, event_line
from kipu.interop.export_file import PendingFile
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.ports.store import StoredEvent


async def export_jsonl(
    session: Session, *, inline_blobs: bool = False, principal: Principal | None = None
) -> AsyncIterator[bytes]:
    """Yield every event as one line, in order, as it is stored; a fork's shared events come first, with their own session id.

    With `inline_blobs`, a line whose event refers to blobs has them as base64 in `inline_blobs` {digest: data}. A blob that
    is missing in the store is left out: the reference in the event still says what it was.
    """
    async for stored in session.records(principal=principal):
        blobs: dict[str, bytes] = {}
        for digest in _digests(stored) if inline_blobs else ():
            try:
                blobs[digest] = await session.blob(digest, principal=principal)
            except BlobNotFoundError:
                continue
        yield event_line(stored, blobs=blobs)


async def export_blobs(session: Session, *, directory: Path, principal: Principal | None = None) -> int:
    """Write every blob that the session's events refer to into `directory`, named by digest; return how many are there."""
    found: set[str] = set()
    async for stored in session.records(principal=principal):
        for digest in _digests(stored):
            if digest in found:
                continue
            try:
                data = await session.blob(digest, principal=principal)
            except BlobNotFoundError:
                continue
            found.add(digest)
            _write_blob(directory, digest, data=data)
    return len(found)


def _digests(stored: StoredEvent) -> list[str]:
    return list(dict.fromkeys(blob_digests(body_of(stored.record.body) or {})))


def _write_blob(directory: Path, digest: str, *, data: bytes) -> None:
    path = directory / digest
    if path.exists() and path.stat().st_size == len(data):
        return
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    pending = PendingFile(path)
    try:
        pending.write(data)
        pending.finish()
    finally:
        pending.drop()
