"""Following two stores as one: what was spooled is seen once, and not again when it is merged."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet

from kipu.ports.store import EventStore, StoredEvent
from kipu.stores.spool_merge import is_marker

# Events remembered by id, so that a merge does not show them twice.
_REMEMBERED = 100_000


def follow_both(
    primary: EventStore | None, spool: EventStore, *, types: AbstractSet[str] | None = None
) -> AsyncIterator[StoredEvent]:
    """Yield every event of these types committed from now on to either store, each once."""
    # Asked for here and not in the generator, which begins only when its first event is waited for.
    return _merged([store.follow(types=types) for store in (primary, spool) if store is not None])


async def _merged(streams: list[AsyncIterator[StoredEvent]]) -> AsyncIterator[StoredEvent]:
    queue: asyncio.Queue[StoredEvent] = asyncio.Queue(1)
    seen: OrderedDict[str, None] = OrderedDict()

    async def pump(stream: AsyncIterator[StoredEvent]) -> None:
        async for event in stream:
            await queue.put(event)

    tasks = [asyncio.create_task(pump(stream)) for stream in streams]
    waiting: asyncio.Task[StoredEvent] | None = None
    try:
        while True:
            waiting = asyncio.create_task(queue.get())
            done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if waiting not in done:
                for task in done:
                    await task  # a stream ends only by an error
            event = await waiting
            if event.record.event_id in seen or is_marker(event.record):
                continue
            seen[event.record.event_id] = None
            if len(seen) > _REMEMBERED:
                seen.popitem(last=False)
            yield event
    finally:
        for task in [*tasks, *([waiting] if waiting is not None else [])]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
