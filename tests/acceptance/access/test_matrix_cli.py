"""The command line × the roles that its user can have in a session of somebody else's (A20, A69, C19)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import typer

from kipu.cli.app import _MODULES as COMMANDS
from kipu.cli.app import make_app
from kipu.cli.exit_code import ExitCode
from kipu.events.conversation import UserMessageEvent
from kipu.ports.principal import Principal
from kipu.wiring import open_manager
from tests.acceptance.access.people import expected
from tests.unit.cli.command_line import CommandLine

ADA = Principal("ada")
ROLES: dict[str, str | None] = {"admin": "admin", "participant": "participant", "viewer": "viewer", "stranger": None}
ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "approvals": ("read", ("approvals", "ID")),
    "policy": ("read", ("policy", "--session", "ID")),
    "status": ("read", ("status", "ID")),
    "stop": ("stop", ("stop", "ID")),
    "queue": ("read", ("queue", "ID")),
    "queue: cancel": ("withdraw", ("queue", "ID", "cancel", "99")),
    "send": ("send", ("send", "ID", "hello")),
    "run": ("send", ("run", "--session", "ID", "hello")),
    "show": ("read", ("show", "ID")),
    "stats": ("read", ("stats", "ID")),
    "fork": ("fork", ("fork", "ID")),
    "rewind": ("rewind", ("rewind", "ID", "--to", "1")),
    "undo": ("rewind", ("undo", "ID")),
    "diff": ("append", ("diff", "ID")),
    "rename": ("configure", ("rename", "ID", "mine")),
    "tag": ("configure", ("tag", "ID", "mine")),
    "pin": ("configure", ("pin", "ID")),
    "pin: event": ("configure", ("pin", "ID", "2")),
    "window": ("read", ("window", "ID")),
    "replay": ("read", ("replay", "ID", "--all")),
    "export": ("read", ("export", "ID")),
    "share": ("share", ("share", "ID", "new")),
    "unshare": ("share", ("unshare", "ID", "nobody")),
    "members": ("read", ("members", "ID")),
    "audit": ("audit", ("audit", "ID")),
    "trash": ("configure", ("trash", "ID")),
    "restore": ("configure", ("restore", "ID")),
    "archive": ("configure", ("archive", "ID")),
    "unarchive": ("configure", ("unarchive", "ID")),
    "hold": ("hold", ("hold", "ID", "--reason", "a case")),
    "release": ("hold", ("release", "ID")),
    "erase": ("erase", ("erase", "ID", "--yes")),
    "scan": ("read", ("scan", "ID")),
    "reveal": ("configure", ("reveal", "ID", "2")),
    "verify": ("read", ("verify", "ID")),
    "search": ("read", ("search", "secret", "--session", "ID")),
}


GONE = frozenset({"receipts"})  # of sessions that are erased


def about_a_session() -> set[str]:
    """Return the commands that take a session as a word."""
    group = typer.main.get_command(make_app())
    context = group.make_context("kipu", ["ls"], resilient_parsing=True)
    commands = {name: group.get_command(context, name) for name in COMMANDS}  # type: ignore[attr-defined]
    return {
        name
        for name, command in commands.items()
        if any(parameter.name == "session" and parameter.param_type_name == "argument" for parameter in command.params)
    }


def test_every_command_about_a_session_has_its_row() -> None:
    """A new command about a session says which right it asks for (C19)."""
    assert about_a_session() - GONE - {name.partition(":")[0] for name in ROWS} == set()
    assert {"fork", "share", "erase"} <= about_a_session()


async def made(store: str, role: str | None) -> str:
    """Return a session of ada's in which the command line's user has this role."""
    async with await open_manager(store) as manager:
        session_id = await manager.create_session(principal=ADA)
        session = await manager.open(session_id, principal=ADA)
        await session.add_event(UserMessageEvent(content="a secret plan"), principal=ADA)
        if role is not None:
            await session.share("local", role=role, principal=ADA)
    return session_id


def how(code: int) -> str:
    return {ExitCode.DENIED: "denied", ExitCode.NOT_FOUND: "missing"}.get(ExitCode(code), "done")


@pytest.mark.parametrize("name", [name for name in ROWS if name.partition(":")[0] in COMMANDS])
def test_each_command_may_what_the_role_says(tmp_path: Path, name: str) -> None:
    """A command is done, ends with 6 and whom to ask, or with 3 as if there were no such session (A20, C19)."""
    verb, words = ROWS[name]
    for person, role in ROLES.items():
        kipu = CommandLine(tmp_path, f"sqlite:///{tmp_path}/{person}.db")
        session_id = asyncio.run(made(kipu.store, role))
        ran = kipu.run(*(session_id if word == "ID" else word for word in words))
        due = expected(person, verb)
        assert how(ran.code) == due, (person, ran)
        if due == "denied":
            assert "Ask its owner, ada" in ran.stderr
            assert f"kipu share {session_id} local --role" in ran.stderr
        assert "secret" not in ran.stdout + ran.stderr or due == "done"


def test_shared_sessions_are_listed_with_whose_they_are(tmp_path: Path) -> None:
    """`kipu ls` and `search` show what is shared with the user, and whose it is; `stats` counts it (C19)."""
    kipu = CommandLine(tmp_path, f"sqlite:///{tmp_path}/s.db")
    shared, hidden = (asyncio.run(made(kipu.store, role)) for role in ("viewer", None))
    assert kipu.ids() == [shared]
    assert "@ada a secret plan" in kipu.run("ls").stdout
    found = kipu.run("search", "secret").stdout
    assert shared in found
    assert hidden not in found
