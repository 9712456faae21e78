"""Bring the files of a manifest back, and take away what came since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from kipu.errors import RestoreError, WorkspaceError, WorkspaceMissingError
from kipu.ports.workspace import GetBlob
from kipu.runtime.workspaces.beneath import BeneathFiles
from kipu.runtime.workspaces.manifest import Contents, Manifest
from kipu.runtime.workspaces.snapshot import SnapshotTaker


class Restoration:
    """One restoration under way.

    What stands in the way of a path to come back goes first, then the files come back, and only then the rest that came
    since is removed: by the ignore rules that came back with them, so that nothing goes that they leave out.
    """

    def __init__(self, taker: SnapshotTaker, *, manifest: Manifest, get_blob: GetBlob) -> None:
        self._taker = taker
        self._files: BeneathFiles = taker.files
        self._manifest = manifest
        self._contents = Contents(manifest, get_blob)
        self._changed: set[str] = set()
        self._failed: dict[str, str] = {}

    async def run(self) -> list[str]:
        """Do it and return the paths that changed. Raises: RestoreError (what could be done is done), WorkspaceMissingError."""
        before = await self._taker.take()
        await self._remove(self._in_the_way(before))
        for path, state in self._manifest.files.items():
            if before.files.get(path) != state or path in self._changed:
                data = await self._contents.of(state)
                await self._do(path, partial(self._put_file, path, data=data, mode=state.mode))
        for path, target in self._manifest.links.items():
            if before.links.get(path) != target or path in self._changed:
                await self._do(path, partial(self._put_link, path, target=target))
        for path in self._manifest.folders:
            await self._do(path, partial(self._files.make_directory, path), counts=path not in before.folders)
        after = await self._taker.take()
        if not after.is_cut and not self._manifest.is_cut:
            await self._remove(self._came_since(after))
            await asyncio.to_thread(self._remove_empty, set(after.folders) - set(self._manifest.folders))
        await asyncio.to_thread(self._files.sync)
        if self._failed:
            told = "; ".join(f"{path}: {reason}" for path, reason in sorted(self._failed.items())[:5])
            raise RestoreError(root=str(self._files.root), reason=told, failed=dict(self._failed))
        return sorted(self._changed)

    def _came_since(self, now: Manifest) -> list[str]:
        kept = self._manifest.files.keys() | self._manifest.links.keys() | self._manifest.left_out.keys()
        return sorted((now.files.keys() | now.links.keys()) - kept)

    def _in_the_way(self, now: Manifest) -> list[str]:
        """Return what came since and is a file where a folder is wanted, or below a path that is to be a file again."""
        wanted = self._manifest.files.keys() | self._manifest.links.keys()
        folders = {above for path in wanted for above in _above(path)}
        return [
            path for path in self._came_since(now) if path in folders or any(above in wanted for above in _above(path))
        ]

    async def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            await self._do(path, partial(self._take_away, path))

    async def _do(self, path: str, action: Callable[[], None], *, counts: bool = True) -> None:
        try:
            await asyncio.to_thread(action)
        except WorkspaceMissingError:
            raise
        except WorkspaceError as error:
            self._failed[path] = str(error.data.get("reason", error))
        else:
            if counts:
                self._changed.add(path)

    def _remove_empty(self, folders: Iterable[str]) -> None:
        for path in folders:
            with suppress(WorkspaceError):  # there is something in it by now
                self._files.remove(path)

    def _take_away(self, path: str) -> None:
        self._files.remove(path)
        for above in _above(path):
            try:
                self._files.remove(above)
            except WorkspaceError:  # there is something else in it
                return

    def _put_file(self, path: str, *, data: bytes, mode: int) -> None:
        self._clear_place(path)
        self._files.write(path, data, mode=mode, exact=True, durable=False)

    def _put_link(self, path: str, *, target: str) -> None:
        self._clear_place(path)
        self._files.write_link(path, target)

    def _clear_place(self, path: str) -> None:
        """Remove an empty directory or a link where a file is to stand: a file would go where the link leads."""
        entry = self._files.stat(path)
        if entry is not None and entry.kind in {"directory", "link"}:
            with suppress(WorkspaceError):
                self._files.remove(path)


def _above(path: str) -> list[str]:
    """Return the directories above a path, the nearest first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
