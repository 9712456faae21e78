"""A program that keeps sending messages to a store, and goes to another one when it is told that its store has moved.

`python -m tests.acceptance.moving.chatter NAME FOLDER FROM TO` writes a line for every message that was acknowledged, and ends when
there is a file `stop`. Messages have ids of their own, so that one whose acknowledgement was lost may be sent again.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from kipu.errors import KipuError, StoreBeingFilledError, StoreMovedError
from kipu.events.conversation import UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.wiring import open_manager
from tests.acceptance.runtime.soak_worker import Book

_PAUSE_S = 0.02
_CHATS = 7


class Chatter:
    """Send messages one after the other, wherever the store is."""

    def __init__(self, name: str, folder: Path, urls: tuple[str, str]) -> None:
        self._name = name
        self._folder = folder
        self._urls = urls
        self._at = 0
        self._managers: dict[int, SessionManager] = {}
        self._book = Book(folder / f"{name}.book")

    async def run(self) -> None:
        """Send until `stop` is there."""
        number = 0
        while not (self._folder / "stop").exists():
            await self._send(number)
            number += 1
            await asyncio.sleep(_PAUSE_S)
        for manager in self._managers.values():
            await manager.close()

    async def _send(self, number: int) -> None:
        text = f"{self._name}.{number}"
        key = f"telegram:{self._name}-{number % _CHATS}"
        while True:
            try:
                manager = await self._manager()
                message = UserMessageEvent(content=text, source_message_id=text)
                appended = await manager.receive(key, message)
            except (StoreMovedError, StoreBeingFilledError) as error:
                self._book.write("refused", text, str(self._at), f"{time.time():.6f}", error.code)
                self._at = 1 - self._at
                await asyncio.sleep(0.01)
            except KipuError as error:
                self._book.write("failed", text, str(self._at), f"{time.time():.6f}", str(error))
                raise
            else:
                place = (str(self._at), f"{time.time():.6f}", appended.session_id, str(appended.first_seq))
                self._book.write("acked", text, *place)
                return

    async def _manager(self) -> SessionManager:
        if self._at not in self._managers:
            self._managers[self._at] = await open_manager(self._urls[self._at])
        return self._managers[self._at]


if __name__ == "__main__":
    _, of, where, begins, ends = sys.argv
    asyncio.run(Chatter(of, Path(where), (begins, ends)).run())
