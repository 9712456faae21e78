"""A process that erases a session or a person and kills itself, with SIGKILL, at a chosen call of its store or of a place."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from kipu.manager.erasing.eraser import Surroundings
from kipu.ports.principal import Principal
from kipu.stores.encrypted import EncryptedStore
from kipu.wiring import open_manager

_CHANGES = ("append", "adopt", "claim", "put_blob", "erase")


class Fuse:
    """Count what changes anything, and die just before or just after the n-th."""

    def __init__(self, at: int, *, before: bool) -> None:
        self.left = at
        self.before = before

    def wrap(self, target: Any, name: str) -> None:
        """Let calls of a method burn it."""
        method = getattr(target, name)

        async def call(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0 and self.before:
                os.kill(os.getpid(), signal.SIGKILL)
            outcome = await method(*args, **options)
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return outcome

        setattr(target, name, call)


def _armed(places: Callable[[], Any], fuse: Fuse) -> list[Any]:
    found = list(places())
    for place in found:
        fuse.wrap(place, "erase")
        fuse.wrap(place, "erase_person")
    return found


async def run(url: str, what: str, at: int, *, before: bool, detach: bool) -> None:
    """Erase, and die on the way if there are as many steps; else say so."""
    manager = await open_manager(url)
    fuse = Fuse(at, before=before)
    store: Any = manager.store
    if isinstance(store, EncryptedStore):
        fuse.wrap(store.store_keys, "shred")
        for name in _CHANGES:
            fuse.wrap(store.inner, name)
    else:
        for name in _CHANGES:
            fuse.wrap(store, name)
    eraser: Any = manager._ending._eraser
    surroundings: Surroundings = eraser._surroundings
    eraser._surroundings = Surroundings(partial(_armed, surroundings.places, fuse), surroundings.roots)
    if what.startswith("person:"):
        admin = Principal("root", roles=frozenset({"admin"}))
        await manager.erase_person(Principal(what.removeprefix("person:")), detach=detach, principal=admin)
    else:
        await manager.erase_session(what, detach=detach)
    sys.stdout.write("done\n")
    await manager.close()


if __name__ == "__main__":
    _, _url, _what, _at, _before, _detach = sys.argv
    asyncio.run(run(_url, _what, int(_at), before=_before == "before", detach=_detach == "detach"))
