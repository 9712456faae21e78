"""What happens to many machines. Each trouble strikes and mends itself; a new one is a function and its line in `TROUBLES`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from tests.acceptance.many_machines.line_proxy import LineProxy
from tests.acceptance.many_machines.machines import Place, WorkerMachine

Trouble: TypeAlias = Callable[[Place, random.Random], Awaitable[None]]

THAWED_AFTER_S = 1.0  # the lease ended so long ago
SLOW_S = 1.5


async def kill(place: Place, chance: random.Random) -> None:
    """End a worker by SIGKILL and start another one on its machine."""
    machine = _awake(place, chance)
    await machine.kill()
    machine.start(seed=chance.randrange(10**9))
    await machine.begun()


async def freeze(place: Place, chance: random.Random) -> None:
    """Stop a worker until its leases have ended, and let it go on."""
    machine = _awake(place, chance)
    machine.freeze()
    try:
        await asyncio.sleep(machine.machine.lease_ttl_s + THAWED_AFTER_S)
    finally:
        machine.thaw()


async def cut(place: Place, chance: random.Random) -> None:
    """Cut a machine's lines."""
    _line(place, chance).cut()


async def cut_often(place: Place, chance: random.Random) -> None:
    """Cut a machine's lines again and again, also those that were made just now."""
    proxy = _line(place, chance)
    for _ in range(8):
        proxy.cut()
        await asyncio.sleep(chance.random() * 0.2)


async def delay(place: Place, chance: random.Random) -> None:
    """Make a machine's lines slow for a while."""
    proxy = _line(place, chance)
    proxy.delay_s = 0.02 + 0.2 * chance.random()
    try:
        await asyncio.sleep(SLOW_S)
    finally:
        proxy.delay_s = 0.0


async def half_close(place: Place, chance: random.Random) -> None:
    """Close one half of a machine's lines."""
    _line(place, chance).half_close(towards_server=chance.random() < 0.5)


async def restart_fast(place: Place, _: random.Random) -> None:
    """Stop the server in order, which ends every line, and start it."""
    await _restart(place, "fast")


async def restart_crashed(place: Place, _: random.Random) -> None:
    """Stop the server as a crash would, and start it: it reads its log first."""
    await _restart(place, "immediate")


async def fail_over(place: Place, _: random.Random) -> None:
    """Have the server lose its power for good, and its standby take over."""
    await asyncio.to_thread(place.server.fail_over)


TROUBLES: Final[dict[str, Trouble]] = {
    trouble.__name__: trouble
    for trouble in (kill, freeze, cut, cut_often, delay, half_close, restart_fast, restart_crashed, fail_over)
}
WEIGHTS: Final[dict[str, float]] = {
    "kill": 4,
    "freeze": 3,
    "cut": 3,
    "restart_fast": 0.5,
    "restart_crashed": 0.5,
    "fail_over": 0,
}


def drawn(chance: random.Random, *, first: list[str]) -> str:
    """Return the next trouble: each once before any comes again, then the likely ones more often, and some no more."""
    if first:
        return first.pop(chance.randrange(len(first)))
    names = list(TROUBLES)
    return chance.choices(names, [WEIGHTS.get(name, 1.0) for name in names])[0]


async def _restart(place: Place, mode: str) -> None:
    await asyncio.to_thread(place.server.stop, mode)
    await asyncio.to_thread(place.server.start)


def _awake(place: Place, chance: random.Random) -> WorkerMachine:
    return chance.choice([machine for machine in place.machines if not machine.is_frozen])


def _line(place: Place, chance: random.Random) -> LineProxy:
    return chance.choice(place.proxies)
