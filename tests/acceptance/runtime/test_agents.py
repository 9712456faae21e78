"""Agents of sessions: their own tools and files, restored from their events, bounded, closed with all they hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import ConfigurationError, ModelNameError, SessionNotFoundError
from kipu.events.conversation import ToolResultEvent, UserMessageEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.model import ModelRequest
from kipu.ports.principal import Principal
from kipu.runtime.agent_builder import AgentSettings
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.policy.policy_rule import PolicyRule
from kipu.runtime.policy.tool_policy import PolicyLayer
from kipu.runtime.runtime import Runtime
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager, open_runtime
from tests.acceptance.runtime.fakes import FunctionTool, OneModelBuilder, of_type, runtime, until


def calling(name: str, **arguments: Any) -> Any:
    """A model that makes one call per message, then says so."""

    def answer(request: ModelRequest) -> Any:
        if request.messages[-1]["role"] == "tool":
            return "Done."
        return ScriptedReply(calls=[ScriptedCall(name, arguments)])

    return answer


def coding(manager: SessionManager, place: Path, script: Any, **settings: Any) -> Runtime:
    model = ScriptedModelClient(script)
    return open_runtime(
        manager, settings=AgentSettings(place / "workspaces", **settings), open_model=lambda _name: model
    )


async def say(run: Runtime, session: Session, text: str) -> None:
    await session.add_event(UserMessageEvent(content=text, queued=True))
    run.worker.wake(session.session_id)
    await run.worker.until_idle()


async def allow_all(run: Runtime, session: Session) -> None:
    """Allow whatever is asked until the turn has ended."""
    while session.head.open_turn is not None:
        for waiting in await run.desk.pending(session_id=session.session_id):
            await run.desk.approve(waiting.approval_id)
        await run.worker.until_idle()


async def test_same_session_has_the_same_agent_and_a_missing_one_is_made() -> None:
    """One agent per session; a session that is missing is made under the id that was asked for (B39, B42)."""
    async with runtime(ScriptedModelClient([])) as run:
        agent = await run.orchestrator.get_or_create_agent_for_session("my-session")
        assert agent.session.session_id == "my-session"
        assert await run.orchestrator.get_or_create_agent_for_session("my-session") is agent
        other = await run.orchestrator.get_or_create_agent_for_session("other")
        assert other.parts.toolbox is not agent.parts.toolbox
        assert run.builder.built == 2


async def test_switch_begins_nothing() -> None:
    """Switching to a session that is not there is an error, and makes none (B43)."""
    async with runtime(ScriptedModelClient([])) as run:
        with pytest.raises(SessionNotFoundError):
            await run.orchestrator.switch_to_session("nowhere")
        assert [head async for head in run.manager.heads()] == []


async def test_agent_is_built_anew_when_what_it_is_made_of_changes() -> None:
    """A changed setting holds from the next turn on; the old agent is closed (B37, B43, B49)."""
    tool = FunctionTool("look")
    async with runtime(ScriptedModelClient([]), tool) as run:
        session = await run.session()
        first = await run.orchestrator.switch_to_session(session.session_id)
        await session.set_metadata(env={"A": "1"})
        second = await run.orchestrator.switch_to_session(session.session_id)
        assert second is not first
        assert tool.closed == 1


async def test_agents_are_bounded_and_none_in_use_is_closed() -> None:
    """Beyond the bound the least recently used idle agent goes; one that works stays (B45)."""
    model = ScriptedModelClient(
        lambda request: ScriptedReply("slow", hold_after=0) if "slow" in str(request.messages) else "ok"
    )
    async with await open_manager("memory://") as manager:
        builder = OneModelBuilder(manager, model, lambda: [FunctionTool("look")])
        now_s = 0.0
        orchestrator = Orchestrator(manager, builder, max_agents=2, idle_s=100, monotonic_s=lambda: now_s)
        sessions = [await manager.get_or_create(f"test:{number}") for number in range(4)]
        async with orchestrator.using(sessions[0]):
            for session in sessions[1:]:
                await orchestrator.switch_to_session(session.session_id)
            assert len(orchestrator) == 2
            assert not await orchestrator.cleanup_session(sessions[0].session_id), "it is in use"
        now_s = 1_000.0
        assert await orchestrator.evict_idle() == 2
        assert len(orchestrator) == 0


async def test_files_of_one_session_are_invisible_to_another(tmp_path: Path) -> None:
    """Each session has a directory of its own unless somebody chose one (B41, A4)."""
    async with await open_manager("memory://") as manager:
        async with coding(manager, tmp_path, calling("write_file", path="secret.txt", content="mine")) as run:
            first = await manager.get_or_create("test:1")
            await say(run, first, "write it")
            await allow_all(run, first)
        async with coding(manager, tmp_path, calling("read_file", path="secret.txt")) as run:
            second = await manager.get_or_create("test:2")
            await say(run, second, "read it")
            (result,) = await of_type(second, ToolResultEvent)
            assert result.is_error
            await say(run, first, "read it")
            assert "mine" in str((await of_type(first, ToolResultEvent))[-1].result)
        assert first.head.workspace != second.head.workspace


async def test_fork_has_files_of_its_own(tmp_path: Path) -> None:
    """A fork begins with its parent's files as they were, and changes nothing in its parent's directory (B41, C11)."""
    async with await open_manager("memory://") as manager:
        async with coding(manager, tmp_path, calling("write_file", path="a.txt", content="one")) as run:
            parent = await manager.get_or_create("test:1")
            await say(run, parent, "write it")
            await allow_all(run, parent)
            child = await parent.fork()
        async with coding(manager, tmp_path, calling("shell", command="cat a.txt; echo two > a.txt")) as run:
            await say(run, child, "change it")
            await allow_all(run, child)
            assert "one" in str((await of_type(child, ToolResultEvent))[-1].result)
        assert file_of(parent, "a.txt") == "one"
        assert file_of(child, "a.txt") == "two\n"


def file_of(session: Session, name: str) -> str:
    """The text of a file in the session's directory."""
    workspace = session.head.workspace or {}
    return Path(workspace["path"], name).read_text()


