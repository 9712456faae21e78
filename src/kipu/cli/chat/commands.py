"""What can be written after a slash: the sessions' commands, and the list of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kipu.cli.chat.command_entry import Command
from kipu.cli.chat.file_commands import FILE_COMMANDS
from kipu.cli.chat.memory_commands import MEMORY_COMMANDS
from kipu.cli.chat.policy_commands import POLICY_COMMANDS
from kipu.cli.chat.proposal_commands import PROPOSAL_COMMANDS
from kipu.cli.chat.work_commands import WORK_COMMANDS
from kipu.cli.number import number_in
from kipu.errors import InputError
from kipu.manager.head_limits import check_title

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation

LISTED = 20


async def run_command(chat: Conversation, text: str) -> None:
    """Run the command that `text` begins with. Raises: InputError for one that there is not."""
    name, _, rest = text.partition(" ")
    command = COMMANDS.get(_ALIASES.get(name, name))
    if command is None:
        raise InputError(
            reason=f"there is no command /{name}; /help lists them, and //text sends text that begins with /"
        )
    await command.run(chat, rest.strip())


async def _new(chat: Conversation, rest: str) -> None:
    check_title(rest)  # before the session is made, so that a refused one leaves none
    chat.forget_session()
    if rest:
        session = await chat.ensure_session()
        await session.set_metadata(title=rest)
        chat.screen.result({"command": "new", "session_id": session.session_id})
        return
    chat.screen.say("a new session begins with your next message; the one before stays in /sessions")
    chat.screen.result({"command": "new", "session_id": None})


async def _sessions(chat: Conversation, rest: str) -> None:
    from kipu.cli.head_view import head_json, moment
    from kipu.ports.store import SessionQuery

    heads = [
        head
        async for head in chat.manager.heads(SessionQuery(limit=500))
        if rest.casefold() in head.display_title.casefold()
    ][:LISTED]
    chat.listed = {head.session_id: head.display_title for head in heads}
    here = chat.session.session_id if chat.session is not None else None
    rows = [
        (
            f"{'*' if head.session_id == here else ' '}{number}",
            head.session_id,
            moment(head.last_activity_at),
            str(head.event_count),
            _doing(chat, head.session_id, is_open=head.open_turn is not None, is_parked=bool(head.parked)),
            head.display_title,
        )
        for number, head in enumerate(heads, 1)
    ]
    chat.screen.table(("", "id", "last activity", "events", "now", "title"), rows)
    chat.screen.result({"command": "sessions", "sessions": [head_json(head) for head in heads]})


def _doing(chat: Conversation, session_id: str, *, is_open: bool, is_parked: bool) -> str:
    if session_id in chat.runtime.worker.running:
        return "works"
    return "asks" if is_parked else "open turn" if is_open else ""


async def _switch(chat: Conversation, rest: str) -> None:
    from kipu.cli.chat.opening import find_for_chat

    if not rest:
        raise InputError(reason="say which: /switch with a number of /sessions, an id, or words of its title")
    number = number_in(rest)
    if number is not None and 0 < number <= len(chat.listed):
        session = await chat.manager.open(list(chat.listed)[number - 1])
    else:
        session = await find_for_chat(chat.manager, rest)
    await session.refresh()
    await chat.enter(session)
    chat.screen.result({"command": "switch", "session_id": session.session_id})


async def _fork(chat: Conversation, rest: str) -> None:
    word, _, title = rest.partition(" ")
    at = number_in(word)
    title = rest if at is None else title
    child = await chat.require_session().fork(at, title=title.strip() or None)
    await chat.manager.bind_key(chat.key, child.session_id)
    await chat.enter(child)
    chat.screen.say(f"you are in the fork now; the other session stays as it is at event {child.head.base_seq}")
    chat.screen.result({"command": "fork", "session_id": child.session_id, "forked_from": child.head.forked_from})


async def _title(chat: Conversation, rest: str) -> None:
    if not rest:
        chat.screen.show(chat.require_session().title)
    else:
        check_title(rest)
        session = await chat.ensure_session()
        await session.set_metadata(title=rest)
        chat.screen.say(f"the title is now: {rest}")
    chat.screen.result({"command": "title", "title": chat.require_session().title})


async def _model(chat: Conversation, rest: str) -> None:
    if rest:
        name = chat.models.change(rest, say=chat.screen.say)
        if chat.session is not None:
            await chat.session.set_metadata(model=name)
    else:
        chat.screen.show(f"{chat.models.described_name}; change it with /model NAME")
    chat.screen.result({"command": "model", "model": chat.models.described_name})


async def _window(chat: Conversation, rest: str) -> None:
    from kipu.cli.window_view import window_json, window_lines

    session = chat.require_session()
    described = chat.models.current.describe() if chat.models.current is not None else None
    rendering = await session.render(
        rest or "neutral",
        provider=described.provider if described else None,
        model=described.model if described else None,
    )
    for line in window_lines(session, rendering):
        chat.screen.show(line)
    chat.screen.result({"command": "window", **window_json(session, rendering)})


async def _stats(chat: Conversation, rest: str) -> None:
    from kipu.cli.statistics import session_stats, stats_lines, store_stats

    found = await store_stats(chat.manager) if rest == "all" else await session_stats(chat.require_session())
    for name, value in stats_lines(found):
        chat.screen.show(f"{name}: {value}")
    chat.screen.result({"command": "stats", **found})


async def _help(chat: Conversation, rest: str) -> None:
    for name, command in COMMANDS.items():
        chat.screen.show(f"/{name} {command.takes}".ljust(36) + command.meaning)
    if chat.screen.is_terminal:
        chat.screen.show("")
        chat.screen.show(
            "Enter sends · Alt-Enter or \\ at the end: another line · @ completes files · Esc stops the turn"
        )
        chat.screen.show("A line typed while the agent works waits its turn; /steer joins it. Ctrl-D ends the chat.")
    chat.screen.result({"command": "help", "commands": {name: command.meaning for name, command in COMMANDS.items()}})


async def _quit(chat: Conversation, rest: str) -> None:
    chat.quit()


_ALIASES = {"exit": "quit", "q": "quit", "?": "help"}
COMMANDS = {
    "new": Command("[TITLE]", "begin another session; this one stays", _new),
    "sessions": Command("[WORDS]", "list sessions, the newest first", _sessions),
    "switch": Command("NUMBER|ID|WORDS", "go on with another session; this one's turn goes on", _switch),
    "fork": Command("[SEQ] [TITLE]", "go on in a copy that shares the history so far", _fork),
    **FILE_COMMANDS,
    **WORK_COMMANDS,
    **POLICY_COMMANDS,
    **PROPOSAL_COMMANDS,
    **MEMORY_COMMANDS,
    "title": Command("[TITLE]", "show or change the title", _title),
    "model": Command("[NAME]", "show or change the model", _model),
    "window": Command("[TARGET]", "show what the model is shown", _window),
    "stats": Command("[all]", "count events and tokens", _stats),
    "help": Command("", "list these commands", _help),
    "quit": Command("", "end the chat", _quit),
}
