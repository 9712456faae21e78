"""The physical lines of a file: any bytes, any length, and never more of it in memory than one line."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kipu.errors import ImportFormatError
from kipu.events.event import utc_text_us

MAX_LINE_BYTES = 256 << 20
_BLOCK = 1 << 20
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class SourceLine(NamedTuple):
    """A line without its end; `data` is None where it is longer than what is taken into memory."""

    offset: int
    length: int
    data: bytes | None


class SourceFile:
    """A file to import, as it was when it was opened: what is appended to it meanwhile is another import's."""

    def __init__(self, path: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.path = path
        self._max_line_bytes = max_line_bytes
        digest = hashlib.sha256()
        self.size = 0
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                if not self.size and block[:2] in _UTF16:
                    raise ImportFormatError(source=str(path), reason="it is UTF-16 text; event lines are UTF-8")
                digest.update(block)
                self.size += len(block)
        self.digest = digest.hexdigest()
        self.modified = utc_text_us(path.stat().st_mtime_ns // 1000)  # the time of events that say none

    def lines(self) -> Iterator[SourceLine]:
        r"""Yield the lines; they end at `\n` and nowhere else."""
        with self.path.open("rb") as file:
            offset = 0
            while offset < self.size:
                data = file.readline(min(self._max_line_bytes + 1, self.size - offset))
                length, last = len(data), data
                while last and not last.endswith(b"\n") and offset + length < self.size:
                    last = file.readline(min(_BLOCK, self.size - offset - length))
                    length += len(last)
                if not length:
                    return  # it has been cut since it was opened
                ended = last.endswith(b"\n")
                too_long = length - ended > self._max_line_bytes
                yield SourceLine(offset, length - ended, None if too_long else data.removesuffix(b"\n"))
                offset += length

    def parts(self, offset: int, length: int) -> Iterator[bytes]:
        """Yield the bytes of a range, block by block."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            end = offset + length
            while offset < end:
                block = os.pread(descriptor, min(_BLOCK, end - offset), offset)
                if not block:
                    return
                yield block
                offset += len(block)
        finally:
            os.close(descriptor)
