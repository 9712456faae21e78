"""What the live tests share: processes of a store, as far as a test can have several in one, and what they see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kipu import open_manager
from kipu.events.conversation import AgentMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.model import TextDelta
from kipu.ports.principal import Principal
from kipu.runtime.agent_builder import AgentSettings
from kipu.runtime.live.watch import Happening
from kipu.runtime.messages.inbound import InboundEvent
from kipu.runtime.observer import LostNews, ModelNews, RetryNews, ToolNews
from kipu.runtime.runtime import Runtime
from kipu.testing.scripted_model import ScriptedModelClient
from kipu.wiring import open_runtime


@asynccontextmanager
async def process(
    url: str,
    folder: Path,
    model: ScriptedModelClient | None = None,
    *,
    live: str | None = None,
    more_tools: Any = None,
    **settings: Any,
) -> AsyncIterator[Runtime]:
    """Give a manager and a runtime of their own, as another process has them; without a model it runs no turns."""
    own: dict[str, Any] = {} if model is not None else {"accepts": lambda _session_id: False}
    async with (
        await open_manager(url, **settings) as manager,
        open_runtime(
            manager,
            settings=AgentSettings(folder / "work"),
            open_model=lambda _name: model or ScriptedModelClient(),
            more_tools=more_tools,
            live=live,
            **own,
        ) as runtime,
    ):
        yield runtime


async def begun(manager: SessionManager) -> Session:
    """Return a new session."""
    return await manager.get_or_create("test:1")


async def say(runtime: Runtime, session_id: str, text: str) -> int:
    """Put a message into a session."""
    message = InboundEvent(channel="test", chat_id="1", sender_id="ada", content=text)
    return (await runtime.bus.send(session_id, message)).seq


@dataclass
class Seen:
    """What a watcher was given, in order."""

    happenings: list[Happening] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    error: BaseException | None = None

    def take(self, happening: Happening) -> None:
        """Take one thing in."""
        self.happenings.append(happening)
        self.came.set()

    @property
    def events(self) -> list[SessionEvent]:
        """Return the events."""
        return [one for one in self.happenings if isinstance(one, SessionEvent)]

    @property
    def streamed(self) -> str:
        """Return the text that came in pieces, what does not count left out."""
        found = ""
        for one in self.happenings:
            if isinstance(one, LostNews | RetryNews):
                found = ""
            elif isinstance(one, ModelNews) and isinstance(one.event, TextDelta):
                found += one.event.text
        return found

    @property
    def text(self) -> str:
        """Return the text as somebody sees it: pieces, and an answer of which none came from its event."""
        found = answer = ""
        for one in self.happenings:
            if isinstance(one, LostNews | RetryNews):
                answer = ""
            elif isinstance(one, ModelNews) and isinstance(one.event, TextDelta):
                answer += one.event.text
            elif isinstance(one, AgentMessageEvent):
                found, answer = found + (answer or str(one.content)), ""
        return found + answer

    @property
    def output(self) -> str:
        """Return what calls printed."""
        return "".join(one.text for one in self.happenings if isinstance(one, ToolNews))

    async def until(self, is_so: Callable[[Seen], bool], *, within_s: float = 60.0) -> None:
        """Return when it is so."""
        async with asyncio.timeout(within_s):
            while not is_so(self):
                if self.error is not None:
                    raise self.error
                self.came.clear()
                await self.came.wait()

    async def until_finished(self, count: int = 1) -> None:
        """Return when so many turns have ended."""
        await self.until(lambda seen: sum(isinstance(one, TurnFinishedEvent) for one in seen.events) >= count)


@asynccontextmanager
async def watching(
    runtime: Runtime, session_id: str, *, after: int | None = None, principal: Principal | None = None
) -> AsyncIterator[Seen]:
    """Watch a session while the block runs."""
    seen = Seen()
    happenings = await runtime.bus.watch(session_id, after=after, principal=principal)

    async def look() -> None:
        try:
            async for happening in happenings:
                seen.take(happening)
        except Exception as error:
            seen.error = error
            seen.came.set()
            raise

    task = asyncio.ensure_future(look())
    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


@dataclass
class Speaker:
    """A tool that prints what a test says, until the test lets it end."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    emit: Callable[[str], None] | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, _arguments: Any, context: Any) -> str:
        """Begin, and wait for the end."""
        self.emit = context.emit
        self.begun.set()
        await self.over.wait()
        return "done"

    def say(self, text: str) -> None:
        """Print something."""
        assert self.emit is not None
        self.emit(text)


async def carried(url: str, ready: asyncio.Event, found: list[str]) -> None:
    """Keep every text that a Valkey server carries, until the task is cancelled."""
    from valkey.asyncio import Valkey

    client: Any = Valkey.from_url(url)
    hearing: Any = client.pubsub()
    try:
        await hearing.psubscribe("*")
        while True:
            message = await hearing.get_message(timeout=5)
            if message is not None and message["type"] == "psubscribe":
                ready.set()
            elif message is not None:
                found.append(message["data"].decode())
    finally:
        await hearing.aclose()
        await client.aclose()


@asynccontextmanager
async def overhearing(url: str) -> AsyncIterator[list[str]]:
    """Give every text that a Valkey server carries while the block runs."""
    ready, found = asyncio.Event(), list[str]()
    task = asyncio.ensure_future(carried(url, ready, found))
    await ready.wait()
    try:
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
