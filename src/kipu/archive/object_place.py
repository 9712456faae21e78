"""An object store as the place of archives, through `obstore`: S3 and what speaks like it, Google's and Azure's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from kipu.archive.place import Sink
from kipu.errors import ArchiveError, ArchiveMissingError, ArchivePlaceError, MissingExtraError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_PART_BYTES = 8 << 20  # an upload goes in parts of this size, so that no file need fit into memory


class ObjectPlace:
    """Keep archives as objects; one appears when its upload is completed, and not before."""

    def __init__(self, store: ObjectStore, *, url: str) -> None:
        self._store = store
        self._url = url

    @classmethod
    def open(cls, url: str) -> ObjectPlace:
        """Return the place of a URL; credentials, region and endpoint come from the usual variables (AWS_…, GOOGLE_…, AZURE_…).

        Raises: MissingExtraError, ArchivePlaceError.
        """
        try:
            from obstore.exceptions import BaseError
            from obstore.store import from_url
        except ImportError as error:
            raise MissingExtraError(feature="An archive in an object store", package="obstore", extra="s3") from error
        try:
            return cls(from_url(url), url=url)
        except (BaseError, ValueError) as error:
            raise ArchivePlaceError(place=url, reason=_first_line(error)) from error

    @property
    def url(self) -> str:
        """Return the URL."""
        return self._url

    @asynccontextmanager
    async def writing(self, name: str) -> AsyncIterator[Sink]:
        """Give a sink for an object that appears when the block ends without an error."""
        from obstore import open_writer_async

        with self._errors(name):
            writer = open_writer_async(self._store, name, buffer_size=_PART_BYTES, max_concurrency=2)
            sink = _ObjectSink(writer)
            yield sink
            await writer.close()  # what is left without it, an error in the block, is no object

    async def size(self, name: str) -> int:
        """Return an object's size in bytes."""
        from obstore import head_async

        with self._errors(name):
            return int((await head_async(self._store, name))["size"])

    async def read(self, name: str, *, start: int, length: int) -> bytes:
        """Return these bytes of an object."""
        from obstore import get_range_async

        with self._errors(name):
            return bytes(await get_range_async(self._store, name, start=start, length=length)) if length else b""

    async def remove(self, name: str) -> bool:
        """Remove an object; return False where there is none."""
        from obstore import delete_async

        try:
            await self.size(name)
        except ArchiveMissingError:
            return False
        with self._errors(name):
            await delete_async(self._store, name)
        return True

    async def names(self, start: str) -> list[str]:
        """Return the names of the objects that begin so."""
        from obstore import list as objects

        found: list[str] = []
        with self._errors(start):
            # A prefix would have to be a whole step of the path, and here it is a part of a name. They come in order.
            async for page in objects(self._store, offset=start):
                mine = [each["path"] for each in page if each["path"].startswith(start)]
                found += mine
                if len(mine) < len(page):
                    break
        return found

    async def parts(self, start: str) -> list[str]:
        """Return nothing: an upload that was not completed is no object."""
        return []

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Say in Kipu's words what the object store says."""
        from obstore.exceptions import BaseError, NotFoundError

        try:
            yield
        except (NotFoundError, FileNotFoundError) as error:
            raise ArchiveMissingError(name=name, place=self._url) from error
        except (BaseError, OSError) as error:
            raise ArchiveError(name=name, place=self._url, reason=_first_line(error)) from error


class _ObjectSink:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    async def write(self, data: bytes) -> None:
        """Take in the next bytes."""
        await self._writer.write(data)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