async def test_child_processes_end_with_the_agent(tmp_path: Path) -> None:
    """A background process of a session is gone when its agent is closed (B49)."""
    script = calling("shell", command="sleep 98765", background=True)
    async with await open_manager("memory://") as manager, coding(manager, tmp_path, script) as run:
        session = await manager.get_or_create("test:1")
        await say(run, session, "start it")
        await allow_all(run, session)
        assert processes_with("98765")
        await run.orchestrator.cleanup_session(session.session_id)
        assert processes_with("98765") == []


def processes_with(word: str) -> list[int]:
    """The processes whose arguments are a sleep of this length."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if arguments[:2] == [b"sleep", word.encode()]:
            found.append(int(place.name))
    return found


async def test_session_settings_reach_the_tools(tmp_path: Path) -> None:
    """A session's variables are its commands', over a restart too, and nothing of this process's own is (B37, B43)."""
    url = f"sqlite:////{tmp_path}/s.db"
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("test:1")
        await session.set_metadata(env={"COLOUR": "green"})
        session_id = session.session_id
    async with (
        await open_manager(url) as manager,
        coding(manager, tmp_path, calling("shell", command="echo [$COLOUR] [$HOME]")) as run,
    ):
        session = await manager.open(session_id)
        await say(run, session, "say it")
        await allow_all(run, session)
        (result,) = await of_type(session, ToolResultEvent)
        assert "[green]" in result.result
        assert str(Path.home()) not in result.result


async def test_model_that_cannot_be_opened_fails_the_turn_and_not_the_worker(tmp_path: Path) -> None:
    """A session whose model is not there gets a failed turn that says so; other sessions are served."""

    def open_model(name: str | None) -> ScriptedModelClient:
        if name == "nowhere:x":
            raise ModelNameError(model=name, reason="no such provider")
        return ScriptedModelClient(["hello"])

    async with (
        await open_manager("memory://") as manager,
        open_runtime(manager, settings=AgentSettings(tmp_path), open_model=open_model) as run,
    ):
        broken, fine = await manager.get_or_create("test:1"), await manager.get_or_create("test:2")
        await broken.set_metadata(model="nowhere:x")
        await say(run, broken, "hi")
        await say(run, fine, "hi")
        (failed,) = await of_type(broken, TurnFinishedEvent)
        assert (failed.outcome, "model_name" in failed.error) == ("failed", True)
        assert [event.outcome for event in await of_type(fine, TurnFinishedEvent)] == ["completed"]


async def test_turn_that_is_handed_over_goes_on_elsewhere(tmp_path: Path) -> None:
    """A worker that ends leaves its turn open; the next one goes on with it, and the message is answered once (C14, B61)."""
    url = f"sqlite:////{tmp_path}/s.db"
    began = asyncio.Event()

    async def hang(_arguments: Any, _context: Any) -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    look = {"is_idempotent": True}
    async with runtime(
        ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("look")])]), FunctionTool("look", hang, look), url=url
    ) as run:
        session = await run.session()
        session_id = session.session_id
        await run.say(session, "go")
        await asyncio.wait_for(began.wait(), 60)
    async with runtime(ScriptedModelClient(["Done."]), FunctionTool("look", None, look), url=url) as run:
        session = await run.manager.open(session_id)
        finished = await until(session, TurnFinishedEvent)
        assert finished.outcome == "completed"
        assert [event.is_error for event in await of_type(session, ToolResultEvent)] == [False]


async def test_rules_about_roles_hold_for_who_wrote(tmp_path: Path) -> None:
    """A rule about a role is asked with the roles that whoever wrote the message has now (A19)."""
    policy = (PolicyLayer("organisation", (PolicyRule("deny", tool="list_dir", role="guest"),)),)

    def roles(principal_id: str, _tenant: str) -> frozenset[str]:
        return frozenset({"guest"}) if principal_id == "eve" else frozenset()

    async with (
        await open_manager("memory://") as manager,
        coding(manager, tmp_path, calling("list_dir"), policy=policy, roles=roles) as run,
    ):
        refused: dict[str, bool] = {}
        for name in ("ada", "eve"):
            who = Principal(name, "acme")
            session = await manager.get_or_create(f"web:{name}", principal=who)
            await session.add_event(UserMessageEvent(content="list", queued=True), principal=who)
            run.worker.wake(session.session_id)
            await run.worker.until_idle()
            events = [event async for event in session.events(principal=who)]
            refused[name] = any(isinstance(event, ToolResultEvent) and event.synthetic == "denied" for event in events)
        assert refused == {"ada": False, "eve": True}


async def test_rules_about_roles_need_somebody_who_knows_them(tmp_path: Path) -> None:
    """Where nobody says who has which role, a rule about one is refused at once, rather than never matching (A19)."""
    policy = (PolicyLayer("organisation", (PolicyRule("deny", tool="*", role="guest"),)),)
    async with await open_manager("memory://") as manager:
        with pytest.raises(ConfigurationError, match="role"):
            coding(manager, tmp_path, [], policy=policy)
