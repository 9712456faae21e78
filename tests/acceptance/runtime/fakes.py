"""Small tools and a whole runtime over a real store, for tests of turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kipu.events.conversation import UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.tool import JsonObject, Tool, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.agent import Agent, AgentParts
from kipu.runtime.approvals import ApprovalDesk
from kipu.runtime.delegation import DelegateTool
from kipu.runtime.models.retrying import RetryLimits
from kipu.runtime.observer import LiveFeed
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.policy.grants import Grants
from kipu.runtime.tools.toolbox import Toolbox
from kipu.runtime.worker import Worker
from kipu.stores.host import SystemClock
from kipu.testing.scripted_model import ScriptedModelClient
from kipu.wiring import open_manager

AnyArguments: Mapping[str, Any] = {"type": "object"}


@dataclass
class FunctionTool:
    """A tool that is a function, and remembers what it was called with."""

    name: str
    function: Callable[..., Awaitable[Any]] | None = None
    spec_fields: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    closed: int = 0

    @property
    def spec(self) -> ToolSpec:
        fields: dict[str, Any] = {"default_policy": "allow", "has_side_effect": False, **self.spec_fields}
        return ToolSpec(self.name, f"Does {self.name}.", fields.pop("parameters", AnyArguments), **fields)

    def subject(self, arguments: JsonObject) -> str:
        return str(arguments.get("path", ""))

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        return ToolPreview(f"{self.name} {dict(arguments)}")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        self.calls.append(dict(arguments))
        if self.function is None:
            return ToolResult(f"{self.name} done")
        result = await self.function(arguments, context)
        return result if isinstance(result, ToolResult) else ToolResult(result)

    async def aclose(self) -> None:
        self.closed += 1


class OneModelBuilder:
    """Build agents that share one scripted model and make their tools anew."""

    def __init__(
        self,
        manager: SessionManager,
        model: ScriptedModelClient,
        tools: Callable[[], list[Tool]],
        *,
        observer: LiveFeed | None = None,
        **parts: Any,
    ) -> None:
        self.manager = manager
        self.model = model
        self.tools = tools
        self.observer = observer
        self.parts = parts
        self.built = 0
        self.orchestrator: Orchestrator | None = None

    async def build(self, session: Session) -> Agent:
        self.built += 1
        more = [DelegateTool(self.manager, self.orchestrator, parent=session)] if self.orchestrator is not None else []
        parts = AgentParts(
            self.model,
            Toolbox([*self.tools(), *more]),
            retries=RetryLimits(first_delay_s=0.001, max_delay_s=0.002),
            grants=Grants(self.manager, clock=SystemClock()),
            **self.parts,
        )
        return Agent(session, parts, manager=self.manager, observer=self.observer)


@dataclass
class Runtime:
    manager: SessionManager
    model: ScriptedModelClient
    worker: Worker
    orchestrator: Orchestrator
    desk: ApprovalDesk
    feed: LiveFeed
    builder: OneModelBuilder

    async def say(self, session: Session, text: str, **fields: Any) -> int:
        """Put a message into the mailbox and wake the worker."""
        message = UserMessageEvent(content=text, channel="test", sender_id="ada", queued=True, **fields)
        stored = await session.add_event(message)
        self.worker.wake(session.session_id)
        return stored.seq

    async def session(self, key: str = "test:1") -> Session:
        return await self.manager.get_or_create(key)

    async def settled(self) -> None:
        async with asyncio.timeout(60):
            await self.worker.until_idle()

    async def settled_soon(self, session: Session) -> None:
        """Wait until the session has no open turn, whoever ended it."""
        async with asyncio.timeout(60):
            while session.head.open_turn is not None or session.session_id in self.worker.running:
                await asyncio.sleep(0.005)
                await session.refresh()


@asynccontextmanager
async def runtime(
    model: ScriptedModelClient,
    *tools: Tool,
    url: str = "memory://",
    manager: SessionManager | None = None,
    max_turns: int = 64,
    sweep_s: float = 0.2,
    delegates: bool = False,
    accepts: Callable[[str], bool] | None = None,
    **parts: Any,
) -> AsyncIterator[Runtime]:
    """A worker over a store, and everything around it."""
    own = manager is None
    # What is not given back is nobody else's for longer than a test waits.
    manager = manager or await open_manager(url, lease_ttl_s=600.0)
    feed = LiveFeed()
    builder = OneModelBuilder(manager, model, lambda: list(tools), observer=feed, **parts)
    orchestrator = Orchestrator(manager, builder, monotonic_s=time.monotonic)
    builder.orchestrator = orchestrator if delegates else None
    worker = Worker(manager, orchestrator, max_turns=max_turns, sweep_s=sweep_s, accepts=accepts)
    desk = ApprovalDesk(manager, grants=Grants(manager, clock=SystemClock()), wake=worker.wake)
    try:
        async with worker:
            yield Runtime(manager, model, worker, orchestrator, desk, feed, builder)
    finally:
        await orchestrator.close()
        if own:
            await manager.close()


async def until(session: Session, kind: type[SessionEvent], *, count: int = 1) -> Any:
    """Wait for the `count`-th event of a type and return it."""
    async with asyncio.timeout(60):
        async for event in session.follow():
            if isinstance(event, kind):
                count -= 1
                if count == 0:
                    return event
    raise AssertionError("the session ended")


async def kinds(session: Session) -> list[str]:
    """The types of a session's events in order, its beginning left out."""
    return [event.event_type for event in await session.get_full_history()][1:]


async def of_type(session: Session, kind: type[SessionEvent]) -> list[Any]:
    return [event for event in await session.get_full_history() if isinstance(event, kind)]
