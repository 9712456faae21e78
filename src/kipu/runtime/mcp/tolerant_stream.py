"""A list of tools without the entries that no client could read, so that one of them does not cost the others."""

from __future__ import annotations

from typing import Any, Self


class TolerantStream:
    """Read messages from another stream; of a list of tools only what can be read. `left_out` counts the rest."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.left_out = 0

    @property
    def last_context(self) -> Any:
        """Return what the stream says of its newest message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        return self._checked(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._checked(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.__aexit__(*error)

    def _checked(self, message: Any) -> Any:
        result = getattr(getattr(message, "message", None), "result", None)
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            readable = [tool for tool in result["tools"] if _is_readable(tool)]
            self.left_out += len(result["tools"]) - len(readable)
            result["tools"] = readable
        return message


def _is_readable(tool: Any) -> bool:
    import mcp_types

    try:
        mcp_types.Tool.model_validate(tool, by_name=False)
    except (ValueError, RecursionError):
        return False
    schema = tool.get("inputSchema")
    return isinstance(schema, dict) and schema.get("type") == "object"
