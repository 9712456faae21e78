"""Heads with a version: read, remembered for a while, and replaced only as they were read.

A version is a number and a chance: where a server lost its last writes, another head may come to the same number.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import orjson

from kipu.errors import SessionNotFoundError
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.places import places_of, tokens_of
from kipu.stores.valkey.scripts import FENCE
from kipu.stores.valkey.server import Server

Command: TypeAlias = tuple[str | bytes | int, ...]
NEW = "0"  # the version of an id that nobody has used
_MOST_KEPT = 1_024


class HeadRow(NamedTuple):
    """A head with the version under which it was read; without data, an id that is free or was erased.

    Events up to `adopted` are in the session's key of adopted ones, up to `returned` in that of those that came back.
    """

    version: str
    data: dict[str, Any] | None
    adopted: int = 0
    returned: int = 0

    @property
    def is_erased(self) -> bool:
        """Return True for an id that was used and is not to be used again."""
        return self.version != NEW and self.data is None


def row_of_answer(answer: Sequence[bytes]) -> HeadRow:
    """Return the row that a script gave."""
    version, data, adopted, returned = answer
    return HeadRow(version.decode(), orjson.loads(data) if data else None, int(adopted), int(returned))


def next_version(version: str) -> str:
    """Return a version that none had."""
    return f"{int(version.partition('.')[0]) + 1}.{secrets.token_hex(6)}"


class Heads:
    """Give heads, from memory where they may still be right. Whoever decides on one must say under which version."""

    def __init__(self, server: Server, keys: KeyNames) -> None:
        self._server = server
        self._keys = keys
        self._rows: OrderedDict[str, HeadRow] = OrderedDict()

    async def take(self, session_id: str) -> tuple[HeadRow, bool]:
        """Return the head, and whether it was read just now."""
        known = self._rows.get(session_id)
        if known is not None:
            self._rows.move_to_end(session_id)
            return known, False
        return await self.load(session_id), True

    async def load(self, session_id: str) -> HeadRow:
        """Read the head."""
        fields = ("v", "d", "au", "ru")
        version, data, adopted, returned = await self._server.ask("HMGET", self._keys.of(session_id).head, *fields)
        return row_of_answer((version or NEW.encode(), data or b"", adopted or b"0", returned or b"0"))

    async def found(self, session_id: str) -> HeadRow:
        """Read the head of a session there is. Raises: SessionNotFoundError."""
        row = await self.load(session_id)
        if row.data is None:
            raise SessionNotFoundError(session_id=session_id)
        return row

    async def fenced(self, session_id: str) -> HeadRow:
        """Read the head and give it a new version: whatever is still on its way to the server for the old one does nothing."""
        version = next_version(str(secrets.randbelow(1 << 30)))
        answer = await self._server.settle(FENCE, self._keys.of(session_id).head, version)
        return row_of_answer(answer)

    def keep(self, session_id: str, row: HeadRow) -> None:
        """Remember a head as it was just written."""
        self._rows[session_id] = row
        self._rows.move_to_end(session_id)
        if len(self._rows) > _MOST_KEPT:
            self._rows.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """Read it anew next time."""
        self._rows.pop(session_id, None)


def head_commands(keys: KeyNames, row: HeadRow, *, before: Mapping[str, Any] | None) -> list[Command]:
    """Return what puts a head into its place, and moves it in the lists that it stands in."""
    data = row.data or {}
    there, then = places_of(keys, before) if before else frozenset(), places_of(keys, data)
    head = keys.of(data["session_id"]).head
    fields: dict[str, str | bytes | int] = {
        "v": row.version,
        "d": orjson.dumps(data),
        "t": tokens_of(data),
        "c": data.get("created_at", ""),
        "a": data.get("last_activity_at", ""),
        "lo": data.get("lease_owner") or "",
        "s": data["last_seq"],
        "b": data.get("base_seq", 0),
        "o": data.get("offloaded_seq", 0),
        "au": row.adopted,
        "ru": row.returned,
    }
    commands: list[Command] = [("HSET", head, *(word for pair in fields.items() for word in pair))]
    commands += [("ZREM", *place) for place in sorted(there - then)]
    commands += [("ZADD", name, 0, member) for name, member in sorted(then - there)]
    return commands
