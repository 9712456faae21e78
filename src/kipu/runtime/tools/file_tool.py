"""What the file tools share: the way to the workspace, and failures as results that a model can act on."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import errno
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kipu.errors import PathNotFoundError, WorkspaceError
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.ports.workspace import WorkspaceFiles
from kipu.runtime.tools.seen_files import SeenFiles

T = TypeVar("T")

# Beyond this a file is read, searched and edited no more: the whole of it would be in memory.
MAX_FILE_BYTES = 32 * 1024 * 1024

_SYSTEM = {errno.ENOSPC: "no_space", errno.EDQUOT: "no_space", errno.EFBIG: "no_space", errno.EACCES: "not_permitted"}


def failure(text: str, *, word: str) -> ToolResult:
    """Return an error result: `text` for the model, `word` for programs."""
    return ToolResult(text, is_error=True, error_info=word)


def whole_number(arguments: JsonObject, name: str, *, default: int) -> int:
    """Return an integer argument; JSON's 5.0 is an integer to its schema too."""
    value = arguments.get(name)
    return default if value is None else int(value)


async def finished(work: Callable[[], T], *, on_cancel: Callable[[], None] = lambda: None) -> T:
    """Run blocking work in a thread and wait for its end also when cancelled, so that nothing changes after the call.

    `on_cancel` may tell the work to end early.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        on_cancel()
        while not task.done():
            # Asked again: the thread still cannot be stopped.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody else will ask for it
        raise


class FileTool(ABC):
    """A tool that works on the files of a workspace.

    `root` is the workspace's, so that the subject of an absolute path is the same as that of the relative one.
    """

    def __init__(self, declared: ToolSpec, *, seen: SeenFiles | None = None, root: Path | None = None) -> None:
        self._spec = declared
        self._root = None if root is None else posixpath.normpath(root.as_posix())
        self.seen = SeenFiles() if seen is None else seen

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares."""
        return self._spec

    def subject(self, arguments: JsonObject) -> str:
        """Return the path as the workspace's policy names it: relative to its root, "." for the root itself."""
        return self.relative(arguments.get("path"))

    def relative(self, path: object) -> str:
        """Return a path relative to the root, by its text alone."""
        text = posixpath.normpath(path) if isinstance(path, str) and path else "."
        if self._root is not None and (text + "/").startswith(self._root.rstrip("/") + "/"):
            text = posixpath.relpath(text, self._root)
        return text

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return what a person is shown before they allow the call."""
        return ToolPreview(f"{self.spec.name} {self.subject(arguments)}")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Do it; what the files refuse is a result that says why and what to do."""
        if context.workspace is None:
            return failure("This session has no workspace: there are no files to work on.", word="workspace")
        files = context.workspace.files
        try:
            return await self.work(arguments, files=files, context=context)
        except (WorkspaceError, OSError, ValueError) as error:
            fault, path = error, str(arguments.get("path") or "")
        return await finished(lambda: explained(fault, files=files, path=path))

    @abstractmethod
    async def work(self, arguments: JsonObject, *, files: WorkspaceFiles, context: ToolContext) -> ToolResult:
        """Do it. WorkspaceError, OSError and ValueError become results."""

    async def aclose(self) -> None:
        """Wait for a change that is still being made; there is nothing else to free."""
        async with self.seen.lock:
            return


def explained(error: WorkspaceError | OSError | ValueError, *, files: WorkspaceFiles, path: str) -> ToolResult:
    """Return the result that tells a model what the system or the workspace said."""
    if isinstance(error, PathNotFoundError):
        return failure(f"{error}{_alike(files, path)}", word=error.code)
    cause = error if isinstance(error, OSError) else error.__cause__
    word = _SYSTEM.get(cause.errno or 0) if isinstance(cause, OSError) else None
    if isinstance(error, WorkspaceError):
        return failure(str(error), word=word or error.code)
    if isinstance(error, OSError):
        return failure(f"{path!r}: {error.strerror or error}. Nothing was changed.", word=word or "system")
    return failure(f"The path {path!r} cannot be used: {error}.", word="path_invalid")


def _alike(files: WorkspaceFiles, path: str) -> str:
    """Return names that may have been meant, those of the nearest directory that is there."""
    folder, name = posixpath.split(posixpath.normpath(path))
    try:
        names = [posixpath.basename(entry.path) for entry in files.list(folder)[:5000]]
    except (WorkspaceError, OSError, ValueError):
        return f" Its directory {folder!r} is not there either." if folder else ""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return " Did you mean " + " or ".join(repr(posixpath.join(folder, near)) for near in close) + "?" if close else ""
