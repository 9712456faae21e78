"""The stop switch of a running turn: whoever turns it, every wait of the turn ends at once and the history is closed in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from kipu.errors import TurnStoppedError
from kipu.session.turn_story import strongest_stop

StopMode: TypeAlias = Literal["stop", "interrupt", "rollback", "rollback_forced"]
HANDOVER = "handover"  # this process ends: the turn stays open, and another worker takes it up


class TurnControl:
    """Say whether the turn is to end, and wake what it waits for."""

    def __init__(self) -> None:
        self.mode: str | None = None
        self.turn_id: str | None = None  # the turn that runs under it
        self.on_progress: Callable[[], object] | None = None  # called when the turn has got somewhere
        self._stopped = asyncio.Event()
        self._listeners: list[Callable[[], object]] = []

    @property
    def is_stopped(self) -> bool:
        """Return True once somebody asked."""
        return self._stopped.is_set()

    def stop(self, mode: str = "stop") -> None:
        """End the turn; of several who ask, the one who asks for most says how. A handover ends nothing and stays one."""
        if self.mode is not None:
            self.mode = self.mode if self.mode == HANDOVER else strongest_stop(self.mode, mode)
        else:
            self.mode = mode
            self._stopped.set()
            for listener in list(self._listeners):
                listener()

    def check(self) -> None:
        """Raise TurnStoppedError when somebody asked."""
        if self.mode is not None:
            raise TurnStoppedError(mode=self.mode)

    @contextmanager
    def on_stop(self, listener: Callable[[], object]) -> Iterator[None]:
        """Call `listener` when somebody asks while the block runs, at once if somebody has."""
        self._listeners.append(listener)
        if self.is_stopped:
            listener()
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def sleep(self, seconds: float) -> None:
        """Wait, but not longer than until somebody asks. Raises: TurnStoppedError."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return
        self.check()

    async def wait(self) -> None:
        """Return when somebody asks."""
        await self._stopped.wait()
