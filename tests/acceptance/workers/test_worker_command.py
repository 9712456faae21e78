"""`kipu worker`: any number of processes take the turns of one database (C22, A42, B61)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kipu.events.conversation import AgentMessageEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.manager.manager import SessionManager
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.wiring import open_manager
from tests.servers import fresh_schema, postgres_url


@asynccontextmanager
async def working(url: str, home: Path, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `kipu worker` as a process of its own, until the block ends."""
    environment = {**os.environ, "KIPU_MODEL": "demo", "HOME": str(home)}
    command = [str(Path(sys.executable).with_name("kipu")), "worker", "--store", url, "--json", *words]
    pipes = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipes, stderr=pipes, env=environment, cwd=home)
    try:
        async with asyncio.timeout(60):
            assert process.stdout is not None
            line = await process.stdout.readline()
        assert line, (await process.communicate())[1].decode()
        assert json.loads(line)["event"] == "ready"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def answered(manager: SessionManager, text: str, *, chat: str) -> AgentMessageEvent:
    """Say something and return what is answered, by whichever worker."""
    message = InboundEvent(channel="test", chat_id=chat, sender_id="ada", content=text)
    receipt = await MessageBus(manager).publish(message)
    session = await manager.open(receipt.session_id)
    answer: AgentMessageEvent | None = None
    async with asyncio.timeout(60):
        async for event in session.follow(after=receipt.seq):
            answer = event if isinstance(event, AgentMessageEvent) else answer
            if isinstance(event, TurnFinishedEvent):
                break
    assert answer is not None
    return answer


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def asked(port: int, path: str) -> str:
    """Return what a worker's health address answers."""
    with await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/{path}", timeout=10) as reply:
        return str(reply.read().decode())


async def test_worker_answers_what_another_process_was_told_and_ends_in_order(tmp_path: Path) -> None:
    """A message that one process took is answered by a worker elsewhere; SIGTERM ends it with 0 (C22, B61)."""
    url, port = fresh_schema(postgres_url()), free_port()
    async with (
        await open_manager(url) as manager,
        working(url, tmp_path, "--health", f"127.0.0.1:{port}") as process,
    ):
        answer = await answered(manager, "hello", chat="1")
        assert "hello" in str(answer.content)
        assert await asked(port, "readyz") == "ready\n"
        assert "kipu_worker_turns_served_total 1\n" in await asked(port, "metrics")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0


async def test_killed_workers_sessions_are_answered_by_the_next(tmp_path: Path) -> None:
    """After SIGKILL of one worker, another takes the same session's next message (C14, B61)."""
    url = fresh_schema(postgres_url())
    async with await open_manager(url) as manager:
        async with working(url, tmp_path) as first:
            await answered(manager, "one", chat="1")
            first.kill()
            await first.wait()
        async with working(url, tmp_path):
            assert "message 2" in str((await answered(manager, "two", chat="1")).content)
