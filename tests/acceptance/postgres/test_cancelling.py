"""Whoever is cancelled ends, however the store is used (A41)."""

from __future__ import annotations

import asyncio

from tests.acceptance.postgres.kit import opened
from tests.servers import fresh_schema, postgres_url


async def test_caller_who_does_nothing_but_ask_ends_when_cancelled() -> None:
    """A loop of nothing but questions to the store, as somebody writes who waits for a session to appear, can be cancelled (A41)."""
    async with opened(fresh_schema(postgres_url())) as store:

        async def ask_for_ever() -> None:
            while True:
                await store.head("nobody")

        asking = asyncio.ensure_future(ask_for_ever())
        await store.head("somebody")
        for _ in range(5):
            asking.cancel()
            done, _ = await asyncio.wait([asking], timeout=60)
            if done:
                break
        assert asking.cancelled()
