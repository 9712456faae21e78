"""One segment file, read in blocks of bytes from any place, forwards or backwards; only a newline ends a line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from kipu.stores.jsonl.line import holds, seq_of
from kipu.stores.jsonl.medium import open_plain

BLOCK = 1 << 16
_SUFFIX = ".jsonl"


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return f"{number:06d}{_SUFFIX}"


def segment_number(name: str) -> int | None:
    """Return the number in a file name, however many digits it has, or None for another file."""
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if stem != name and stem.isascii() and stem.isdigit() else None


class Raw(NamedTuple):
    """A physical line without its end, and where it begins."""

    offset: int
    data: bytes


class SegmentReader:
    """Read lines of one file between two offsets. Opens its own descriptor, so that a writer's may come and go."""

    def __init__(self, path: str) -> None:
        self._fd = open_plain(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def size(self) -> int:
        """Return the file's size now."""
        return os.fstat(self._fd).st_size

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`."""
        return os.pread(self._fd, size, offset)

    def _whole(self, start: int, end: int) -> bytes:
        parts = []
        while start < end and (part := os.pread(self._fd, end - start, start)):
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def forwards(self, start: int, end: int) -> Iterator[Raw]:
        """Yield the ended lines of [start, end); what has no end is left out."""
        offset, rest, size = start, b"", BLOCK
        position = start
        passed = False  # the beginning of the line was let go: an end may never come, and would be worth gigabytes
        while position < end:
            block = os.pread(self._fd, min(size, end - position), position)
            if not block:
                return
            size = min(size * 2, 16 * BLOCK)
            if b"\n" not in block:
                position += len(block)
                rest, passed = b"", True
                continue
            if passed:
                rest, passed = self._whole(offset, position), False
            position += len(block)
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            for data in lines:
                yield Raw(offset, data)
                offset += len(data) + 1

    def backwards(self, start: int, end: int, *, block_bytes: int = BLOCK) -> Iterator[Raw]:
        """Yield the ended lines of [start, end), last first; `end` must be just behind a line's end."""
        position, size = end, block_bytes
        behind: list[bytes] = []  # of the line that goes on before `position`, the last bytes first
        first = True
        while position > start:
            take = min(size, position - start)
            position -= take
            size = min(size * 2, 16 * BLOCK)
            block = os.pread(self._fd, take, position)
            if b"\n" not in block:
                behind.append(block)
                continue
            whole = b"".join([block, *reversed(behind)])
            lines = whole.split(b"\n")
            offset = position + len(whole)
            for data in reversed(lines[1:]):
                offset -= len(data)
                if not first:
                    yield Raw(offset, data)
                first = False
                offset -= 1
            behind = [lines[0]]
        if not first:
            yield Raw(start, b"".join(reversed(behind)))

    def line_from(self, offset: int, end: int) -> Raw | None:
        """Return the first whole line that begins behind the first line end at or after `offset` and that holds."""
        for raw in self.forwards(offset, end):
            if raw.offset > offset and holds(raw.data):
                return raw
        return None

    def seek(self, seq: int, end: int) -> int | None:
        """Return the offset of the line of the first seq >= `seq`, by halving; `end` when there is none.

        None says that the lines around the place found are not in order: somebody else must look line by line. The cost does
        not grow with the file but with its logarithm.
        """
        first = next(self.forwards(0, end), None)
        if first is None:
            return end
        if not holds(first.data):
            return None
        if seq_of(first.data) >= seq:
            return 0
        low, high, found = 0, end, end  # the line at `low` is before seq; one at or behind `high` is not
        while high - low > 2 * BLOCK:
            middle = (low + high) // 2
            raw = self.line_from(middle, high)
            if raw is None:
                high = middle
            elif seq_of(raw.data) < seq:
                low = raw.offset
            else:
                high, found = middle, raw.offset
        return self._walk(seq, low, max(found, min(end, high + BLOCK)), end)

    def _walk(self, seq: int, low: int, near: int, end: int) -> int | None:
        before = 0
        for raw in self.forwards(low, end):
            if not holds(raw.data):
                return None
            at = seq_of(raw.data)
            if at <= before:
                return None
            if at >= seq:
                return raw.offset
            before = at
            if raw.offset > near:
                return None
        return end
