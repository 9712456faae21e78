"""Kipu's runtime as its figures use it: a scripted model, one small tool, a worker over a store in a directory."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.kipu_store import store_url
from bench.memory import Memory
from kipu import Session, SessionManager, UserMessageEvent, open_manager
from kipu.events.turn import TurnStartedEvent
from kipu.ports.model import ModelRequest
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.agent import Agent, AgentParts
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.tools.toolbox import Toolbox
from kipu.runtime.worker import Worker
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply

WARM_UP = 20
STEPS_A_TURN = 10


class LookTool:
    """Return a line at once."""

    spec = ToolSpec("look", "Looks.", {"type": "object"}, has_side_effect=False, default_policy="allow")

    def subject(self, arguments: JsonObject) -> str:
        return ""

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        return ToolPreview("look")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        return ToolResult("a line of output")

    async def aclose(self) -> None:
        return None


class Builder:
    """Build an agent with the model and the tool."""

    def __init__(self, manager: SessionManager, model: ScriptedModelClient) -> None:
        self._manager, self._model = manager, model

    async def build(self, session: Session) -> Agent:
        return Agent(session, AgentParts(self._model, Toolbox([LookTool()])), manager=self._manager)


@dataclass
class Place:
    """Everything in one process."""

    manager: SessionManager
    bus: MessageBus
    worker: Worker
    orchestrator: Orchestrator
    model: ScriptedModelClient

    async def say(self, chat: str, text: str = "Look at it, please.") -> str:
        message = InboundEvent(channel="bench", chat_id=chat, sender_id="ada", content=text)
        return (await self.bus.publish(message)).session_id


@asynccontextmanager
async def running(
    url: str,
    script: Callable[[ModelRequest], ScriptedReply],
    *,
    max_agents: int = 128,
    builder: type[Builder] = Builder,
    **limits: int,
) -> AsyncIterator[Place]:
    async with await open_manager(url) as manager:
        model = ScriptedModelClient(script)
        orchestrator = Orchestrator(manager, builder(manager, model), monotonic_s=time.monotonic, max_agents=max_agents)
        worker = Worker(manager, orchestrator, **limits)
        async with worker:
            yield Place(manager, MessageBus(manager, wake=worker.wake), worker, orchestrator, model)
        await orchestrator.close()


def first_event(directory: Path, *, store: str, count: int) -> dict[str, float]:
    """Measure a message to the first event of its turn, as one who follows the session sees it, and bare appends beside it."""
    return asyncio.run(_first_event(store_url(store, directory), count))


async def _first_event(url: str, count: int) -> dict[str, float]:
    async with running(url, lambda _request: ScriptedReply("Seen.")) as place:
        bare = await place.manager.get_or_create("bench:bare")
        session_id = await place.say("1")
        await place.worker.until_idle()
        started = await _StartWatch.of(await place.manager.open(session_id))
        bare_s: list[float] = []
        first_s: list[float] = []
        for number in range(count + WARM_UP):
            begun_s = time.perf_counter()
            await bare.add_event(UserMessageEvent(content="Look at it, please.", channel="bench", sender_id="ada"))
            bare_s.append(time.perf_counter() - begun_s)
            begun_s = time.perf_counter()
            await place.say("1")
            first_s.append(await started.next() - begun_s)
            await place.worker.until_idle()
            if number == WARM_UP:
                del bare_s[:], first_s[:]
        await started.close()
    bare_ms, first_ms = statistics.median(bare_s) * 1000, statistics.median(first_s) * 1000
    return {"bare_ms": bare_ms, "first_ms": first_ms, "over_ms": first_ms - bare_ms}


class _StartWatch:
    """Note when turns begin, as a follower sees them."""

    def __init__(self) -> None:
        self._times: asyncio.Queue[float] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def of(cls, session: Session) -> _StartWatch:
        watch = cls()
        watch._task = asyncio.ensure_future(watch._follow(session, session.head.last_seq))
        await asyncio.sleep(0.05)
        return watch

    async def _follow(self, session: Session, after: int) -> None:
        async for event in session.follow(after=after):
            if isinstance(event, TurnStartedEvent):
                self._times.put_nowait(time.perf_counter())

    async def next(self) -> float:
        return await self._times.get()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


def step_cpu(directory: Path, *, store: str, turns: int) -> dict[str, float]:
    """Measure the processor time of one step (a model call, its answer, one tool call and its result), all threads together."""
    url = "memory://" if store == "memory" else store_url(store, directory)
    return asyncio.run(_step_cpu(url, turns))


def _stepping(request: ModelRequest) -> ScriptedReply:
    results = 0
    for message in reversed(request.messages):
        if message["role"] == "user":
            break
        results += message["role"] == "tool"
    if results < STEPS_A_TURN:
        return ScriptedReply("Looking.", calls=[ScriptedCall("look", {"at": results})])
    return ScriptedReply("Seen.")


async def _step_cpu(url: str, turns: int) -> dict[str, float]:
    async with running(url, _stepping) as place:
        session_id = await place.say("1")
        await place.worker.until_idle()
        session = await place.manager.open(session_id)
        before = session.head.last_seq
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        for _ in range(turns):
            await place.say("1")
            await place.worker.until_idle()
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        await session.refresh()
        steps = turns * (STEPS_A_TURN + 1)
        events = session.head.last_seq - before
    return {"step_cpu_ms": cpu_s * 1000 / steps, "step_ms": wall_s * 1000 / steps, "events_a_step": events / steps}


def many(directory: Path, *, store: str, slow: int, short: int) -> dict[str, float]:
    """Run so many slow turns at once, short ones beside them, and say what a live and an idle session take."""
    return asyncio.run(_many(store_url(store, directory), slow=slow, short=short))


async def _many(url: str, *, slow: int, short: int) -> dict[str, float]:
    release = asyncio.Event()

    def script(request: ModelRequest) -> ScriptedReply:
        is_slow = request.messages[-1]["content"][0]["text"].startswith("slow")
        wait: Callable[[], Awaitable[object]] | None = release.wait if is_slow else None
        return ScriptedReply("Seen.", before=wait)

    async with running(url, script, max_turns=slow + 10, max_agents=slow + 10) as place:
        await place.say("warm")
        await place.worker.until_idle()
        memory = Memory()
        for number in range(slow):
            await place.say(f"slow-{number}", "slow one, please")
        while len(place.orchestrator) <= slow or len(place.worker.running) < slow:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)  # the last of them reach their model
        live_kb = _settled_mb(memory) * 1024 / slow
        at_once = len(place.worker.running)
        starts_s = [await _short_start(place, f"short-{number}") for number in range(short)]
        release.set()
        await place.worker.until_idle()
    return {
        "at_once": at_once,
        "short_start_ms": statistics.median(starts_s) * 1000,
        "short_worst_ms": max(starts_s) * 1000,
        "live_kb": live_kb,
    }


def idle(directory: Path, *, store: str, sessions: int) -> dict[str, float]:
    """Measure what each session that had its turn leaves in the process, once as many are kept as are kept at most."""
    return asyncio.run(_idle(store_url(store, directory, durability="os"), sessions))


async def _idle(url: str, sessions: int) -> dict[str, float]:
    async with running(url, lambda _request: ScriptedReply("Seen.")) as place:
        await _talk(place, 0, 500)
        memory = Memory()
        await _talk(place, 500, 500 + sessions)
        return {"idle_kb": _settled_mb(memory) * 1024 / sessions}


async def _talk(place: Place, start: int, end: int) -> None:
    for number in range(start, end):
        await place.say(f"chat-{number}")
        if number % 20 == 0:
            await place.worker.until_idle()
    await place.worker.until_idle()
    place.model.requests.clear()  # the scripted one remembers what it was asked


async def _short_start(place: Place, chat: str) -> float:
    """Return from the message to its turn's first event; a new session each, its making not counted."""
    session = await place.manager.get_or_create(f"bench:{chat}")
    watch = await _StartWatch.of(session)
    begun_s = time.perf_counter()
    await place.say(chat)
    took_s = await watch.next() - begun_s
    await watch.close()
    return took_s


def _settled_mb(memory: Memory) -> float:
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what is free goes back, so that only what is held counts
    return memory.grown()["rss_mb"]
