"""A file that is there whole or not at all (A51)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path


async def write_whole(path: Path, chunks: AsyncIterator[bytes]) -> int:
    """Write `chunks` to `path` and return the bytes written; until all are durable, `path` is as it was (A51, A52)."""
    raise NotImplementedError
