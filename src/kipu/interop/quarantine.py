"""What an import could not take in as an event: kept beside the source with its place and the reason, never thrown away."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import orjson

from kipu.interop.export_file import PendingFile
from kipu.interop.source_line import SourceFile


class Quarantine:
    """A file of JSON lines, one or more for each record: `source`, `digest`, `offset`, `length`, `reason`, `base64`.

    It is written whole at the end, so that an import that was killed and run again leaves every record in it once. What it
    held of other sources stays.
    """

    def __init__(self, source: SourceFile, path: Path) -> None:
        self._source = source
        self._path = path
        self._pending: PendingFile | None = None
        self.count = 0

    def add(self, offset: int, length: int, *, reason: str) -> None:
        """Keep the bytes of a range of the source."""
        self.count += 1
        given: dict[str, Any] = {
            "source": self._source.path.name,
            "digest": self._source.digest,
            "offset": offset,
            "length": length,
            "reason": reason,
        }
        place = offset
        for block in self._source.parts(offset, length):
            entry = {**given, "part_offset": place, "base64": base64.b64encode(block).decode("ascii")}
            self._file().write(orjson.dumps(entry) + b"\n")
            place += len(block)

    def finish(self) -> Path | None:
        """Make the file durable and return its path, or None where nothing is in it."""
        if self._pending is None:
            return None
        self._pending.finish()
        return self._path

    def drop(self) -> None:
        """Forget what was not finished."""
        if self._pending is not None:
            self._pending.drop()

    def _file(self) -> PendingFile:
        if self._pending is None:
            self._pending = PendingFile(self._path)
            if self._path.is_file():
                with self._path.open("rb") as file:
                    for line in file:
                        if self._source.digest.encode() not in line:
                            self._pending.write(line)
        return self._pending


def quarantine_beside(source: Path, store_url: str) -> Path:
    """Return where the quarantine goes unless somebody says so: beside the source, or beside the store if that is read-only."""
    name = f"{source.name}.quarantine.jsonl"
    place = store_url.partition("?")[0].partition("://")[2][1:]
    if os.access(source.parent, os.W_OK) or not place:
        return source.with_name(name)
    return Path(place).parent / name
