"""Messages over streamable HTTP, with this server's headers only and bounds on what it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kipu.runtime.mcp.server_config import McpServerConfig
from kipu.runtime.mcp.stdio_transport import MAX_MESSAGE_BYTES


@asynccontextmanager
async def http_transport(config: McpServerConfig) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of a server at a URL; on leaving, its session there is ended and every connection closed."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def bounded(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise httpx2.ReadError("the answer is compressed, although it was asked not to be")  # a bomb has no bound
        if "text/event-stream" not in response.headers.get("content-type", "").lower():
            response.stream = _bounded_stream(response.stream)

    timeout = httpx2.Timeout(config.connect_timeout_s, read=config.call_timeout_s + 5)
    headers = {"Accept-Encoding": "identity", **config.headers}
    hooks: dict[str, list[Any]] = {"response": [bounded]}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks) as client,
        streamable_http_client(config.url or "", http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


def _bounded_stream(stream: Any) -> Any:
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in stream:
                size += len(chunk)
                if size > MAX_MESSAGE_BYTES:
                    raise httpx2.ReadError(f"the answer has more than {MAX_MESSAGE_BYTES // 1024 // 1024} MB")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
