"""Sessions to put away, and what must be the same wherever their events are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kipu.events.conversation import UserMessageEvent
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.manager.manager import SessionManager
from kipu.ports.store import MAX_PAGE, StoredEvent
from kipu.testing.fakes import FakeClock
from kipu.wiring import open_manager

KEY = "cli:filed"
DAY_S = 24 * 3600
STORES = ("sqlite", "jsonl")
SEALED = "sqlite?encrypt=env:KIPU_TEST_KEY"
KINDS = (*STORES, SEALED, f"{SEALED}&chain=on", "jsonl?encrypt=env:KIPU_TEST_KEY")


@asynccontextmanager
async def opened(
    folder: Path, kind: str, *, clock: FakeClock | None = None, **how: Any
) -> AsyncIterator[SessionManager]:
    """Open a manager over a store of this kind in the folder; `kind` may go on with settings of the URL."""
    scheme, _, query = kind.partition("?")
    url = f"{scheme}:///{folder}/store" + (f"?{query}" if query else "")
    async with await open_manager(url, clock=clock, **how) as manager:
        yield manager


async def filled(manager: SessionManager, *, events: int = 40, key: str = KEY, text: str = "zebra") -> str:
    """Make a session with a key, a title, a tag, messages of which some have an idempotency key, and a blob; return its id."""
    session = await manager.get_or_create(key, initial_context={"colour": "green"})
    await session.set_metadata(title="a filed thing", tags=["kept"])
    for number in range(events):
        message = UserMessageEvent(content=f"{text} {number}")
        await session.append([message], principal=manager.principal, idempotency_key=f"{key}-{number}")
    await manager.store.put_blob(session.session_id, b"picture " * 1000)
    return session.session_id


async def whole(manager: SessionManager, session_id: str) -> list[StoredEvent]:
    """Return every event of a session, wherever it is."""
    events: list[StoredEvent] = []
    while page := await manager.store.read(session_id, after=events[-1].seq if events else 0, limit=MAX_PAGE):
        events += page
    return events


async def archive(manager: SessionManager, session_id: str, **how: Any) -> None:
    """Put a session away."""
    await SessionArchives(manager).archive(session_id, **how)


def only_file(folder: Path) -> Path:
    """Return the one archive file beside the store."""
    (found,) = (folder / "store.archive").iterdir()
    return found
