"""The pipe through which a command's output comes."""

from __future__ import annotations

import asyncio
import os


class OutputPipe:
    """Hold both ends of a pipe: the command writes to `writing`, `reader` gives what it wrote.

    The pipe belongs to the command's user, so that `/dev/stdout` can be opened again by its name.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self.writing = writing
        self.reader = asyncio.StreamReader(limit=64 * 1024)
        self._reading = reading
        self._transport: asyncio.BaseTransport | None = None

    @classmethod
    async def open(cls, *, user_id: int | None) -> OutputPipe:
        """Make one."""
        reading, writing = os.pipe()
        if user_id is not None:
            os.fchown(writing, user_id, user_id)
        pipe = cls(reading, writing)
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(pipe.reader)
        pipe._transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb", buffering=0))
        return pipe

    def close_writing(self) -> None:
        """Leave the writing end to the command alone."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def close(self) -> None:
        """Read no more."""
        self.close_writing()
        if self._transport is not None:
            self._transport.close()
