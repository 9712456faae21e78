"""A session as lines of JSON: one event each, envelope and body flat (docs/formats/event.md)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from kipu.errors import BlobNotFoundError
from kipu.interop.event_line import blob_digests, body_of, event_line
from kipu.interop.export_file import PendingFile
from kipu.manager.redacting import redact_blob, redact_stored
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.ports.store import StoredEvent

if TYPE_CHECKING:
    from kipu.security.redaction.redactor import Redactor


async def export_jsonl(
    session: Session,
    *,
    inline_blobs: bool = False,
    redactor: Redactor | None = None,
    principal: Principal | None = None,
) -> AsyncIterator[bytes]:
    """Yield every event as one line, in order, as it is stored; a fork's shared events come first, with their own session id.

    With `inline_blobs`, a line whose event refers to blobs has them as base64 in `inline_blobs` {digest: data}. A blob that
    is missing in the store is left out: the reference in the event still says what it was. With a `redactor` no secret that it
    finds is in a line, and a blob that held one goes by the digest of what it is without it.
    """
    async for stored in session.records(principal=principal):
        blobs: dict[str, bytes] = {}
        for digest in _digests(stored) if inline_blobs or redactor is not None else ():
            data = await _blob(session, digest, redactor=redactor, principal=principal)
            if data is not None:
                blobs[digest] = data
        shown = stored if redactor is None else redact_stored(redactor, stored, blobs=blobs)
        inline = {hashlib.sha256(data).hexdigest(): data for data in blobs.values()} if inline_blobs else {}
        yield event_line(shown, blobs=inline)


async def export_blobs(
    session: Session, *, directory: Path, redactor: Redactor | None = None, principal: Principal | None = None
) -> int:
    """Write every blob that the session's events refer to into `directory`, named by digest; return how many are there.

    With a `redactor` they are written without secrets, under the digests that `export_jsonl` then names.
    """
    found: set[str] = set()
    async for stored in session.records(principal=principal):
        for digest in _digests(stored):
            if digest in found:
                continue
            data = await _blob(session, digest, redactor=redactor, principal=principal)
            if data is None:
                continue
            found.add(digest)
            _write_blob(directory, hashlib.sha256(data).hexdigest(), data=data)
    return len(found)


async def _blob(
    session: Session, digest: str, *, redactor: Redactor | None, principal: Principal | None
) -> bytes | None:
    """Return a blob as it is exported, None where the store has none."""
    try:
        data = await session.blob(digest, principal=principal)
    except BlobNotFoundError:
        return None
    return data if redactor is None else redact_blob(redactor, data)


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
