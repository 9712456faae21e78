"""MCP servers as they are and as they misbehave: real child processes, and always a result."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kipu.context.content import is_usable
from kipu.events.content import MediaPart
from kipu.ports.principal import Principal
from kipu.ports.tool import ToolContext, ToolResult
from kipu.runtime.mcp.mcp_servers import McpServers, McpStatus
from kipu.runtime.mcp.server_config import McpServerConfig
from kipu.runtime.mcp.stdio_process import MARK
from kipu.runtime.tools.toolbox import Toolbox

SCRIPT = str(Path(__file__).with_name("mcp_server.py"))
GOOD = str(Path(__file__).with_name("mcp_good_server.py"))
WAIT_S = 60.0
SECRET = "s3cret-of-one-server"


@dataclass
class Rig:
    """The servers of one session, a clock that moves when told to, and what calls emitted."""

    servers: McpServers
    toolbox: Toolbox = field(default_factory=Toolbox)
    emitted: list[str] = field(default_factory=list)
    clock: list[float] = field(default_factory=lambda: [0.0])

    async def begin_turn(self) -> list[str]:
        await self.servers.update(self.toolbox, wait_s=WAIT_S)
        return self.toolbox.names

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        tool = self.toolbox.find(name)
        assert tool is not None, self.toolbox.names
        context = ToolContext("sess_a", "turn_a", "call_a", Principal.local(), emit=self.emitted.append)
        return await asyncio.wait_for(tool.run(arguments, context), 90)

    @property
    def status(self) -> McpStatus:
        return self.servers.status()[0]


def config(kind: str, *, name: str = "srv", **how: Any) -> McpServerConfig:
    args = (GOOD,) if kind == "good" else (SCRIPT, kind)
    return McpServerConfig(name=name, command=sys.executable, args=args, **{"connect_timeout_s": 30.0, **how})


@asynccontextmanager
async def rig(*configs: McpServerConfig, environment: Mapping[str, str] | None = None) -> AsyncIterator[Rig]:
    clock = [0.0]
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}"
    servers = McpServers(configs, environment=environment or os.environ, mark=mark, now=lambda: clock[0])
    made = Rig(servers, clock=clock)
    try:
        yield made
    finally:
        await servers.aclose()
    assert children_with(mark) == []


def children_with(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = entry.read_bytes()
        except OSError:
            continue
        if any(line.startswith(f"{MARK}=".encode()) and f"/{mark}-".encode() in line for line in text.split(b"\0")):
            found.append(int(entry.parent.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_mcp_tools_of_a_server_are_called_as_tools() -> None:
    """A server's tools carry names, schemas and results that window and providers take (C29)."""
    async with rig(config("good")) as one:
        names = await one.begin_turn()
        assert "mcp__srv__add" in names
        add = one.toolbox.find("mcp__srv__add")
        assert add is not None
        assert add.spec.parameters["required"] == ["a", "b"]
        assert (await one.call("mcp__srv__add", a=2, b=3)).content == "5"
        failed = await one.call("mcp__srv__fail")
        assert (failed.is_error, failed.error_info) == (True, "tool_error")
        assert "fail" in failed.content
        picture = (await one.call("mcp__srv__picture")).content
        assert [part["media_type"] for part in picture] == ["image/png"]
        assert is_usable(MediaPart.model_validate(picture[0]))
        wrong = await one.call("mcp__srv__add", a="x")
        assert wrong.is_error
        assert (await one.call("mcp__srv__slow", steps=3)).content == "done"
        assert one.emitted[:1] == ["step 1 (1/3)\n"]
        assert one.status.state.state == "ready"


