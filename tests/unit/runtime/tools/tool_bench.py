"""A directory, the tools over it, and the blobs of a session, as a turn would hold them."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kipu.errors import BlobNotFoundError
from kipu.ports.principal import Principal
from kipu.ports.tool import ToolContext, ToolPreview, ToolResult
from kipu.ports.workspace import WorkspaceFiles, WorkspaceKind, WorkspaceState
from kipu.runtime.tools.default_tools import default_tools
from kipu.runtime.tools.toolbox import Toolbox
from kipu.runtime.workspaces.beneath import BeneathFiles


@dataclass
class PlainWorkspace:
    """A directory as a workspace, without checkpoints."""

    files: WorkspaceFiles
    kind: WorkspaceKind = "directory"

    @property
    def root(self) -> Path:
        return self.files.root

    def describe(self) -> dict[str, Any]:
        return {"root": str(self.root)}

    async def state(self) -> WorkspaceState:
        return "present"

    async def snapshot(self, put_blob: Callable[[bytes], Awaitable[str]]) -> dict[str, Any]:
        return {}

    async def restore(self, manifest: dict[str, Any], get_blob: Callable[[str], Awaitable[bytes]]) -> list[str]:
        return []

    async def diff(self, manifest: dict[str, Any], get_blob: Callable[[str], Awaitable[bytes]]) -> str:
        return ""

    async def aclose(self) -> None:
        return


@dataclass
class Blobs:
    """The blobs of a session."""

    held: dict[str, bytes] = field(default_factory=dict)

    async def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.held[digest] = data
        return digest

    async def get(self, digest: str) -> bytes:
        if digest not in self.held:
            raise BlobNotFoundError(store="memory://", session_id="sess_1", digest=digest)
        return self.held[digest]


class ToolBench:
    """Call tools by name, arguments validated before, over a real directory."""

    def __init__(self, root: Path, *, files: WorkspaceFiles | None = None, ripgrep: str | None = "") -> None:
        self.root = root
        self.blobs = Blobs()
        self.files = files if files is not None else BeneathFiles(root)
        self.toolbox = Toolbox(default_tools(root=root, ripgrep=ripgrep))
        self.context = ToolContext(
            session_id="sess_1",
            turn_id="turn_1",
            call_id="call_1",
            principal=Principal.local(),
            workspace=PlainWorkspace(self.files),
            put_blob=self.blobs.put,
            read_blob=self.blobs.get,
        )

    def put(self, path: str, data: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
        return file

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        refused = self.toolbox.refusal(name, arguments)
        tool = self.toolbox.find(name)
        if refused is not None or tool is None:
            raise AssertionError(refused)
        return await tool.run(arguments, self.context)

    async def text(self, name: str, /, **arguments: Any) -> str:
        result = await self.call(name, **arguments)
        assert not result.is_error, result
        assert isinstance(result.content, str)
        return result.content

    async def error(self, name: str, /, **arguments: Any) -> tuple[str | None, str]:
        result = await self.call(name, **arguments)
        assert result.is_error, result
        return result.error_info, str(result.content)

    async def preview(self, name: str, /, **arguments: Any) -> ToolPreview:
        tool = self.toolbox.find(name)
        assert tool is not None
        return await tool.preview(arguments, self.context)

    async def edit(self, path: str, *edits: tuple[str, str] | tuple[str, str, bool]) -> ToolResult:
        return await self.call("edit_file", path=path, edits=edit_arguments(edits))

    async def read_and_edit(self, path: str, *edits: tuple[str, str] | tuple[str, str, bool]) -> ToolResult:
        await self.text("read_file", path=path)
        return await self.edit(path, *edits)


def edit_arguments(edits: Sequence[tuple[str, str] | tuple[str, str, bool]]) -> list[dict[str, Any]]:
    return [
        {"old_text": edit[0], "new_text": edit[1], **({"replace_all": edit[2]} if len(edit) > 2 else {})}
        for edit in edits
    ]
