"""Turns that were taken up in vain go on few at a time, in the end alone: one that kills its process takes no others along (C14)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SUSPECT_AFTER = 2  # tries in vain
ALONE_AFTER = 5
PLACES = 4
LONGEST_STAY_S = 2.0  # who has not killed the process by then most likely will not


class Quarantine:
    """Give its places to turns, each until it has got somewhere or `longest_stay_s` have passed.

    All turns of a process that dies are taken up again together. If they went on together each time, each would be counted
    a try in vain for what one of them did, or for a process that lived too short for so many, and all be given up.
    """

    def __init__(self, *, longest_stay_s: float = LONGEST_STAY_S) -> None:
        self._few, self._one = asyncio.Semaphore(PLACES), asyncio.Semaphore(1)
        self._longest_stay_s = longest_stay_s

    async def enter(self, tries: int) -> Callable[[], None]:
        """Wait for a place for a turn with so many tries in vain; return what gives it back, however often it is called."""
        if tries < SUSPECT_AFTER:
            return _nothing
        places = self._one if tries >= ALONE_AFTER else self._few
        await places.acquire()
        is_given_back = False

        def give_back() -> None:
            nonlocal is_given_back
            if not is_given_back:
                is_given_back = True
                timer.cancel()
                places.release()

        timer = asyncio.get_running_loop().call_later(self._longest_stay_s, give_back)
        return give_back


def _nothing() -> None:
    """Give nothing back."""
