"""Secrets that turn up in a session are nowhere in its store: log, index, blobs, memory, titles."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from kipu.events.content import ProviderMark, TextPart
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.security.redaction.policy import RedactionPolicy
from kipu.wiring import open_manager, open_redactor
from tests.unit.cli.command_line import CommandLine

KNOWN = "zebra-Quartz-77-lantern"
TOKEN = "ghp_" + "Zk3vQ8mW1xT6yB9nC4rL7pD2sF5gH0jAbXeU"
STORES = ("sqlite", "jsonl")
POLICY = RedactionPolicy(temporary_paths=True)


def url_of(kind: str, folder: Path) -> str:
    """Return a store's URL below the folder."""
    return f"sqlite:///{folder}/s.db" if kind == "sqlite" else f"jsonl:///{folder}/s"


def bytes_below(folder: Path) -> bytes:
    """Return everything that is in any file."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def opened(kind: str, folder: Path, **more: Any) -> SessionManager:
    """Return a manager that redacts."""
    redactor = open_redactor({"DEPLOY_TOKEN": KNOWN}, policy=POLICY, **more)
    return await open_manager(url_of(kind, folder), redactor=redactor)


async def told(manager: SessionManager) -> str:
    """Write a session in which secrets stand everywhere that a program can put them."""
    session_id = await manager.create_session(initial_context={"note": f"uses {KNOWN}"}, title=f"deploy with {TOKEN}")
    session = await manager.open(session_id)
    await session.add_events(
        [
            UserMessageEvent(content=f"my key is {TOKEN} ok", metadata={"password": "weak-but-mine"}),
            AgentMessageEvent(
                content=[TextPart(text=f"I use {KNOWN}")],
                reasoning=f"think {TOKEN}",
                provider=ProviderMark(name="p", opaque={"sealed": f"signed {KNOWN}"}),
            ),
            ToolCallEvent(
                tool_name="shell", tool_call_id="c1", tool_input={"command": f"curl -H 'X-Api-Key: {TOKEN}' x"}
            ),
            ToolResultEvent(
                tool_call_id="c1", result=f"/tmp/run-17/x\0 {'line ' * 9_000} {KNOWN} {'line ' * 9_000} {TOKEN}"
            ),
            ToolCallEvent(tool_name="shell", tool_call_id="c2"),
            ToolResultEvent(
                tool_call_id="c2", result={"deep": [{"value": base64.b64encode(f"a:{KNOWN}".encode()).decode()}]}
            ),
        ]
    )
    await session.set_metadata(variables={"DEPLOY": KNOWN})
    return session_id


@pytest.mark.parametrize("kind", STORES)
async def test_no_byte_of_a_secret_reaches_the_store(tmp_path: Path, kind: str) -> None:
    """After messages, calls, big results and settings with secrets, no file holds one; what stood beside them is there (C21, B57)."""
    async with await opened(kind, tmp_path) as manager:
        session_id = await told(manager)
        await manager.catch_up_index()
        session = await manager.open(session_id)
        in_memory = [event.model_dump(mode="json") for event in await session.get_full_history()]
        assert (await manager.search("zebra")).items == ()
        assert (await manager.search(TOKEN)).items == ()
        assert len((await manager.search("key")).items) >= 1
        (blob,) = [
            event.blob
            for event in await session.get_full_history()
            if isinstance(event, ToolResultEvent) and event.blob
        ]
        whole = (await session.blob(blob.digest)).decode()
        assert "[redacted:known-secret]" in whole
        assert "[redacted:temporary-path]" in whole
    found = bytes_below(tmp_path)
    for secret in (KNOWN, TOKEN, "weak-but-mine", base64.b64encode(f"a:{KNOWN}".encode()).decode()[4:-4], "run-17"):
        assert secret.encode() not in found, secret
    assert KNOWN[:12].encode() not in found
    assert b"[redacted:github-token]" in found
    async with await open_manager(url_of(kind, tmp_path)) as manager:
        session = await manager.open(session_id)
        assert [event.model_dump(mode="json") for event in await session.get_full_history()] == in_memory
        assert session.title == "deploy with [redacted:github-token]"


async def test_event_says_what_was_replaced(tmp_path: Path) -> None:
    """`normalised` names field, rule and count beside what was made storable, of which nothing tainted is kept (C21)."""
    async with await opened("sqlite", tmp_path) as manager:
        session = await manager.open(await manager.create_session())
        event = await session.add_event(UserMessageEvent(content=f"\0 {KNOWN} {KNOWN}"))
        assert event.normalised == [
            {"path": "/content", "kind": "nul", "original": ""},
            {"path": "/content", "kind": "redacted", "rule": "known-secret", "count": 2},
        ]
        plain = await session.add_event(UserMessageEvent(content="nothing here"))
        assert plain.normalised is None


async def test_sealed_reasoning_goes_whole(tmp_path: Path) -> None:
    """What only its provider can read is dropped where it holds a secret: a part of it nobody would take back (C21)."""
    async with await opened("sqlite", tmp_path) as manager:
        session = await manager.open(await manager.create_session())
        mark = ProviderMark(name="p", model="m", opaque={"sealed": f"x {KNOWN}"})
        event = await session.add_event(AgentMessageEvent(content="hi", provider=mark))
        assert isinstance(event, AgentMessageEvent)
        assert event.provider is not None
        assert (event.provider.name, event.provider.opaque) == ("p", None)


async def test_events_stay_as_given_without_a_redactor(tmp_path: Path) -> None:
    """The library redacts only where it is told to (C21)."""
    async with await open_manager(url_of("sqlite", tmp_path)) as manager:
        session = await manager.open(await manager.create_session())
        event = await session.add_event(UserMessageEvent(content=f"key {TOKEN}"))
        assert isinstance(event, UserMessageEvent)
        assert event.content == f"key {TOKEN}"


@pytest.mark.parametrize("kind", STORES)
async def test_scan_tells_where_old_sessions_hold_secrets(tmp_path: Path, kind: str) -> None:
    """`kipu scan` names rule, session, event and field, shows no secret, and ends with 1 exactly when there is one (C21)."""
    line = CommandLine(tmp_path, url_of(kind, tmp_path))
    async with await open_manager(line.store) as manager:
        clean = await manager.create_session()
        await (await manager.open(clean)).add_event(UserMessageEvent(content="nothing"))
    assert (await asyncio.to_thread(line.run, "scan")).code == 0
    async with await open_manager(line.store) as manager:
        session = await manager.open(await manager.create_session())
        await session.add_event(UserMessageEvent(content=f"key {TOKEN}"))
        await session.add_event(ToolResultEvent(tool_call_id="c", result="word " * 9_000 + TOKEN))
    ran = await asyncio.to_thread(line.run, "scan", "--json")
    assert ran.code == 1
    assert ran.json["secrets"] == 3
    rows = {(row["session_id"], row["seq"], row["rule"]) for row in ran.json["found"]}
    assert (session.session_id, 2, "github-token") in rows
    assert TOKEN not in ran.stdout + ran.stderr
    assert (await asyncio.to_thread(line.run, "scan", session.session_id)).code == 1
    assert (await asyncio.to_thread(line.run, "scan", clean)).code == 0
