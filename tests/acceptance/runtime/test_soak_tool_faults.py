"""What tools do to a turn, and a turn does about it, with the real coding tools: the turn ends well, and so does the next."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.ports.model import ModelRequest
from kipu.runtime.agent_builder import AgentSettings
from kipu.runtime.mcp.server_config import McpServerConfig
from kipu.runtime.runtime import Runtime
from kipu.runtime.sandbox.probe import probe_bubblewrap
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply, results_of, texts_of
from kipu.wiring import open_manager, open_runtime
from tests.acceptance.runtime.fakes import of_type
from tests.acceptance.runtime.shell_session import alive, new_token
from tests.acceptance.runtime.soak_check import SoakLog, windows_refused

SERVER = Path(__file__).parent / "mcp_good_server.py"


def calling(calls: Callable[[str], list[ScriptedCall]]) -> Any:
    """Return a model that makes the calls for a message, then says so."""

    def answer(request: ModelRequest) -> ScriptedReply:
        if results_of(request):
            return ScriptedReply("Done.")
        return ScriptedReply("On it.", calls=calls(texts_of(request)[-1]))

    return answer


async def told(run: Runtime, text: str) -> list[ToolResultEvent]:
    """Say something, allow whatever is asked, and return the turn's results; the log has to be in order."""
    session = await run.manager.get_or_create("test:1")
    before = len(await of_type(session, ToolResultEvent))
    await session.add_event(UserMessageEvent(content=text, queued=True, busy={"mode": "followup"}))
    run.worker.wake(session.session_id)
    await run.worker.until_idle()
    while session.head.open_turn is not None:
        for waiting in await run.desk.pending(session_id=session.session_id):
            await run.desk.approve(waiting.approval_id)
        await run.worker.until_idle()
    assert SoakLog(await session.get_full_history()).problems == []
    assert await windows_refused(session) == []
    assert [event.outcome for event in await of_type(session, TurnFinishedEvent)][-1] == "completed"
    assert (await of_type(session, AgentMessageEvent))[-1].content == "Done."
    return (await of_type(session, ToolResultEvent))[before:]


FAULTS = {
    "hangs": ("sleep 600 # {token}", {"timeout_s": 1}, "1.0 s"),
    "forks": ("for i in 1 2 3 4; do (exec -a {token} sleep 600 &) ; done; setsid sleep 601 & echo off", {}, "off"),
    "floods": ("yes {token} | head -c 30000000", {}, "{token}"),
    "kills its group": ("kill -9 0; kill -9 -1; kill -9 $PPID; kill -9 {pid}", {}, ""),
    "writes outside": ("echo x > {outside} && echo written; echo $?", {}, ""),
    "fills the disk": ("truncate -s 5G big 2>&1; echo said $?", {}, ""),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_turn_goes_on_after_a_command_that_errs(tmp_path: Path, fault: str) -> None:
    """The command ends, its result is shown to the model, nothing of it is left, and the next turn works (A41, B49, C29)."""
    token, outside = new_token(), tmp_path / "outside"
    probe = await probe_bubblewrap()
    if fault in ("writes outside", "kills its group") and probe.path is None:
        pytest.skip(f"only bubblewrap keeps commands from what is outside: {probe.reason}")
    line, more, word = FAULTS[fault]
    command = line.format(token=token, outside=outside, pid=os.getpid())

    def calls(text: str) -> list[ScriptedCall]:
        return [ScriptedCall("shell", {"command": command, **more} if text == "err" else {"command": "echo well"})]

    model = ScriptedModelClient(calling(calls))
    async with await open_manager(f"sqlite:///{tmp_path}/s.db") as manager:
        settings = AgentSettings(tmp_path / "workspaces")
        async with open_runtime(manager, settings=settings, open_model=lambda _name: model) as run:
            (result,) = await told(run, "err")
            assert word.format(token=token) in str(result.result)
            assert len(str(result.result)) < 100_000
            assert not alive(token)
            assert not outside.exists()
            (result,) = await told(run, "be good")
            assert "well" in str(result.result)
            for path in (tmp_path / "workspaces").rglob("big"):
                assert path.stat().st_size < 4 * 2**30


async def test_turn_goes_on_when_its_server_dies_in_the_middle(tmp_path: Path) -> None:
    """A call whose server died is an error result, the others of the answer run, and the next turn has it again (B43, C29)."""
    server = McpServerConfig("tools", command=sys.executable, args=(str(SERVER),), policy="allow")
    names: list[str] = []

    def calls(text: str) -> list[ScriptedCall]:
        die = next(name for name in names if name.endswith("die"))
        picture = next(name for name in names if name.endswith("picture"))
        return [ScriptedCall(die if text == "err" else picture), ScriptedCall("shell", {"command": "echo well"})]

    answer = calling(calls)

    def script(request: ModelRequest) -> ScriptedReply:
        names[:] = [str(tool["name"]) for tool in request.tools]
        reply: ScriptedReply = answer(request)
        return reply

    model = ScriptedModelClient(script)
    async with await open_manager(f"sqlite:///{tmp_path}/s.db") as manager:
        settings = AgentSettings(tmp_path / "workspaces", servers=(server,))
        async with open_runtime(manager, settings=settings, open_model=lambda _name: model) as run:
            died, shell = await told(run, "err")
            assert died.is_error
            assert "well" in str(shell.result)
            picture, shell = await told(run, "be good")
            assert (picture.is_error, shell.is_error) == (False, False)
        session = await manager.get_or_create("test:1")
        assert len(await of_type(session, ToolCallEvent)) == 4
