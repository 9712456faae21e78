"""Where archives are kept: a folder, or an object store."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from kipu.errors import ArchiveError, ArchiveMissingError, ArchivePlaceError
from kipu.ports.home_path import home_path

_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700


class Sink(Protocol):
    """Something that takes bytes in order."""

    async def write(self, data: bytes) -> None:
        """Take in the next bytes."""
        ...


class ArchivePlace(Protocol):
    """Keep archive files by name.

    Contract:
    - What was written is there whole, durable and under its name once `writing` has ended without an error, else not at all.
    - A file of the same name is replaced in one step.

    Raises everywhere: ArchiveError where the place does not answer, ArchiveMissingError where it has no such file.
    """

    @property
    def url(self) -> str:
        """Return what names the place."""
        ...

    def writing(self, name: str) -> AbstractAsyncContextManager[Sink]:
        """Give a sink for a file that appears when the block ends without an error."""
        ...

    async def size(self, name: str) -> int:
        """Return a file's size in bytes."""
        ...

    async def read(self, name: str, *, start: int, length: int) -> bytes:
        """Return these bytes of a file, fewer only at its end."""
        ...

    async def remove(self, name: str) -> bool:
        """Remove a file; return False where there is none."""
        ...

    async def names(self, start: str) -> list[str]:
        """Return the names of the files that begin so, in no order; none where there is no such place."""
        ...

    async def parts(self, start: str) -> list[str]:
        """Return under which names a kill has left what was to become files that begin so."""
        ...


def open_place(url: str) -> ArchivePlace:
    """Return the place that a path or a URL names: a folder, `file:///folder`, `s3://bucket/folder`, `gs://…`, `az://…`.

    Raises:
        ArchivePlaceError: it names none. MissingExtraError: an object store without the extra s3.
    """
    parts = urlsplit(url)
    if not url or (parts.scheme and not parts.netloc and parts.scheme != "file"):
        raise ArchivePlaceError(place=url, reason="it is neither a folder nor a URL")
    if not parts.scheme:
        return FolderPlace(home_path(url).absolute())
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise ArchivePlaceError(place=url, reason="after file:// comes an absolute path")
        return FolderPlace(Path(unquote(parts.path)))
    from kipu.archive.object_place import ObjectPlace

    return ObjectPlace.open(url)


class FolderPlace:
    """Keep archives in a folder: temporary file, fsync, rename, fsync of the folder (A51)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def url(self) -> str:
        """Return the folder as an absolute path."""
        return str(self._folder)

    @asynccontextmanager
    async def writing(self, name: str) -> AsyncIterator[Sink]:
        """Give a sink for a file that appears when the block ends without an error."""
        temporary = self._folder / f".{name}.part"  # one session has one archiver at a time, by its lease
        with self._errors(name):
            await asyncio.to_thread(self._make_folder)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE_FILE)
        try:
            with self._errors(name):
                yield _FileSink(fd)
                await asyncio.to_thread(self._keep, fd, temporary, name)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        finally:
            os.close(fd)

    def _make_folder(self) -> None:
        if not self._folder.is_dir():
            self._folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
            _sync_folder(self._folder.parent)

    def _keep(self, fd: int, temporary: Path, name: str) -> None:
        os.fsync(fd)
        temporary.replace(self._folder / name)
        _sync_folder(self._folder)

    async def size(self, name: str) -> int:
        """Return a file's size in bytes."""
        with self._errors(name):
            return (self._folder / name).stat().st_size

    async def read(self, name: str, *, start: int, length: int) -> bytes:
        """Return these bytes of a file."""
        with self._errors(name):
            return await asyncio.to_thread(self._bytes_of, name, start, length)

    def _bytes_of(self, name: str, start: int, length: int) -> bytes:
        fd = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.pread(fd, length, start)
        finally:
            os.close(fd)

    async def remove(self, name: str) -> bool:
        """Remove a file; return False where there is none."""
        with self._errors(name):
            try:
                (self._folder / name).unlink()
            except FileNotFoundError:
                return False
            await asyncio.to_thread(_sync_folder, self._folder)
        return True

    async def names(self, start: str) -> list[str]:
        """Return the names of the files that begin so."""
        with self._errors(start), contextlib.suppress(FileNotFoundError):
            return [name for name in await asyncio.to_thread(os.listdir, self._folder) if name.startswith(start)]
        return []

    async def parts(self, start: str) -> list[str]:
        """Return the names of temporary files."""
        return await self.names(f".{start}")

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Say in Kipu's words what the system says."""
        try:
            yield
        except FileNotFoundError as error:
            raise ArchiveMissingError(name=name, place=self.url) from error
        except OSError as error:
            raise ArchiveError(name=name, place=self.url, reason=error.strerror or str(error)) from error


class _FileSink:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def write(self, data: bytes) -> None:
        """Write every byte."""
        await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
