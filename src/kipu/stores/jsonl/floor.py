"""What stands below a log whose first lines were let go of: the head that they made, and the keys that stood in them (JL-28)."""

from __future__ import annotations

import os
import zlib
from typing import Any, NamedTuple

import orjson

from kipu.errors import StoreCorruptError
from kipu.ports.head import JsonObject
from kipu.stores.jsonl.medium import read_whole, replace_file
from kipu.stores.jsonl.scan import KeyPlace

FILE = "floor.json"
NUMBER = "floor"  # in the head row of this store alone: which floor it was computed from


class Floor(NamedTuple):
    """A log begins in `segment`, with the head `row`, whose last event is `row["last_seq"]`. Each floor has a higher number."""

    segment: int
    row: JsonObject
    keys: tuple[KeyPlace, ...]

    @property
    def number(self) -> int:
        """Return the floor's number."""
        number: int = self.row[NUMBER]
        return number


def read_floor(folder: str) -> Floor | None:
    """Return a log's floor, or None where it has all its lines. Raises: StoreCorruptError, never None for a damaged one."""
    data = read_whole(os.path.join(folder, FILE))
    if data is None:
        return None
    text, _, check = data.rstrip(b"\n").rpartition(b"\n")
    if check != b"%08x" % zlib.crc32(text):
        raise StoreCorruptError(store=folder, reason=f"{FILE} does not hold")
    said: dict[str, Any] = orjson.loads(text)
    return Floor(said["segment"], said["row"], tuple(KeyPlace(*key) for key in said["keys"]))


def write_floor(folder: str, floor: Floor) -> None:
    """Make this the log's floor, durably: from here on what stands in segments before it is none of the log."""
    text = orjson.dumps({"segment": floor.segment, "row": floor.row, "keys": [list(key) for key in floor.keys]})
    replace_file(os.path.join(folder, FILE), b"%s\n%08x\n" % (text, zlib.crc32(text)))