async def test_mcp_hints_of_a_server_widen_nothing_unless_it_is_trusted() -> None:
    """Read-only and idempotent are a server's claim: its tools still ask, and never run again by themselves (A19, C14)."""
    async with rig(config("good"), config("good", name="ours", trust_hints=True, policy="allow")) as one:
        await one.begin_turn()
        claimed, trusted = one.toolbox.find("mcp__srv__fail"), one.toolbox.find("mcp__ours__fail")
        assert claimed is not None
        assert trusted is not None
        before = (claimed.spec.default_policy, claimed.spec.is_idempotent, claimed.spec.has_side_effect)
        assert before == ("ask", False, True)
        after = (trusted.spec.default_policy, trusted.spec.is_idempotent, trusted.spec.has_side_effect)
        assert after == ("allow", True, False)
        context = ToolContext("sess_a", "turn_a", "call_a", Principal.local())
        assert "the server says: idempotent, read-only" in (await claimed.preview({"a": 1}, context)).summary


async def test_mcp_credentials_are_in_the_environment_of_their_server_only() -> None:
    """Neither another server nor this process's own environment lends a server a credential (A19)."""
    mine = {**os.environ, "OPENAI_API_KEY": SECRET}
    with_key = config("good", name="with_key", env={"TOKEN": SECRET})
    async with rig(with_key, config("good", name="without"), environment=mine) as one:
        await one.begin_turn()
        seen = {name: await one.call(f"mcp__{name}__environment") for name in ("with_key", "without")}
    parsed = {name: json.loads(result.content) for name, result in seen.items()}
    assert parsed["with_key"]["TOKEN"] == SECRET
    assert "TOKEN" not in parsed["without"]
    assert all("OPENAI_API_KEY" not in each for each in parsed.values())
    assert SECRET not in repr(with_key)
    assert SECRET not in json.dumps(with_key.to_json())


async def test_mcp_server_that_dies_in_a_call_is_started_again_by_the_next() -> None:
    """A death is a result that says what is not known; the next call finds a fresh server, later ones wait longer (C29)."""
    async with rig(config("good")) as one:
        await one.begin_turn()
        pid = one.status.state.pid
        died = await one.call("mcp__srv__die")
        assert (died.is_error, died.error_info) == (True, "died")
        assert "exit code 3" in died.content
        assert "not known" in died.content
        assert (await one.call("mcp__srv__add", a=1, b=1)).content == "2"
        assert one.status.state.restarts == 1
        assert one.status.state.pid not in (None, pid)
        assert await one.begin_turn()


async def test_mcp_server_that_keeps_dying_is_restarted_ever_later() -> None:
    """A second death without a success between waits before the next start, and says how long (C29)."""
    async with rig(config("half")) as one:
        await one.begin_turn()
        kinds = [(await one.call("mcp__srv__go")).error_info for _ in range(3)]
        assert kinds == ["died", "died", "unavailable"]
        one.clock[0] += 1.1
        kinds = [(await one.call("mcp__srv__go")).error_info for _ in range(2)]
        assert kinds == ["died", "unavailable"]
        one.clock[0] += 1.1
        assert (await one.call("mcp__srv__go")).error_info == "unavailable"
        one.clock[0] += 1.1
        assert (await one.call("mcp__srv__go")).error_info == "died"


async def test_mcp_close_ends_a_server_and_everything_it_started() -> None:
    """After the end no process is left: not one that ignores SIGTERM, nor a grandchild that left the group (B49)."""
    async with rig(config("good"), config("stubborn", name="stubborn")) as one:
        await one.begin_turn()
        child = int((await one.call("mcp__srv__leave_child")).content)
        assert (await one.call("mcp__stubborn__go")).content == "ok"
        pids = [status.state.pid for status in one.servers.status()]
        assert all(is_running(pid) for pid in (child, *pids) if pid is not None)
    assert not any(is_running(pid) for pid in (child, *pids) if pid is not None)
    await one.servers.aclose()
    assert {status.state.state for status in one.servers.status()} == {"closed"}
    assert (await one.call("mcp__stubborn__go")).error_info == "closed"


