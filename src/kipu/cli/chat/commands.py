"""What can be written after a slash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kipu.errors import InputError
from kipu.manager.head_limits import check_title

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation
    from kipu.manager.session import Session

LISTED = 20


@dataclass(frozen=True, slots=True)
class Command:
    """One command: what it takes, what it does, and the function that does it."""

    takes: str
    meaning: str
    run: Callable[[Conversation, str], Awaitable[None]]


async def run_command(chat: Conversation, text: str) -> None:
    """Run the command that `text` begins with. Raises: InputError for one that there is not."""
    name, _, rest = text.partition(" ")
    command = COMMANDS.get(_ALIASES.get(name, name))
    if command is None:
        raise InputError(
            reason=f"there is no command /{name}; /help lists them, and //text sends text that begins with /"
        )
    await command.run(chat, rest.strip())


def _current(chat: Conversation) -> Session:
    if chat.session is None:
        raise InputError(reason="there is no session yet; it begins with your first message, or use /switch")
    return chat.session


async def _new(chat: Conversation, rest: str) -> None:
    check_title(rest)  # before the session is made, so that a refused one leaves none
    chat.session = None
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
    chat.listed = [head.session_id for head in heads]
    here = chat.session.session_id if chat.session is not None else None
    rows = [
        (
            f"{'*' if head.session_id == here else ' '}{number}",
            head.session_id,
            moment(head.last_activity_at),
            str(head.event_count),
            head.display_title,
        )
        for number, head in enumerate(heads, 1)
    ]
    chat.screen.table(("", "id", "last activity", "events", "title"), rows)
    chat.screen.result({"command": "sessions", "sessions": [head_json(head) for head in heads]})


async def _switch(chat: Conversation, rest: str) -> None:
    from kipu.cli.chat.opening import find_for_chat

    if not rest:
        raise InputError(reason="say which: /switch with a number of /sessions, an id, or words of its title")
    if rest.isdigit() and 0 < int(rest) <= len(chat.listed):
        session = await chat.manager.open(chat.listed[int(rest) - 1])
    else:
        session = await find_for_chat(chat.manager, rest)
    await session.refresh()
    await chat.enter(session)
    chat.screen.result({"command": "switch", "session_id": session.session_id})


async def _fork(chat: Conversation, rest: str) -> None:
    word, _, title = rest.partition(" ")
    at, title = (int(word), title) if word.isdigit() else (None, rest)
    child = await _current(chat).fork(at, title=title.strip() or None)
    await chat.manager.bind_key(chat.key, child.session_id)
    await chat.enter(child)
    chat.screen.say(f"you are in the fork now; the other session stays as it is at event {child.head.base_seq}")
    chat.screen.result({"command": "fork", "session_id": child.session_id, "forked_from": child.head.forked_from})


async def _rewind(chat: Conversation, rest: str) -> None:
    session = _current(chat)
    words = rest.split()
    if words[:1] == ["to"] and len(words) == 2 and words[1].isdigit():
        event = await session.rewind(int(words[1]))
    elif not words or (len(words) == 1 and words[0].isdigit()):
        event = await session.rewind(turns=int(words[0]) if words else 1)
    else:
        raise InputError(reason="write /rewind, /rewind 3 for three turns, or /rewind to 120 for an event")
    to_seq = getattr(event, "to_seq", 0)
    chat.screen.say(f"went back to event {to_seq}; the model no longer sees what came after, the log keeps it")
    chat.screen.result({"command": "rewind", "session_id": session.session_id, "to_seq": to_seq, "seq": event.seq})


async def _title(chat: Conversation, rest: str) -> None:
    if not rest:
        chat.screen.show(_current(chat).title)
    else:
        check_title(rest)
        session = await chat.ensure_session()
        await session.set_metadata(title=rest)
        chat.screen.say(f"the title is now: {rest}")
    chat.screen.result({"command": "title", "title": _current(chat).title})


async def _model(chat: Conversation, rest: str) -> None:
    if rest:
        await chat.change_model(rest)
    else:
        chat.screen.show(f"{chat.model.name}; change it with /model NAME")
    chat.screen.result({"command": "model", "model": chat.model.name})


async def _window(chat: Conversation, rest: str) -> None:
    from kipu.cli.window_view import window_json, window_lines

    session = _current(chat)
    described = chat.model.describe()
    rendering = await session.render(rest or "neutral", provider=described.provider, model=described.model)
    for line in window_lines(session, rendering):
        chat.screen.show(line)
    chat.screen.result({"command": "window", **window_json(session, rendering)})


async def _stats(chat: Conversation, rest: str) -> None:
    from kipu.cli.statistics import session_stats, stats_lines, store_stats

    found = await store_stats(chat.manager) if rest == "all" else await session_stats(_current(chat))
    for name, value in stats_lines(found):
        chat.screen.show(f"{name}: {value}")
    chat.screen.result({"command": "stats", **found})


async def _retry(chat: Conversation, rest: str) -> None:
    _current(chat)
    await chat.answer()


async def _help(chat: Conversation, rest: str) -> None:
    for name, command in COMMANDS.items():
        chat.screen.show(f"/{name} {command.takes}".ljust(28) + command.meaning)
    chat.screen.result({"command": "help", "commands": {name: command.meaning for name, command in COMMANDS.items()}})


async def _quit(chat: Conversation, rest: str) -> None:
    chat.quit()


_ALIASES = {"exit": "quit", "q": "quit", "?": "help"}
COMMANDS = {
    "new": Command("[TITLE]", "begin another session; this one stays", _new),
    "sessions": Command("[WORDS]", "list sessions, the newest first", _sessions),
    "switch": Command("NUMBER|ID|WORDS", "go on with another session", _switch),
    "fork": Command("[SEQ] [TITLE]", "go on in a copy that shares the history so far", _fork),
    "rewind": Command("[TURNS|to SEQ]", "undo turns for the model; the log keeps them", _rewind),
    "title": Command("[TITLE]", "show or change the title", _title),
    "model": Command("[NAME]", "show or change the model", _model),
    "window": Command("[TARGET]", "show what the model is shown", _window),
    "stats": Command("[all]", "count events and tokens", _stats),
    "retry": Command("", "ask the model again", _retry),
    "help": Command("", "list these commands", _help),
    "quit": Command("", "end the chat", _quit),
}
