"""A session with something incompressible in every place that a session can have, and a search for it in every file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kipu.events.boundary import MetadataChangedEvent, NoteEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.turn import ApprovalDecisionEvent, ApprovalRequestEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.runtime.policy.grants import Grants
from kipu.runtime.workspaces.checkpoints import record_checkpoint
from kipu.runtime.workspaces.provision import WorkspaceProvision
from kipu.session.patch import WORKSPACE
from kipu.stores.host import SystemClock
from kipu.wiring import open_memory

HISTORY = Path("state", "kipu", "chat_history")
WORKSPACES = Path("data", "kipu", "workspaces")


def canary() -> str:
    """Return what no file has by chance and nothing makes smaller."""
    return os.urandom(18).hex()


def environment(home: Path) -> dict[str, str]:
    """Return the variables by which everything of Kipu lies below one folder."""
    return {"XDG_DATA_HOME": str(home / "data"), "XDG_STATE_HOME": str(home / "state"), "HOME": str(home)}


def files_with(home: Path, marks: list[str]) -> dict[str, list[str]]:
    """Return which marks are in which files below `home`, in their names or their bytes."""
    found: dict[str, list[str]] = {}
    for path in home.rglob("*"):
        if path.is_file():
            data, name = path.read_bytes(), str(path.relative_to(home))
            here = [mark for mark in marks if mark in name or mark.encode() in data]
            if here:
                found[name] = here
    return found


@dataclass(slots=True)
class Crowded:
    """A session filled by `crowd`, and every mark that was put anywhere for it."""

    session_id: str
    marks: list[str] = field(default_factory=list)

    def mark(self) -> str:
        """Return one more mark."""
        self.marks.append(canary())
        return self.marks[-1]


async def crowd(
    manager: SessionManager, url: str, home: Path, *, session_id: str, principal: Principal | None = None
) -> Crowded:
    """Make a session with a mark in each place: log, head, keys, blobs, index, directory, checkpoints, grants, memory, history."""
    one = Crowded(session_id)
    owner = principal or manager.principal
    key = f"test:{one.mark()}"
    await manager.create_session(session_id, {"note": one.mark()}, key=key, title=one.mark(), principal=owner)
    await manager.add_alias(f"test:{one.mark()}", key, principal=owner)
    session = await manager.open(session_id, principal=owner)
    await session.set_metadata(tags=[one.mark()], vars={"name": one.mark()}, principal=owner)
    entered = one.mark()
    message = UserMessageEvent(content=f"please {entered}", sender_id=owner.id, metadata={"from": one.mark()})
    await session.add_event(message, principal=owner, idempotency_key=one.mark())
    _enter(home / HISTORY, [f"please {entered}"])
    await _turn(session, one, owner)
    await session.rewind(turns=1, principal=owner)
    for _ in range(20):
        await session.add_event(NoteEvent(kind="filler", data={"text": one.mark() * 20}), principal=owner)
    await manager.catch_up_index()
    await _files(manager, session, one, home, owner)
    await _outside(manager, session, one, url, owner)
    return one


def _enter(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for line in lines:
            file.write(f"\n# 2026-01-01 00:00:00.000000\n+{line}\n")


async def _turn(session: Session, one: Crowded, owner: Principal) -> None:
    async with session.turn(principal=owner) as turn:
        await turn.add_event(InstructionEvent(content=one.mark()))
        await turn.add_events(
            [
                AgentMessageEvent(content=one.mark(), reasoning=one.mark()),
                ToolCallEvent(tool_name="shell", tool_call_id="c1", tool_input={"command": one.mark()}),
            ]
        )
        shown: dict[str, Any] = {"command": one.mark()}
        await turn.add_event(
            ApprovalRequestEvent(
                approval_id=f"approval_{session.session_id}", tool_call_id="c1", arguments_hash="0", shown=shown
            )
        )
        await turn.add_event(
            ApprovalDecisionEvent(
                approval_id=f"approval_{session.session_id}", decision="always", by=owner.id, reason=one.mark()
            )
        )
        await turn.add_event(ToolResultEvent(tool_call_id="c1", result=one.mark() * 5000))
        await turn.add_event(AgentMessageEvent(content=one.mark()))


async def _files(manager: SessionManager, session: Session, one: Crowded, home: Path, owner: Principal) -> None:
    provision = WorkspaceProvision(home / WORKSPACES, clock=SystemClock())
    workspace = await provision.private(session.session_id)
    (workspace.root / f"{one.mark()}.txt").write_text(one.mark())
    (workspace.root / "deep" / "er").mkdir(parents=True)
    (workspace.root / "deep" / "er" / "file").write_text(one.mark() * 100)
    (workspace.root / "deep").chmod(0o500)
    await session.add_event(MetadataChangedEvent(set={WORKSPACE: workspace.describe()}), principal=owner)

    async def append(events: Any) -> Any:
        return await session.add_events(events, principal=owner)

    async def put_blob(data: bytes) -> str:
        return await manager.store.put_blob(session.session_id, data)

    await record_checkpoint(append, workspace, put_blob=put_blob, turn_id=None)
    await workspace.aclose()


async def _outside(manager: SessionManager, session: Session, one: Crowded, url: str, owner: Principal) -> None:
    grants = Grants(manager, clock=SystemClock())
    for approval_id, subject in ((f"approval_{session.session_id}", one.mark()), ("approval_elsewhere", "ls")):
        await grants.add(
            session, "shell", subject=subject, scope="user", principal=owner, by=owner.id, approval_id=approval_id
        )
    memory = open_memory(manager, url)
    try:
        await memory.remember(
            session, f"Their cat is called {one.mark()}", kind="preference", scope=None, seq=2, call_id="m1"
        )
    finally:
        await memory.store.close()
