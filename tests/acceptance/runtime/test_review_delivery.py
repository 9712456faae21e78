"""Edges of delivery: a store that fails for a moment, owners that nobody names, and what is read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kipu.errors import StoreUnavailableError
from kipu.events.turn import DeliveryEvent
from kipu.ports.store import StoredEvent
from kipu.runtime.messages.delivery import Delivery, DeliveryLimits
from tests.acceptance.runtime.bus_place import answer, open_bus
from tests.acceptance.runtime.test_delivery import QUICK, WITH_CHAT, Platform, deliveries

HARDLY_SWEEPING = DeliveryLimits(first_wait_s=0.001, longest_wait_s=0.002, tries=4, sweep_s=30.0)


async def _broken() -> AsyncIterator[StoredEvent]:
    raise StoreUnavailableError(store="memory://", reason="for a moment")
    yield  # pragma: no cover


async def test_answers_go_out_at_once_after_the_store_failed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment in which the store cannot be followed delays no later answer until the next sweep (C30)."""
    monkeypatch.setattr("kipu.runtime.messages.delivery.FOLLOW_AGAIN_S", 0.01)
    place, platform = await open_bus("memory://", **WITH_CHAT), Platform()
    follow, failures = place.manager.store.follow, 0
    again = asyncio.Event()

    def failing_once(session_id: str | None = None, **how: Any) -> AsyncIterator[StoredEvent]:
        nonlocal failures
        failures += 1
        if failures == 1:
            return _broken()
        again.set()
        return follow(session_id, **how)

    monkeypatch.setattr(place.manager.store, "follow", failing_once)
    async with Delivery(place.manager, {"chat": platform.send}, limits=HARDLY_SWEEPING):
        await asyncio.wait_for(again.wait(), 60)
        await place.send("hello")
        await answer(await place.session(), "hi")
        await asyncio.wait_for(platform.until(1), 60)
    await place.manager.close()
    assert platform.texts == ["hi"]


async def test_answer_is_recorded_again_and_not_sent_again_when_the_record_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was sent and could not be recorded for a moment is recorded later by the same process, and sent once (C5, C30)."""
    place, platform = await open_bus("memory://", **WITH_CHAT), Platform()
    append, failures = place.manager.store.append, 0

    async def failing_once(session_id: str, records: Any, **how: Any) -> Any:
        nonlocal failures
        if not failures and any(record.event_type == "delivery" and b'"sent"' in record.body for record in records):
            failures += 1
            raise StoreUnavailableError(store="memory://", reason="for a moment")
        return await append(session_id, records, **how)

    monkeypatch.setattr(place.manager.store, "append", failing_once)
    async with Delivery(place.manager, {"chat": platform.send}, limits=QUICK) as delivery:
        await place.send("hello")
        session = await place.session()
        await answer(session, "hi")
        async with asyncio.timeout(60):
            async for event in session.follow():
                if isinstance(event, DeliveryEvent) and event.status == "sent":
                    break
        await delivery.settle()
    recorded = await deliveries(session)
    await place.manager.close()
    assert failures == 1
    assert platform.texts == ["hi"]
    assert [event.platform_message_id for event in recorded] == ["p1"]
