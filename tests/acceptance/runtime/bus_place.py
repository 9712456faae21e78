"""A bus over a real store, a clock that moves when told to, and turns played by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kipu.events.conversation import AgentMessageEvent
from kipu.events.event import SessionEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.runtime.messages.reception import Receipt
from kipu.testing.fakes import FakeClock
from kipu.wiring import open_manager


@dataclass
class BusPlace:
    """One process: a manager, its bus, and whom the bus woke."""

    manager: SessionManager
    bus: MessageBus
    clock: FakeClock
    woken: list[str] = field(default_factory=list)

    async def send(self, text: str, **fields: Any) -> Receipt:
        """Publish a message to chat 42 of the channel `chat` from ada, unless said otherwise."""
        return await self.bus.publish(said(text, **fields))

    async def session(self, key: str = "chat:42") -> Session:
        session = await self.manager.get_or_create(key)
        await session.refresh()
        return session

    async def due(self) -> list[str]:
        """Return the sessions that want a worker now."""
        return [head.session_id for head in await self.manager.store.runnable(now=self.clock.iso(), limit=100)]


Opener = Callable[..., Awaitable[BusPlace]]


def said(text: str, **fields: Any) -> InboundEvent:
    """Return a message to chat 42 of the channel `chat` from ada, unless said otherwise."""
    return InboundEvent.model_validate(
        {"channel": "chat", "chat_id": "42", "sender_id": "ada", "content": text, **fields}
    )


async def open_bus(url: str, *, clock: FakeClock | None = None, **settings: Any) -> BusPlace:
    """Open a store as one process does."""
    clock = clock or FakeClock()
    manager = await open_manager(url, clock=clock)
    woken: list[str] = []
    return BusPlace(manager, MessageBus(manager, wake=woken.append, **settings), clock, woken)


async def answer(session: Session, text: str, *, consumes: Sequence[int] | None = None) -> int:
    """Run one turn that says `text`, over the given messages or the first that waits, and return the answer's seq."""
    async with session.turn(consumes=consumes, take=None if consumes is not None else 1) as turn:
        return (await turn.add_event(AgentMessageEvent(content=text))).seq


async def log_of(session: Session) -> list[SessionEvent]:
    """Return the session's events behind its beginning."""
    return (await session.get_full_history())[1:]