ORPHANING = """
import asyncio, os, sys
from kipu.runtime.mcp.mcp_servers import McpServers
from kipu.runtime.mcp.server_config import McpServerConfig
from kipu.runtime.tools.toolbox import Toolbox

async def main():
    config = McpServerConfig("srv", sys.executable, (sys.argv[1], "stubborn"))
    servers = McpServers([config], environment=os.environ, mark="orphan", now=lambda: 0.0)
    await servers.update(Toolbox(), wait_s=60)
    print(servers.status()[0].state.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_mcp_servers_of_a_killed_process_are_ended_by_the_next_one() -> None:
    """A server that outlives a SIGKILL of Kipu, deaf to its closed input, goes when Kipu next uses servers (B49)."""
    killed = subprocess.Popen([sys.executable, "-c", ORPHANING, SCRIPT], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    orphan = int(await asyncio.to_thread(killed.stdout.readline))
    async with rig(config("stubborn")) as other:
        await other.begin_turn()
        assert is_running(orphan)
        killed.kill()
        killed.wait()
        killed.stdout.close()
        async with rig(config("stubborn")) as next_:
            await next_.begin_turn()
            assert not is_running(orphan)
            assert (await other.call("mcp__srv__go")).content == "ok"


async def test_mcp_cancelled_call_leaves_the_server_usable() -> None:
    """A cancelled call ends at once; the connection is there for the next one, and ends with the session (B49)."""
    async with rig(config("mute"), config("good", name="good")) as one:
        await one.begin_turn()
        calling = asyncio.create_task(one.call("mcp__srv__go"))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert one.servers.status()[0].state.state == "ready"
        assert (await one.call("mcp__good__add", a=1, b=2)).content == "3"


@pytest.mark.parametrize("kind", ["gone", "garbage", "endless", "no_list"])
async def test_mcp_server_that_cannot_be_used_has_no_tools_and_says_why(kind: str) -> None:
    """A server that ends, floods or lists nonsense costs its own tools only, and its state tells people why (C29)."""
    async with rig(config(kind), config("stubborn", name="fine")) as one:
        assert await one.begin_turn() == ["mcp__fine__go"]
        state = one.status.state
        assert (state.state, state.pid) == ("failed", None)
        expected = {"gone": "no licence", "garbage": "no message", "endless": "8 MB", "no_list": "cannot be read"}
        assert expected[kind] in state.reason


async def test_mcp_command_that_does_not_exist_is_a_state_and_no_error() -> None:
    """A command that cannot be started says so and disturbs no turn (C29)."""
    async with rig(McpServerConfig(name="srv", command="/nowhere/at-all")) as one:
        assert await one.begin_turn() == []
        assert "cannot be started" in one.status.state.reason


async def test_mcp_server_that_never_answers_is_given_up() -> None:
    """Neither connecting nor closing waits longer than it may for a server that says nothing (C29)."""
    async with rig(config("silent", connect_timeout_s=1.0)) as one:
        assert await one.begin_turn() == []
        assert "did not connect in 1 s" in one.status.state.reason


async def test_mcp_turn_does_not_wait_for_a_slow_server() -> None:
    """A turn begins without a server that takes too long; it may still come with a later turn (C29)."""
    async with rig(config("silent", connect_timeout_s=600.0), config("stubborn", name="fine")) as one:
        for _turn in range(12):  # the other one begins as soon as the machine lets it
            started = time.monotonic()
            await one.servers.update(one.toolbox, wait_s=5.0)
            assert time.monotonic() - started < 60
            if one.toolbox.names:
                break
        assert one.toolbox.names == ["mcp__fine__go"]
        assert one.status.state.state == "connecting"


async def test_mcp_call_that_is_never_answered_times_out() -> None:
    """A call without an answer is a result after its time; after two of them the server is started afresh (C29)."""
    async with rig(config("mute", call_timeout_s=0.3)) as one:
        await one.begin_turn()
        for _ in range(3):
            result = await one.call("mcp__srv__go")
            assert (result.is_error, result.error_info) == (True, "timeout")
            assert "0.3 s" in result.content
        assert one.status.state.restarts == 1


@pytest.mark.parametrize(
    ("kind", "error_info", "words"),
    [
        ("huge", "died", "8 MB"),
        ("shape", "unreadable", "cannot be read"),
        ("refusing", "refused", "not today"),
        ("half", "died", "exit code 1"),
        ("stranger", "timeout", "did not answer"),
    ],
)
async def test_mcp_answer_that_is_none_is_an_error_result(kind: str, error_info: str, words: str) -> None:
    """Whatever comes instead of an answer, the model is told, and no exception leaves the tool (C29)."""
    timeout_s = 1.0 if kind == "stranger" else 60.0
    async with rig(config(kind, call_timeout_s=timeout_s)) as one:
        await one.begin_turn()
        result = await one.call("mcp__srv__go")
        assert (result.is_error, result.error_info) == (True, error_info)
        assert words in result.content


@pytest.mark.parametrize("kind", ["binary", "flood", "asking", "big", "shouting"])
async def test_mcp_answer_among_noise_is_still_found(kind: str) -> None:
    """Bytes that are no text, 30 000 notifications, requests nobody serves and much text cost the answer nothing (C29)."""
    async with rig(config(kind)) as one:
        await one.begin_turn()
        result = await one.call("mcp__srv__go")
        assert not result.is_error
        if kind == "big":
            assert len(result.content) < 2_100_000
            assert "characters left out" in result.content
        else:
            assert result.content == "ok"
        assert len(one.emitted) <= 500


async def test_mcp_server_that_lies_about_its_schemas_breaks_no_request() -> None:
    """Names and schemas are such that providers and validators take them, whatever the server wrote (C29)."""
    async with rig(config("liar")) as one:
        names = await one.begin_turn()
        assert len(names) == 11
        for definition in one.toolbox.definitions():
            assert set(definition["name"]) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
            assert len(definition["name"]) <= 64
            assert definition["parameters"]["type"] == "object"
            assert not {"anyOf", "$ref"} & set(definition["parameters"])
            assert len(json.dumps(definition)) < 40_000
            assert "\x1b" not in definition["description"]
            assert one.toolbox.validate(definition["name"], {"a": "x"}) == []
        result = await one.call("mcp__srv__go")
        assert "not a number" in result.content
        assert "1 tools it lists cannot be read" in one.status.problems
        assert any("listed twice" in problem for problem in one.status.problems)


async def test_mcp_list_without_end_is_cut() -> None:
    """A server that lists page after page gives the tools of the first ones (C29)."""
    async with rig(config("pages")) as one:
        assert len(await one.begin_turn()) == 50


@pytest.mark.parametrize("kind", ["changing", "good"])
async def test_mcp_tools_change_between_turns_only(kind: str) -> None:
    """A changed list leaves the running turn's tools alone; the next has the new ones, and what is the same stays (C9, C29)."""
    async with rig(config(kind)) as one:
        before = await one.begin_turn()
        shown = one.toolbox.definitions()
        steady = one.toolbox.find("mcp__srv__steady" if kind == "changing" else "mcp__srv__add")
        await one.call("mcp__srv__go" if kind == "changing" else "mcp__srv__change")
        assert one.toolbox.definitions() == shown
        async with asyncio.timeout(60):
            while (after := await one.begin_turn()) == before:  # noqa: ASYNC110 - the news comes in its own time
                await asyncio.sleep(0.02)
        if kind == "changing":
            assert after == ["mcp__srv__steady", "mcp__srv__go", "mcp__srv__more"]
        else:
            assert (set(before) - set(after), set(after) - set(before)) == (
                {"mcp__srv__picture"},
                {"mcp__srv__added"},
            )
        assert steady is one.toolbox.find("mcp__srv__steady" if kind == "changing" else "mcp__srv__add")


