"""Commands about files and going back: /rewind, /undo, /diff, /cwd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kipu.cli.chat.command_entry import Command
from kipu.cli.number import number_in
from kipu.cli.reference import BUSY_WAIT_S
from kipu.errors import InputError
from kipu.events.conversation import InstructionEvent
from kipu.events.turn import TurnStartedEvent
from kipu.ports.home_path import home_path
from kipu.session.branch import visible
from kipu.session.patch import WORKSPACE

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation
    from kipu.manager.session import Session

NAMED_PATHS = 10


def require_idle(chat: Conversation) -> Session:
    """Return the session where no turn of it runs. Raises: InputError."""
    session = chat.require_session()
    if chat.is_running(session):
        raise InputError(reason="a turn runs; stop it first with Esc or /stop")
    return session


async def _rewind(chat: Conversation, rest: str) -> None:
    words = rest.split()
    with_files = "--files" in words
    words = [word for word in words if word != "--files"]
    number = number_in(words[-1]) if words else 1
    if words[:1] == ["to"] and len(words) == 2 and number is not None:
        await _go_back(chat, "rewind", to_seq=number, turns=1, with_files=with_files)
    elif len(words) <= 1 and number is not None:
        await _go_back(chat, "rewind", to_seq=None, turns=number, with_files=with_files)
    else:
        raise InputError(
            reason="write /rewind, /rewind 3 for three turns, or /rewind to 120 for an event; --files brings files back too"
        )


async def _undo(chat: Conversation, rest: str) -> None:
    turns = number_in(rest) if rest else 1
    if turns is None:
        raise InputError(reason="write /undo, or /undo 3 for three turns")
    await _go_back(chat, "undo", to_seq=None, turns=turns, with_files=True)


async def _go_back(chat: Conversation, name: str, *, to_seq: int | None, turns: int, with_files: bool) -> None:
    from kipu.runtime.workspaces.checkpoints import undo

    session = require_idle(chat)
    paths: list[str] = []
    if with_files:
        workspaces = chat.runtime.builder.workspaces
        workspace = await workspaces.open(session)
        recorder = await workspaces.recorder(session, workspace)
        async with session.holding(wait_s=BUSY_WAIT_S):
            undone = await undo(session, workspace, recorder=recorder, to_seq=to_seq, turns=turns)
        paths, event = undone.paths, undone.rewind
    else:
        async with session.holding(wait_s=BUSY_WAIT_S):
            event = await session.rewind(to_seq, turns=turns)
    went_to = getattr(event, "to_seq", 0)
    chat.screen.say(f"went back to event {went_to}; the model no longer sees what came after, the log keeps it")
    if with_files:
        named = ", ".join(paths[:NAMED_PATHS]) + (
            f" and {len(paths) - NAMED_PATHS} more" if len(paths) > NAMED_PATHS else ""
        )
        chat.screen.say(f"files brought back: {named}" if paths else "no file had changed since")
    seq = event.seq if event is not None else None
    record = {"command": name, "session_id": session.session_id, "to_seq": went_to, "seq": seq}
    chat.screen.result({**record, "paths": paths} if with_files else record)


async def _diff(chat: Conversation, rest: str) -> None:
    from kipu.runtime.workspaces.checkpoints import diff_since

    if rest not in ("", "turn"):
        raise InputError(reason="write /diff for the whole session, or /diff turn for the last turn")
    session = chat.require_session()
    to_seq = await _before_last_turn(session) if rest == "turn" else session.head.base_seq
    async with chat.runtime.builder.workspaces.looked_at(session) as workspace:
        text = await diff_since(session, workspace, to_seq=to_seq)
    if text:
        chat.screen.show_diff(text)
    else:
        chat.screen.say("no file differs")
    chat.screen.result({"command": "diff", "session_id": session.session_id, "diff": text})


async def _before_last_turn(session: Session) -> int:
    recent = visible(await session.get_recent_events(500))
    started = [event.seq for event in recent if isinstance(event, TurnStartedEvent)]
    return started[-1] - 1 if started else session.head.base_seq


async def _cwd(chat: Conversation, rest: str) -> None:
    workspaces = chat.runtime.builder.workspaces
    if not rest:
        session = chat.require_session()
        if session.head.workspace is None:
            chat.screen.show("a private directory, made with the first turn")
            chat.screen.result({"command": "cwd", "root": None, "state": None})
            return
        workspace = await workspaces.provision.open(session.head.workspace)
        state = await workspace.state()
        chat.screen.show(f"{workspace.root} ({workspace.kind}, {state})")
        chat.screen.result({"command": "cwd", "root": str(workspace.root), "kind": workspace.kind, "state": state})
        return
    session = require_idle(chat)
    chosen = await workspaces.provision.directory(session.session_id, path=_directory(chat, rest))
    changed: dict[str, Any] = {WORKSPACE: chosen.describe()}
    await session.set_metadata(**changed)
    if session.head.instruction_seq:
        await session.add_event(InstructionEvent(content=await _instruction(chosen)))
    chat.root = chosen.root
    chat.screen.say(f"works in {chosen.root} from the next turn on")
    chat.notices.tell_project(chosen.root)
    chat.screen.result({"command": "cwd", "root": str(chosen.root), "kind": chosen.kind, "state": await chosen.state()})


def _directory(chat: Conversation, text: str) -> Path:
    path = home_path(text)
    return path if path.is_absolute() else (chat.root or Path.cwd()) / path


async def _instruction(workspace: Any) -> str:
    import asyncio

    from kipu.runtime.instructions import coding_instruction, project_text

    return coding_instruction(workspace, project_text=await asyncio.to_thread(project_text, workspace))


FILE_COMMANDS = {
    "rewind": Command("[TURNS|to SEQ] [--files]", "undo turns for the model; the log keeps them", _rewind),
    "undo": Command("[TURNS]", "undo turns and bring their files back", _undo),
    "diff": Command("[turn]", "show what changed in the files", _diff),
    "cwd": Command("[DIR]", "show or change the directory the session works in", _cwd),
}
