"""Stop, approve, deny, answer, queue, status and send from a process that runs no turn, with two workers elsewhere (C13, B61)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kipu import open_manager
from kipu.events.conversation import AgentMessageEvent, ToolResultEvent, ToolStartedEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import (
    ApprovalRequestEvent,
    StopRequestedEvent,
    TurnFinishedEvent,
    TurnParkedEvent,
    TurnResumedEvent,
    TurnStartedEvent,
)
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from tests.acceptance.lost_time import counting_lost_time
from tests.servers import fresh_schema, postgres_url

WITHIN_S = 5.0  # a tenth of it on a machine that does nothing else


@pytest.fixture(params=["notices", "pooler"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a database whose notices get through, and one behind a pooler that swallows them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    settings = {} if request.param == "notices" else {"notify": "off", "prepare": "off"}
    return fresh_schema(postgres_url(), **settings)


@asynccontextmanager
async def workers(url: str, folder: Path, count: int = 2) -> AsyncIterator[None]:
    """Run workers as processes of their own."""
    script = str(Path(__file__).with_name("slow_worker.py"))
    async with AsyncExitStack() as stack:
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(
                sys.executable, script, url, str(folder / "work"), stdout=asyncio.subprocess.PIPE
            )
            stack.push_async_callback(_end, process)
            assert process.stdout is not None
            async with asyncio.timeout(60):
                assert await process.stdout.readline() == b"ready\n"
        yield


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    async with asyncio.timeout(60):
        await process.communicate()


async def kipu(url: str, *words: str) -> Any:
    """Run a command as a process of its own, and return what it says as JSON."""
    command = [str(Path(sys.executable).with_name("kipu")), *words, "--json"]
    pipe = asyncio.subprocess.PIPE
    environment = {**os.environ, "KIPU_STORE": url, "KIPU_MODEL": "demo"}
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environment)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    found = [json.loads(line) for line in out.decode().splitlines()]
    return found[0] if len(found) == 1 else found


async def told(manager: SessionManager, text: str) -> Session:
    """Say something in a session of its own."""
    message = InboundEvent(channel="test", chat_id=text, sender_id="ada", content=text)
    return await manager.open((await MessageBus(manager).publish(message)).session_id)


async def until(session: Session, kind: type[SessionEvent]) -> Any:
    """Return the first event of a type."""
    async with asyncio.timeout(60):
        async for event in session.follow():
            if isinstance(event, kind):
                return event
    raise AssertionError("the session ended")


def sleeping() -> list[str]:
    """Return the processes that the shell command of a worker has left."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if place.read_bytes().startswith(b"sleep\x00987\x00"):
                found.append(place.parent.name)
    return found


async def test_stop_from_elsewhere_ends_a_model_call_that_streams(url: str, tmp_path: Path) -> None:
    """A turn in the middle of an answer ends at once at `kipu stop` elsewhere, and keeps what had come (C13, B61)."""
    async with await open_manager(url) as manager, workers(url, tmp_path), counting_lost_time() as lost_s:
        session = await told(manager, "please speak")
        started = await until(session, TurnStartedEvent)
        assert (await kipu(url, "status", session.session_id))["state"] == "running"
        sent = await kipu(url, "send", session.session_id, "and then shortly")
        (waiting,) = await kipu(url, "queue", session.session_id)
        assert waiting["seq"] == sent["seq"]
        await kipu(url, "queue", session.session_id, "cancel", str(sent["seq"]))
        stopped = await kipu(url, "stop", session.session_id)
        assert stopped == {"session_id": session.session_id, "turn_id": started.turn_id, "outcome": "cancelled"}
        asked, ended = await until(session, StopRequestedEvent), await until(session, TurnFinishedEvent)
        assert (ended.timestamp - asked.timestamp).total_seconds() < WITHIN_S + lost_s()
        assert (await until(session, AgentMessageEvent)).state == "interrupted"
        assert (await kipu(url, "status", session.session_id))["state"] == "idle"


async def test_call_is_approved_and_its_processes_are_stopped_from_elsewhere(url: str, tmp_path: Path) -> None:
    """`kipu approve` elsewhere lets a parked call run; `kipu stop` there ends its whole process group at once (C15, C13)."""
    async with await open_manager(url) as manager, workers(url, tmp_path), counting_lost_time() as lost_s:
        session = await told(manager, "please shell")
        request = await until(session, ApprovalRequestEvent)
        assert (await kipu(url, "status", session.session_id))["state"] == "parked"
        await kipu(url, "approve", request.approval_id)
        await until(session, ToolStartedEvent)
        async with asyncio.timeout(60):
            while not sleeping():  # noqa: ASYNC110 - another process starts it
                await asyncio.sleep(0.01)
        assert (await kipu(url, "stop", session.session_id))["outcome"] == "cancelled"
        asked, ended = await until(session, StopRequestedEvent), await until(session, TurnFinishedEvent)
        assert (ended.timestamp - asked.timestamp).total_seconds() < WITHIN_S + lost_s()
        assert not sleeping()


async def test_parked_turns_are_denied_answered_and_stopped_from_elsewhere(url: str, tmp_path: Path) -> None:
    """Denied, answered, or stopped from elsewhere, a parked turn goes on in a worker, or ends at once (C13, C15)."""
    async with await open_manager(url) as manager, workers(url, tmp_path), counting_lost_time() as lost_s:
        denied, asked, left = [await told(manager, text) for text in ("please shell", "now ask", "again shell")]
        await kipu(url, "deny", (await until(denied, ApprovalRequestEvent)).approval_id, "--reason", "not today")
        await kipu(url, "answer", (await until(asked, ApprovalRequestEvent)).approval_id, "blue")
        assert "not today" in str((await until(denied, ToolResultEvent)).result)
        assert "blue" in str((await until(asked, ToolResultEvent)).result)
        for session in (denied, asked):
            assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        await until(left, TurnParkedEvent)
        assert (await kipu(url, "stop", left.session_id))["outcome"] == "cancelled"
        wish, ended = await until(left, StopRequestedEvent), await until(left, TurnFinishedEvent)
        assert (ended.timestamp - wish.timestamp).total_seconds() < WITHIN_S + lost_s()
        assert (await until(left, TurnResumedEvent)).worker != manager.owner
