"""Machines of a store: each with its own folder for files, in this process or one of its own; a message says what is called."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kipu.events.conversation import AgentMessageEvent, ToolResultEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import TurnFinishedEvent, TurnParkedEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.model import ModelRequest
from kipu.runtime.agent_builder import AgentSettings
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.runtime.policy.policy_rule import PolicyRule
from kipu.runtime.policy.tool_policy import PolicyLayer
from kipu.runtime.runtime import Runtime
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply, results_of, texts_of
from kipu.wiring import open_manager, open_runtime

ROOT = Path(__file__).parents[3]
Call = tuple[str, dict[str, Any]]


def steps(request: ModelRequest) -> ScriptedReply:
    """Make the calls that the newest message names, one after the other, and answer with the last result."""
    asked = json.loads(texts_of(request)[-1])
    last_user = max(n for n, message in enumerate(request.messages) if message["role"] == "user")
    done = sum(message["role"] == "tool" for message in request.messages[last_user:])
    if done < len(asked):
        name, arguments = asked[done]
        return ScriptedReply("Next.", calls=[ScriptedCall(name, arguments)])
    results = results_of(request)
    return ScriptedReply(str(results[-1].get("content", results[-1])) if results else "Done.")


def settings_of(home: Path, *, asks: Sequence[str] = (), **options: Any) -> AgentSettings:
    """Return what agents of a machine are built with: all is allowed but the tools in `asks`."""
    rules = (*(PolicyRule("ask", tool=name) for name in asks), PolicyRule("allow"))
    return AgentSettings(home / "workspaces", policy=(PolicyLayer("user", rules),), sandbox="off", **options)


@asynccontextmanager
async def machine(
    url: str,
    home: Path,
    *,
    accepts: Callable[[str], bool] | None = None,
    asks: Sequence[str] = (),
    bound_wait_s: float | None = None,
    **options: Any,
) -> AsyncIterator[Runtime]:
    """Work on a store as one machine does, until the block ends."""
    async with await open_manager(url, lease_ttl_s=3.0) as manager:
        settings = settings_of(home, asks=asks, **options)
        run = open_runtime(
            manager,
            settings=settings,
            open_model=lambda _name: ScriptedModelClient(steps),
            accepts=accepts,
            bound_wait_s=bound_wait_s,
        )
        async with run:
            yield run


async def say(manager: SessionManager, *calls: Call, chat: str = "1") -> Session:
    """Send a message that asks for these calls; whichever machine works takes the turn."""
    message = InboundEvent(channel="test", chat_id=chat, sender_id="ada", content=json.dumps(calls))
    receipt = await MessageBus(manager).publish(message)
    return await manager.open(receipt.session_id)


async def ended(session: Session, *, after: int, types: tuple[type, ...] = (TurnFinishedEvent,)) -> list[SessionEvent]:
    """Return the events up to the next end of a turn."""
    found: list[SessionEvent] = []
    async with asyncio.timeout(60):
        async for event in session.follow(after=after):
            found.append(event)
            if isinstance(event, types):
                return found
    raise AssertionError(found)


async def done(manager: SessionManager, *calls: Call, chat: str = "1") -> list[SessionEvent]:
    """Have a turn run, wherever, and return its events."""
    before = await manager.get_or_create(f"test:{chat}")
    await before.refresh()
    after = before.history.last_seq
    session = await say(manager, *calls, chat=chat)
    return await ended(session, after=after, types=(TurnFinishedEvent, TurnParkedEvent))


def results(events: Sequence[SessionEvent]) -> list[str]:
    """Return what calls came to."""
    return [str(event.result) for event in events if isinstance(event, ToolResultEvent)]


def outcome(events: Sequence[SessionEvent]) -> TurnFinishedEvent:
    """Return the end of the turn."""
    last = events[-1]
    assert isinstance(last, TurnFinishedEvent), events
    return last


def answer(events: Sequence[SessionEvent]) -> str:
    """Return what was said last."""
    return [str(event.content) for event in events if isinstance(event, AgentMessageEvent)][-1]


@asynccontextmanager
async def process(url: str, home: Path, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a machine as a process of its own, to be killed at any time."""
    command = [sys.executable, "-m", "tests.acceptance.workspaces.machines", url, str(home), json.dumps(options)]
    running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    try:
        assert running.stdout is not None
        async with asyncio.timeout(60):
            assert await running.stdout.readline() == b"ready\n"
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def _work(url: str, home: str, options: dict[str, Any]) -> None:
    async with machine(url, Path(home), **options):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
