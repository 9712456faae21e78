"""Messages over a child's pipes, with bounds on everything that it writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from kipu.errors import McpServerError
from kipu.events.normalise import normalise
from kipu.runtime.mcp.server_config import McpServerConfig
from kipu.runtime.mcp.stdio_process import StdioProcess

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
MAX_UNASKED = 5_000  # notifications and requests taken since our last message; more are passed over
_CHUNK_BYTES = 65_536
_GRACE_S = 1.0
_EXIT_S = 0.5


class StdioLink:
    """What is known of one connection's process: why it broke, and whether it was ended."""

    def __init__(self) -> None:
        self.process: StdioProcess | None = None
        self.failure: str | None = None
        self.is_gone = True
        self.closed = asyncio.Event()

    def describe_end(self) -> str:
        """Return why there is no more to come, with the end of what the server wrote to stderr."""
        process = self.process
        if self.failure is None and (process is None or process.exit_code is None):
            return "it closed the connection"
        words = self.failure or f"it ended with exit code {process.exit_code if process else None}"
        tail = process.stderr_tail if process is not None else ""
        return f"{words}; its stderr ends: {tail[-1000:]}" if tail else words


@asynccontextmanager
async def stdio_transport(
    config: McpServerConfig, link: StdioLink, *, environment: Mapping[str, str], cwd: str | None, mark: str
) -> AsyncIterator[tuple[Any, Any]]:
    """Start the server and yield its streams; on leaving, it is ended with everything it started (B49).

    Raises: McpServerError (it cannot be started).
    """
    import anyio

    try:
        process = await StdioProcess.start(
            config.command or "",
            config.args,
            environment={**environment, **config.env},
            cwd=config.cwd or cwd,
            mark=mark,
        )
    except (OSError, ValueError) as error:
        raise McpServerError(
            server=config.name, kind="unavailable", reason=f"its command cannot be started: {error}"
        ) from error
    link.process, link.is_gone = process, False
    incoming, read_stream = anyio.create_memory_object_stream[Any](0)
    write_stream, outgoing = anyio.create_memory_object_stream[Any](0)
    reader = _Reader(process, link, incoming=incoming)
    tasks = [asyncio.create_task(reader.run()), asyncio.create_task(_write(process, outgoing, reader))]
    try:
        yield read_stream, write_stream
    finally:
        # Also when cancelled: nothing that was started stays (each wait within is bounded).
        ending = asyncio.ensure_future(
            _end(process, link, tasks, streams=(incoming, read_stream, write_stream, outgoing))
        )
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await ending
            raise


async def _end(
    process: StdioProcess, link: StdioLink, tasks: list[asyncio.Task[None]], *, streams: tuple[Any, ...]
) -> None:
    for task in tasks:
        task.cancel()
    link.is_gone = await process.stop(grace_s=_GRACE_S)
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
    for stream in streams:
        stream.close()


class _Reader:
    """Lines to messages. What is no message is passed over; too much of it, or one without end, breaks the connection."""

    def __init__(self, process: StdioProcess, link: StdioLink, *, incoming: MemoryObjectSendStream[Any]) -> None:
        self._process = process
        self._link = link
        self._incoming = incoming
        self._garbage_bytes = 0
        self.unasked = 0

    async def run(self) -> None:
        import anyio

        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self._read()
        if self._link.failure is None:
            await self._process.exited(_EXIT_S)  # so that its exit code can be told
        self._link.closed.set()
        self._incoming.close()
        # So that it can end: it may wait for room in the pipe.
        while await self._process.read(_CHUNK_BYTES):  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def _read(self) -> None:
        buffer = bytearray()
        while data := await self._process.read(_CHUNK_BYTES):
            start = len(buffer)
            buffer += data
            if b"\n" in data:
                *lines, rest = bytes(buffer).split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    await self._take(line)
            elif start + len(data) > MAX_MESSAGE_BYTES:
                self._link.failure = f"it sent a message of more than {MAX_MESSAGE_BYTES // 1024 // 1024} MB"
            if self._link.failure is not None:
                return
            await asyncio.sleep(0)  # a flood leaves the others their turn

    async def _take(self, line: bytes) -> None:
        message = _parsed(line)
        if message is None:
            self._garbage_bytes += len(line) + 1
            if self._garbage_bytes > MAX_MESSAGE_BYTES:
                self._link.failure = "it writes what is no message"
            return
        if hasattr(message.message, "method"):
            self.unasked += 1
            if self.unasked > MAX_UNASKED:
                return
        self._garbage_bytes = 0
        await self._incoming.send(message)


def _parsed(line: bytes) -> SessionMessage | None:
    import mcp_types
    from mcp.shared.message import SessionMessage

    if not line.strip().startswith(b"{") or len(line) > MAX_MESSAGE_BYTES:
        return None
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        if b"\\ud" not in line.lower():
            return None
    try:  # half a character, as names of files have it that are no UTF-8: the answer is one all the same
        value, _ = normalise(json.loads(line))
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_python(value, by_name=False))
    except (ValueError, RecursionError):
        return None


async def _write(process: StdioProcess, outgoing: MemoryObjectReceiveStream[Any], reader: _Reader) -> None:
    with suppress(OSError):
        async for message in outgoing:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            reader.unasked = 0
            await process.write(text.encode("utf-8", "replace") + b"\n")
    outgoing.close()
