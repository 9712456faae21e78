"""Commits made known to other machines: by NOTIFY where it gets through, else by looking often.

The first notice after a quiet moment goes at once, those of the moment after it together. They go over a connection of their own: sent
within the append's transaction they would have all commits wait for one another (facts.md, "Many machines"). Losing one costs a
moment and never an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress

import psycopg

from kipu.stores.follow import Announcer
from kipu.stores.postgres.database import Connection, Database, run

logger = logging.getLogger(__name__)
GATHER_S = 0.003
LOOK_EVERY_S = 0.04  # without notices: events of others are to be seen within 50 ms
SWEEP_EVERY_S = 2.0  # behind notices
_AGAIN_S = 1.0
_PROOF_S = 2.0
_MOST_BYTES = 7_000  # a notice has at most 8000
_ALL = "*"


class News:
    """Tell other processes of commits, and the followers of this one of theirs."""

    def __init__(self, database: Database, announcer: Announcer) -> None:
        self._database = database
        self._announcer = announcer
        self._types: set[str] = set()
        self._gathering: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._sending: Connection | None = None
        self._connecting = asyncio.Lock()
        self._is_heard = False
        self._is_closed = False
        self._heard = asyncio.Event()

    @property
    def is_heard(self) -> bool:
        """Return True while notices get through."""
        return self._is_heard

    async def open(self) -> None:
        """Begin to listen; where a notice to ourselves does not come back, followers look often instead."""
        self._listening = asyncio.create_task(self._listen_for_ever())
        if self._database.address.notify:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), _PROOF_S)

    def committed(self, types: AbstractSet[str] | None) -> None:
        """Tell of a commit with events of these types, or with nobody knows which."""
        self._announcer.announce(types)
        if self._is_closed or not self._database.address.notify:
            return
        self._types |= {_ALL} if types is None else types
        if self._gathering is None and self._types:
            self._gathering = asyncio.create_task(self._send_soon())

    async def _send_soon(self) -> None:
        """Tell at once of what comes after a quiet moment, and of what is committed in the moment after that together."""
        try:
            while self._types:
                types, self._types = self._types, set()
                for payload in _payloads(types):
                    await self._send(payload)
                await asyncio.sleep(GATHER_S)
        except (psycopg.Error, OSError, TimeoutError) as error:
            logger.debug("a notice was not sent: %s", error)
        finally:
            self._gathering = None

    async def _send(self, payload: str) -> None:
        async with self._connecting:
            if self._sending is None or self._sending.closed:
                self._sending = await self._database.connect()
            try:
                async with asyncio.timeout(_PROOF_S):
                    await run(
                        self._sending, "SELECT pg_notify(%s, %s)", values=(self._database.address.channel, payload)
                    )
            except BaseException:
                sending, self._sending = self._sending, None
                await sending.close()
                raise

    async def _listen_for_ever(self) -> None:
        while True:
            if self._database.address.notify:
                try:
                    await self._listen()
                except (psycopg.Error, OSError, TimeoutError) as error:
                    logger.debug("notices are not heard for now: %s", error)
                self._is_heard = False
            # What was missed meanwhile is found by looking.
            self._announcer.announce()
            await asyncio.sleep(_AGAIN_S if self._database.address.notify else LOOK_EVERY_S)

    async def _listen(self) -> None:
        connection = await self._database.connect()
        try:
            channel = f'"{self._database.address.channel}"'
            await connection.execute(f"LISTEN {channel}".encode())
            await self._send("")
            while True:
                wait_s = SWEEP_EVERY_S if self._is_heard else LOOK_EVERY_S
                async for notice in connection.notifies(timeout=wait_s):
                    self._is_heard = True
                    self._heard.set()
                    if notice.payload and notice.pid != self._own_pid:
                        types = set(notice.payload.split(","))
                        self._announcer.announce(None if _ALL in types else types)
                self._announcer.announce()
        finally:
            await connection.close()

    @property
    def _own_pid(self) -> int:
        """Return whose notices are ours: what they tell, followers here know already."""
        sending = self._sending
        return 0 if sending is None or sending.closed else sending.info.backend_pid

    async def close(self) -> None:
        """Send what was gathered, and stop listening."""
        self._is_closed = True
        if self._gathering is not None:
            await asyncio.wait([self._gathering], timeout=_PROOF_S)
        for task in (self._gathering, self._listening):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._sending is not None:
            await self._sending.close()


def _payloads(types: Iterable[str]) -> list[str]:
    """Return notices that name the types, each short enough."""
    text = ",".join(sorted(types))
    return [text] if len(text.encode()) < _MOST_BYTES and not any("," in one for one in types) else [_ALL]