async def test_mcp_sessions_have_connections_of_their_own() -> None:
    """Two sessions with the same server have a process each, and the end of one leaves the other's (B39, B40)."""
    async with rig(config("stubborn")) as one:
        await one.begin_turn()
        async with rig(config("stubborn")) as other:
            await other.begin_turn()
            assert one.status.state.pid != other.status.state.pid
        assert (await one.call("mcp__srv__go")).content == "ok"


async def test_mcp_servers_start_only_when_a_turn_needs_them() -> None:
    """Opening a session starts no server (B40)."""
    async with rig(config("stubborn")) as one:
        assert (one.status.state.state, one.status.state.pid) == ("off", None)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until_open(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            await writer.wait_closed()
            return


async def test_mcp_server_over_http_is_called_and_found_again_after_a_restart() -> None:
    """A server at a URL works like one with a command, and a call after its restart connects again (C29)."""
    port = free_port()
    command = [sys.executable, GOOD, str(port)]
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    try:
        await until_open(port)
        at = McpServerConfig(name="web", url=f"http://127.0.0.1:{port}/mcp", call_timeout_s=20, connect_timeout_s=20)
        async with rig(at) as one:
            assert "mcp__web__add" in await one.begin_turn()
            assert (await one.call("mcp__web__add", a=2, b=2)).content == "4"
            server.kill()
            server.wait()
            gone = await one.call("mcp__web__add", a=2, b=2)
            assert gone.is_error
            server = subprocess.Popen(command, stdout=quiet, stderr=quiet)
            await until_open(port)
            one.clock[0] += 100
            assert (await one.call("mcp__web__add", a=2, b=2)).content == "4"
    finally:
        server.kill()
        server.wait()


HOSTILE_HTTP = {
    "html": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello",
    "huge": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b" " * 12_000_000,
    "zipped": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    "teapot": b"HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\n\r\n",
    "elsewhere": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
    "nothing": b"",
    "silence": b"",
}


@pytest.mark.parametrize("kind", HOSTILE_HTTP)
async def test_mcp_url_that_answers_nonsense_is_a_state_and_no_error(kind: str) -> None:
    """Pages, floods, redirects, hang-ups and silence at a URL cost that server's tools only (C29)."""
    held: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if kind == "silence":
            held.append(writer)
            return
        try:
            writer.write(HOSTILE_HTTP[kind])
            await writer.drain()
        except OSError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        at = McpServerConfig(name="web", url=f"http://127.0.0.1:{port}/mcp", connect_timeout_s=3, call_timeout_s=3)
        async with rig(at) as one:
            assert await one.begin_turn() == []
            assert one.status.state.state == "failed"
            assert one.status.state.reason
    finally:
        for writer in held:
            writer.close()
        server.close()
        await server.wait_closed()


async def test_mcp_headers_go_to_their_server_only() -> None:
    """What one URL's configuration sends reaches no other, also not where the server points elsewhere (A19)."""
    heads: dict[int, list[bytes]] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        heads.setdefault(port, []).append(await reader.readuntil(b"\r\n\r\n"))
        other = next(each for each in ports if each != port)
        place = f"Location: http://127.0.0.1:{other}/mcp\r\n".encode()
        writer.write(b"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nConnection: close\r\n" + place + b"\r\n")
        await writer.drain()
        writer.close()

    both = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(2)]
    ports = [server.sockets[0].getsockname()[1] for server in both]
    try:
        configs = [
            McpServerConfig(
                f"web{port}",
                url=f"http://127.0.0.1:{port}/mcp",
                headers={"Authorization": f"Bearer for-{port}"},
                connect_timeout_s=60,
            )
            for port in ports
        ]
        async with rig(*configs) as one:
            assert await one.begin_turn() == []
        for port in ports:
            assert heads[port]
            assert all(f"Bearer for-{port}".encode() in head and head.count(b"Bearer") == 1 for head in heads[port])
    finally:
        for server in both:
            server.close()
            await server.wait_closed()
