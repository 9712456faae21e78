"""Turns that were taken up in vain before go on one after another: one that kills its process takes no others with it (C14)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LONGEST_STAY_S = 2.0  # who has not killed the process by then most likely will not


class Quarantine:
    """Give its one place to one turn at a time, until that turn has got somewhere or `longest_stay_s` have passed.

    All turns of a process that dies are taken up again together. If they went on together each time, each would be counted
    a try in vain for what one of them did, or for a process that lived too short for so many, and all be given up.
    """

    def __init__(self, *, longest_stay_s: float = LONGEST_STAY_S) -> None:
        self._place = asyncio.Lock()
        self._longest_stay_s = longest_stay_s

    async def enter(self) -> Callable[[], None]:
        """Wait for the place and return what gives it back, however often it is called."""
        await self._place.acquire()
        is_given_back = False

        def give_back() -> None:
            nonlocal is_given_back
            if not is_given_back:
                is_given_back = True
                timer.cancel()
                self._place.release()

        timer = asyncio.get_running_loop().call_later(self._longest_stay_s, give_back)
        return give_back
