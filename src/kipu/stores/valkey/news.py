"""Commits made known to other processes: published within the script that commits, heard on a connection of its own.

Losing a notice costs a moment and never an event: behind it followers look every two seconds, and where notices do not get
through, 25 times a second while they wait.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

from valkey.exceptions import ValkeyError

from kipu.errors import KipuError
from kipu.stores.follow import Announcer
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.server import Server

logger = logging.getLogger(__name__)
LOOK_EVERY_S = 0.04  # without notices: events of others are to be seen within 50 ms
SWEEP_EVERY_S = 2.0  # behind notices
_AGAIN_S = 1.0
_PROOF_S = 2.0
_ALL = "*"


class News:
    """Tell other processes of commits, and the followers of this one of theirs."""

    def __init__(self, server: Server, keys: KeyNames, *, announcer: Announcer) -> None:
        self._server = server
        self._channel = keys.channel if server.address.notify else ""
        self._announcer = announcer
        self._origin = secrets.token_hex(8)
        self._tasks: list[asyncio.Task[None]] = []
        self._heard = asyncio.Event()

    @property
    def is_heard(self) -> bool:
        """Return True while notices get through."""
        return self._heard.is_set()

    async def open(self) -> None:
        """Begin to listen; where a notice to ourselves does not come back, followers look often instead."""
        self._tasks = [asyncio.create_task(self._sweep_for_ever())]
        if self._channel:
            self._tasks.append(asyncio.create_task(self._listen_for_ever()))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), _PROOF_S)

    def notice(self, types: AbstractSet[str] | None) -> tuple[str, str]:
        """Return the channel and what is said there of a commit with events of these types; nothing of no commit."""
        if types is None or not self._channel:
            return "", ""
        named = ",".join(sorted(types)) if not any("," in one for one in types) else _ALL
        return self._channel, f"{self._origin} {named}"

    def committed(self, types: AbstractSet[str] | None) -> None:
        """Tell the followers here of a commit of this process."""
        if types is not None:
            self._announcer.announce(types or None)

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S if self.is_heard else LOOK_EVERY_S)
            self._announcer.announce()

    async def _listen_for_ever(self) -> None:
        while True:
            try:
                await self._listen()
            except (ValkeyError, OSError, EOFError, KipuError) as error:
                logger.debug("notices are not heard for now: %s", error)
            self._heard.clear()
            self._announcer.announce()  # what was missed meanwhile is found by looking
            await asyncio.sleep(_AGAIN_S)

    async def _listen(self) -> None:
        connection = await self._server.connect()
        try:
            await connection.send_packed_command(connection.pack_command("SUBSCRIBE", self._channel))
            await connection.read_response()
            await self._server.command("PUBLISH", self._channel, f"{self._origin} ")
            while True:
                self._hear(await connection.read_response())
        finally:
            await connection.disconnect(nowait=True)

    def _hear(self, message: Any) -> None:
        if not isinstance(message, list) or message[0] != b"message":
            return
        self._heard.set()
        origin, _, named = message[2].decode().partition(" ")
        if origin != self._origin:
            types = frozenset(named.split(",")) if named else frozenset()
            self._announcer.announce(None if _ALL in types or not types else types)

    async def close(self) -> None:
        """Stop listening."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
