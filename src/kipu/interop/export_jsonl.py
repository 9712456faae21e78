"""A session as lines of JSON: one event each, envelope and body flat (docs/formats/event.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from kipu.manager.session import Session
from kipu.ports.principal import Principal


async def export_jsonl(
    session: Session, *, inline_blobs: bool = False, principal: Principal | None = None
) -> AsyncIterator[bytes]:
    """Yield every event as one line, in order, as it is stored; a fork's shared events come first, with their own session id.

    With `inline_blobs`, a line whose event refers to blobs has them as base64 in `inline_blobs` {digest: data}.
    """
    raise NotImplementedError
    yield b""


async def export_blobs(session: Session, *, directory: Path, principal: Principal | None = None) -> int:
    """Write every blob that the session's events refer to into `directory`, named by digest; return how many there are."""
    raise NotImplementedError
