"""`kipu copy --cut-over` that kills itself with SIGKILL just before, or just after, one of its changes to either store.

`python -m tests.acceptance.moving.killed_copier FROM TO STEP NUMBER WHEN`: STEP is what it does then for the NUMBERth time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from kipu.cli.store_move import shown_name
from kipu.manager.moving import StoreMove
from kipu.manager.store_tail import StoreTail
from kipu.ports.store import Appended, EventStore, Lease, Record, StoreMark, Tombstone
from kipu.stores.host import SystemClock, SystemLiveness, this_process_owner
from kipu.stores.times import iso_from_us
from kipu.stores.wrapper import WrappedStore
from kipu.wiring import open_store


class Fuse:
    """Kill this process at one step."""

    def __init__(self, step: str, number: int, when: str) -> None:
        self._step = step
        self._left = number
        self._when = when

    def burn(self, step: str, when: str) -> None:
        """Say what is about to happen, or has just happened."""
        if (step, when) == (self._step, self._when):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class FusedStore(WrappedStore):
    """The store inside; a fuse hears of every change."""

    def __init__(self, inner: EventStore, fuse: Fuse) -> None:
        super().__init__(inner)
        self._fuse = fuse

    async def append(self, session_id: str, records: Sequence[Record], **how: Any) -> Appended:
        """Append."""
        self._fuse.burn("append", "before")
        appended = await super().append(session_id, records, **how)
        self._fuse.burn("append", "after")
        return appended

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None = None) -> None:
        """Set a mark."""
        step = mark.state if mark is not None else f"not {expected.state if expected else ''}"
        self._fuse.burn(step, "before")
        await super().set_mark(mark, expected=expected)
        self._fuse.burn(step, "after")

    async def erase(self, session_id: str, *, lease: Lease) -> Any:
        """Erase."""
        self._fuse.burn("erase", "before")
        receipt = await super().erase(session_id, lease=lease)
        self._fuse.burn("erase", "after")
        return receipt

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Bury."""
        self._fuse.burn("bury", "before")
        await super().bury(tombstones)
        self._fuse.burn("bury", "after")


async def main(source: str, target: str, fuse: Fuse) -> None:
    """Move, as the command does."""
    owner, clock = this_process_owner("copy"), SystemClock()
    stores = [FusedStore(await open_store(url), fuse) for url in (source, target)]
    tail = StoreTail(stores[0], stores[1], owner=owner)

    async def nothing() -> None:
        fuse.burn("beside", "before")

    work = StoreMove(
        stores[0],
        stores[1],
        names=(shown_name(source), shown_name(target)),
        tail=tail,
        owner=owner,
        liveness=SystemLiveness(),
        move=os.urandom(8).hex(),
        now=lambda: iso_from_us(clock.now_us()),
        beside=nothing,
    )
    if await work.begin() == "begun":
        await work.copy()
        await work.cut_over(wait_s=0.0)
    await tail.end()
    for store in stores:
        await store.close()


if __name__ == "__main__":
    _, begins, ends, named, count, moment = sys.argv
    asyncio.run(main(begins, ends, Fuse(named, int(count), moment)))
