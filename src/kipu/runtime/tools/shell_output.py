"""A command's output in bounded memory."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Text from `offset` to `next_offset`; `missing_bytes` before it are no longer kept."""

    text: str
    offset: int
    next_offset: int
    missing_bytes: int


class OutputLog:
    """Keep the beginning and the end of what a command writes, and count all of it."""

    def __init__(self, max_bytes: int) -> None:
        self._head_size = max_bytes // 2
        self._tail_size = max_bytes - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        """Take what came."""
        self.total_bytes += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._tail_size :]
        if len(self._tail) > 2 * self._tail_size:
            del self._tail[: len(self._tail) - self._tail_size]

    def read(self, offset: int, *, max_bytes: int) -> OutputPart:
        """Return at most `max_bytes` from `offset` on, from the first byte that is kept there."""
        offset = max(0, min(offset, self.total_bytes))
        tail_at = self.total_bytes - len(self._tail)
        begin = offset if offset < len(self._head) else max(offset, tail_at)
        if begin < len(self._head):
            data = bytes(self._head[begin : begin + max_bytes])
            if tail_at == len(self._head):
                data = (data + bytes(self._tail[: max_bytes - len(data)]))[:max_bytes]
        else:
            data = bytes(self._tail[begin - tail_at : begin - tail_at + max_bytes])
        if begin + len(data) < self.total_bytes:
            data = _whole_characters(data)
        return OutputPart(
            text=data.decode("utf-8", "replace"),
            offset=begin,
            next_offset=begin + len(data),
            missing_bytes=begin - offset,
        )

    def text(self) -> str:
        """Return what is kept, with a line between its parts where something is not."""
        left_out = self.total_bytes - len(self._head) - len(self._tail)
        between = f"\n[… {left_out} bytes left out …]\n".encode() if left_out else b""
        return (bytes(self._head) + between + bytes(self._tail)).decode("utf-8", "replace")


def _whole_characters(data: bytes) -> bytes:
    """Return `data` without the piece of a character at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if length > back else data
    return data


class LiveOutput:
    """Pass output on as text while it comes, at most so much per second: a flood is counted, not shown."""

    def __init__(self, emit: Callable[[str], None], *, max_bytes_per_s: int, monotonic: Callable[[], float]) -> None:
        self._emit = emit
        self._max_bytes = max_bytes_per_s
        self._monotonic = monotonic
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._second = -1.0
        self._sent = 0
        self._skipped = 0

    def add(self, data: bytes) -> None:
        """Pass on what came, or count it."""
        now = self._monotonic()
        if now - self._second >= 1:
            self._second, self._sent = now, 0
        room = self._max_bytes - self._sent
        if room <= 0:
            self._skipped += len(data)
            return
        self._tell_skipped()
        shown = data[:room]
        self._sent += len(shown)
        self._skipped += len(data) - len(shown)
        text = self._decoder.decode(shown)
        if text:
            self._emit(text)

    def end(self) -> None:
        """Pass on what waits."""
        rest = self._decoder.decode(b"", final=True)
        if rest:
            self._emit(rest)
        self._tell_skipped()

    def _tell_skipped(self) -> None:
        if self._skipped:
            self._decoder.reset()
            self._emit(f"\n[… {self._skipped} bytes not shown …]\n")
            self._skipped = 0
