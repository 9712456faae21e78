"""A session as a readable transcript in markdown."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kipu.manager.session import Session
from kipu.ports.principal import Principal


async def export_markdown(session: Session, *, principal: Principal | None = None) -> AsyncIterator[bytes]:
    """Yield the transcript, piece by piece, as UTF-8."""
    raise NotImplementedError
    yield b""
