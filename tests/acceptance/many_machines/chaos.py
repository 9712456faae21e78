"""A soak over three machines and one server, with all the trouble that `troubles` has, and with people who follow it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kipu.manager.manager import SessionManager
from tests.acceptance.many_machines.follower import Follower, SessionFollower
from tests.acceptance.many_machines.machines import Place, ServerPair
from tests.acceptance.many_machines.troubles import TROUBLES, drawn
from tests.acceptance.runtime.soak import Outcome, Soak, SoakSize, heads_of, surely
from tests.servers import fresh_schema

FOLLOWED_AFTER_S = 60.0  # when all is quiet, followers have so long to be given the last of it


@dataclass(frozen=True)
class ChaosSize:
    """How much of what."""

    soak: SoakSize
    lease_ttl_s: float
    trouble_every_s: float  # on average


class Chaos(Soak):
    """Run one."""

    def __init__(self, server: ServerPair, folder: Path, size: ChaosSize, *, seed: int) -> None:
        url = fresh_schema(server.url)
        super().__init__(url, folder / "book", size.soak, seed=seed)
        self._server, self._chaos = server, size
        self._schema = url.rpartition("schema=")[2]
        self._troubled = random.Random(seed + 1)
        self._striking: set[asyncio.Task[None]] = set()
        self._place: Place | None = None
        self._all_struck = asyncio.Event()
        self.struck: Counter[str] = Counter()
        self.followers: list[Follower] = []

    async def run(self) -> Outcome:
        """Send everything, with trouble on the way, let it come to its end, and judge what logs and followers say."""
        async with AsyncExitStack() as stack:
            self._place = await Place.open(
                stack,
                self._server,
                schema=self._schema,
                book=self._book_path,
                options=self._size.worker_options,
                lease_ttl_s=self._chaos.lease_ttl_s,
            )
            for machine in self._place.machines:
                machine.start(seed=self._chance.randrange(10**9))
            afar = f"{self._place.follower_proxy.url}&schema={self._schema}&statement_timeout_s=5"
            self.followers = [
                Follower("afar", afar, seed=self._seed, stays_s=10.0),
                Follower("often away", self._url, seed=self._seed + 1, stays_s=1.0),
                SessionFollower("of some sessions", afar, seed=self._seed + 2, stays_s=2.0),
            ]
            following = [asyncio.ensure_future(follower.run()) for follower in self.followers]
            try:
                return await super().run()
            finally:
                for task in following:
                    task.cancel()
                for ended in await asyncio.gather(*following, return_exceptions=True):
                    if not isinstance(ended, asyncio.CancelledError):
                        self.outcome.problems.append(f"a follower ended: {ended!r}")

    # ---- trouble -----------------------------------------------------------------------------------------------------

    async def _trouble(self) -> None:
        """Let one trouble follow the other; some are still there when the next comes."""
        place = self._place
        assert place is not None
        for machine in place.machines:
            await machine.begun()
        first = list(TROUBLES)
        while True:
            await asyncio.sleep(self._chaos.trouble_every_s * 2 * self._troubled.random())
            self._note_ended(place)
            name = drawn(self._troubled, first=first)
            if name == "freeze" and sum(machine.is_frozen for machine in place.machines) > 0:
                continue  # somebody has to work
            self.struck[name] += 1
            self.outcome.kills += name == "kill"
            strike = asyncio.ensure_future(TROUBLES[name](place, self._troubled))
            self._striking.add(strike)
            if name != "freeze":
                await asyncio.wait([strike])
            if not first:
                self._all_struck.set()

    def _note_ended(self, place: Place) -> None:
        for machine in place.machines:
            if machine.worker.exitcode is not None:
                self.outcome.problems.append(f"a worker ended by itself with {machine.worker.exitcode}")
        for strike in [one for one in self._striking if one.done()]:
            self._striking.discard(strike)
            strike.result()

    async def _end_trouble(self, trouble: asyncio.Future[None]) -> None:
        """Let each have struck once, and what struck last mend itself."""
        every: asyncio.Future[Any] = asyncio.ensure_future(self._all_struck.wait())
        either: set[asyncio.Future[Any]] = {every, trouble}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        every.cancel()
        await super()._end_trouble(trouble)
        await asyncio.gather(*self._striking)

    async def _end_workers(self) -> None:
        place = self._place
        assert place is not None
        for code in await asyncio.gather(*(machine.end() for machine in place.machines)):
            if code != 0:
                self.outcome.problems.append(f"a worker ended with {code}")

    # ---- the judgement -----------------------------------------------------------------------------------------------

    async def _judge(self, manager: SessionManager) -> None:
        last_seqs = {head.session_id: head.last_seq for head in await surely(lambda: heads_of(manager))}
        for follower in self.followers:
            try:
                async with asyncio.timeout(FOLLOWED_AFTER_S):
                    while follower.missing(last_seqs):  # noqa: ASYNC110 - it is told by the server
                        await asyncio.sleep(0.1)
            except TimeoutError:
                missing = follower.missing(last_seqs)
                self.outcome.problems.append(f"{follower.name} was not given all: {list(missing.items())[:5]}")
            self.outcome.problems += follower.problems
        await super()._judge(manager)
