"""`kipu worker`: any number of processes take the turns of one database (C22, A42, B61)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kipu.events.conversation import AgentMessageEvent, ToolStartedEvent
from kipu.events.turn import TurnFinishedEvent, TurnResumedEvent
from kipu.manager.lock import DEFAULT_TTL_S
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.runtime.approvals import ApprovalDesk
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.wiring import open_manager
from tests.acceptance.lost_time import counting_lost_time
from tests.acceptance.postgres.kit import own_server
from tests.acceptance.runtime.fakes import until as until_event
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
    """Return what a worker's health address answers, whether it is well or not."""
    return (await looked(port, path))[1]


async def looked(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    try:
        reply = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/{path}", timeout=60)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    with reply:
        return int(reply.status), str(reply.read().decode())


async def is_ready(port: int, expected: bool) -> None:
    """Wait until a worker says that it is ready, or that it is not; that it lives, it says all the while."""
    async with asyncio.timeout(60):
        while (await looked(port, "readyz"))[0] != (200 if expected else 503):
            assert await looked(port, "healthz") == (200, "ok\n")
            await asyncio.sleep(0.05)


async def figures(port: int) -> dict[str, float]:
    """Return a worker's metrics by their names."""
    lines = (await asked(port, "metrics")).splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}


async def served(port: int, count: int) -> dict[str, float]:
    """Wait until a worker has counted so many turns and return its metrics: a turn counts when its lease is given back."""
    async with asyncio.timeout(60):
        while (found := await figures(port))["kipu_worker_turns_served_total"] < count:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.05)
    assert found["kipu_worker_turns_served_total"] == count
    return found


async def long_turn(manager: SessionManager, *, chat: str) -> Session:
    """Begin a turn that takes a minute: a command that was allowed."""
    text = "run `sleep 61.75`"
    receipt = await MessageBus(manager).publish(
        InboundEvent(channel="test", chat_id=chat, sender_id="ada", content=text)
    )
    session = await manager.open(receipt.session_id)
    desk = ApprovalDesk(manager)
    async with asyncio.timeout(60):
        while not (pending := await desk.pending()):  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.05)
    await desk.approve(pending[0].approval_id, session_id=session.session_id)
    await until_event(session, ToolStartedEvent)
    return session


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
        await served(port, 1)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
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


async def test_draining_worker_is_not_ready_and_hands_over_at_once(tmp_path: Path) -> None:
    """Told to end it begins nothing and says so; told again it gives its turn away, long before the lease ends (C14, B61)."""
    url, port = fresh_schema(postgres_url()), free_port()
    async with (
        await open_manager(url) as manager,
        working(url, tmp_path, "--health", f"127.0.0.1:{port}", "--drain-s", "600") as leaving,
    ):
        session = await long_turn(manager, chat="1")
        async with working(url, tmp_path):
            leaving.send_signal(signal.SIGTERM)
            await is_ready(port, expected=False)
            assert (await figures(port))["kipu_worker_draining"] == 1
            assert (await figures(port))["kipu_worker_turns_running"] == 1
            assert "two" in str((await answered(manager, "two", chat="2")).content)  # by the other one
            async with counting_lost_time() as lost_s:
                told_s = time.monotonic()
                leaving.send_signal(signal.SIGTERM)
                await until_event(session, TurnResumedEvent)
                assert time.monotonic() - told_s < DEFAULT_TTL_S / 2 + lost_s()
            async with asyncio.timeout(60):
                assert await leaving.wait() == 0


async def test_worker_whose_address_is_taken_says_so(tmp_path: Path) -> None:
    """An address for checks that somebody else has is an error that names it, and no worker begins (C22)."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [str(Path(sys.executable).with_name("kipu")), "worker", "--store", f"sqlite:///{tmp_path}/s.db"]
        pipe = asyncio.subprocess.PIPE
        environment = {**os.environ, "KIPU_MODEL": "demo", "HOME": str(tmp_path)}
        process = await asyncio.create_subprocess_exec(*command, "--health", where, stderr=pipe, env=environment)
        assert where in (await process.communicate())[1].decode()
        assert process.returncode == 2


async def test_worker_without_its_database_is_alive_and_not_ready(tmp_path: Path) -> None:
    """While the database is gone a worker lives, says that it takes nothing, and goes on by itself afterwards (C16, B61)."""
    with own_server() as server:
        url, port = fresh_schema(server.url), free_port()
        async with working(url, tmp_path, "--health", f"127.0.0.1:{port}"):
            await is_ready(port, expected=True)
            await asyncio.to_thread(server.stop, "fast")
            await is_ready(port, expected=False)
            assert (await figures(port))["kipu_worker_store_reachable"] == 0
            await asyncio.to_thread(server.start)
            await is_ready(port, expected=True)
            async with await open_manager(url) as manager:
                assert "again" in str((await answered(manager, "again", chat="1")).content)
            found = await served(port, 1)
    assert found["kipu_worker_claims_total"] >= 1
    assert {"kipu_worker_sessions_due", "kipu_worker_claims_held_total", "kipu_worker_turns_fenced_total"} <= set(found)
