"""A process that archives a session or brings it back, and dies at the step that it is told: `python -m … URL ID WHAT N HOW`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from kipu.archive.place import FolderPlace
from kipu.manager.lifecycle.archive_backed import archive_backed
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.wiring import open_manager

# What changes something: before and after each of these the process can die.
STORE_STEPS = ("append", "offload", "reload", "put_blob")
FILE_EVENTS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "shutil.rmtree"})


class Countdown:
    """Kill this process when it has been told of the n-th step."""

    def __init__(self, number: int) -> None:
        self._left = number

    def step(self) -> None:
        """Take one step, or die."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def guarded(call: Callable[..., Any], countdown: Countdown) -> Callable[..., Any]:
    """Return the call with a step before and behind it."""

    async def run(*words: Any, **named: Any) -> Any:
        countdown.step()
        outcome = await call(*words, **named)
        countdown.step()
        return outcome

    return run


async def work(url: str, session_id: str, *, what: str, number: int, how: str) -> None:
    """Do it, dying at the step."""
    countdown = Countdown(number)
    async with await open_manager(url) as manager:
        await manager.store.head(session_id)
        if how == "calls":
            kept: Any = archive_backed(manager.store).inner
            for name in STORE_STEPS:
                setattr(kept, name, guarded(getattr(kept, name), countdown))
            FolderPlace.remove = guarded(FolderPlace.remove, countdown)  # type: ignore[method-assign]
        else:
            sys.addaudithook(lambda event, _: countdown.step() if event in FILE_EVENTS else None)
        archives = SessionArchives(manager)
        await (archives.archive(session_id) if what == "archive" else archives.unarchive(session_id))
    os._exit(0)


if __name__ == "__main__":
    place, name, task, count, mode = sys.argv[1:6]
    asyncio.run(work(place, name, what=task, number=int(count), how=mode))
