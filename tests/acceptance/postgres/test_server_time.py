"""Leases of many machines end by one clock: the server's."""

from __future__ import annotations

import asyncio
import time

import pytest

from kipu.stores.postgres.server_clock import ServerClock
from tests.acceptance.postgres.kit import begin, opened
from tests.servers import fresh_schema, postgres_url

FIVE_MINUTES_S = 300


@pytest.mark.parametrize("off_s", [FIVE_MINUTES_S, -FIVE_MINUTES_S])
async def test_clock_of_a_machine_decides_about_no_lease(off_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store on a machine whose clock is 5 minutes off takes no live lease, and takes one that has ended (B61, PG-13)."""
    url = fresh_schema(postgres_url())
    async with opened(url) as right:
        await begin(right, "one")
        assert await right.claim("one", owner="right", ttl_s=1.5) is not None
        real_time, real_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: real_time() + off_s)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + off_s * 1_000_000_000)
        async with opened(url) as wrong:
            assert await wrong.claim("one", owner="wrong", ttl_s=30) is None
            async with asyncio.timeout(60):
                lease = None
                while lease is None:  # each claim asks the server, so this waits without a sleep
                    lease = await wrong.claim("one", owner="wrong", ttl_s=30)
            assert await right.claim("one", owner="right", ttl_s=30) is None


async def test_server_is_asked_before_a_lease_is_taken_from_another() -> None:
    """A clock that ran ahead since its last look takes no live lease: the server is asked first (B61, PG-14)."""
    url = fresh_schema(postgres_url())
    ahead_s = [FIVE_MINUTES_S, 0]  # at the first look, and at every later one

    async def look() -> int:
        off_s = ahead_s.pop(0) if len(ahead_s) > 1 else ahead_s[0]
        return time.time_ns() // 1_000 + off_s * 1_000_000

    ran_ahead = ServerClock(look)
    await ran_ahead.look()
    async with opened(url) as right, opened(url, clock=ran_ahead) as other:
        await begin(right, "one")
        assert await right.claim("one", owner="right", ttl_s=30) is not None
        assert await other.claim("one", owner="other", ttl_s=30) is None
        assert (await right.claim("one", owner="right", ttl_s=30)) is not None
