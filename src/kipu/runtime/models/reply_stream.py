"""One answer as a stream: the part that all model clients share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Self

from kipu.ports.model import ModelEvent, ModelReply


class ReplyStream:
    """Yield a source's events, keep the partial reply at hand, and stop at a word.

    `source` yields deltas and ends with one `ModelReply`; `partial` gives what it has collected so far.
    """

    def __init__(self, source: AsyncGenerator[ModelEvent, None], partial: Callable[[], ModelReply]) -> None:
        self._source = source
        self._partial = partial
        self._reply: ModelReply | None = None
        self._ended = False
        self._interrupted = False
        self._reader: asyncio.Task[object] | None = None
        self._cancelled_reader = False

    def __aiter__(self) -> ReplyStream:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.aclose()

    async def __anext__(self) -> ModelEvent:
        """Return the next event, or the interrupted reply once somebody asked for it."""
        if self._ended:
            raise StopAsyncIteration
        if self._interrupted:
            return await self._end_interrupted()
        reader = self._reader = asyncio.current_task()
        cancelling = reader.cancelling() if reader else 0
        try:
            event = await anext(self._source)
        except asyncio.CancelledError:
            # The same distinction as in asyncio.timeout: our own cancellation is taken back, anybody else's goes on.
            if self._cancelled_reader and reader is not None and reader.uncancel() <= cancelling:
                return await self._end_interrupted()
            self._ended = True
            raise
        except BaseException:
            self._take_back(reader)
            self._ended = True
            raise
        finally:
            self._reader = None
        if self._interrupted:
            self._take_back(reader)
            if not isinstance(event, ModelReply):
                return await self._end_interrupted()
        return self._noted(event)

    def _take_back(self, reader: asyncio.Task[object] | None) -> None:
        """Undo a cancellation that came too late to be delivered."""
        if self._cancelled_reader and reader is not None:
            reader.uncancel()

    def _noted(self, event: ModelEvent) -> ModelEvent:
        if isinstance(event, ModelReply):
            self._reply = event
            self._ended = True
        return event

    async def _end_interrupted(self) -> ModelReply:
        self._ended = True
        self._reply = self._partial()
        await self._source.aclose()
        return self._reply

    def partial(self) -> ModelReply:
        """Return the reply as far as it has come."""
        return self._reply or self._partial()

    def interrupt(self) -> None:
        """End the iteration with the partial reply, also while it waits for the provider."""
        if self._ended or self._interrupted:
            return
        self._interrupted = True
        if self._reader is not None and self._reader is not _running_task():
            self._cancelled_reader = True
            self._reader.cancel()

    async def aclose(self) -> None:
        """Free the connection; what has arrived stays readable through `partial`."""
        if self._reader is not None and self._reader is not _running_task():
            self.interrupt()  # a generator that is being read can only be closed by its reader
            return
        self._ended = True
        await self._source.aclose()


def _running_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
