"""What the chat says of memory: what is known here, and forgetting it. Editing is for `kipu memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kipu.cli.chat.command_entry import Command
from kipu.errors import InputError

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation
    from kipu.memory.memory import Memory

SHOWN = 50
_USAGE = "write /memory, /memory WORDS, /memory show ID, or /memory forget ID; kipu memory has the rest"


async def _memory(chat: Conversation, rest: str) -> None:
    memory = chat.runtime.memory
    if memory is None:
        raise InputError(reason="memory is off here (setting memory, KIPU_MEMORY)")
    word, _, fact_id = rest.partition(" ")
    fact_id = fact_id.strip()
    if word in ("show", "forget"):
        if not fact_id:
            raise InputError(reason=_USAGE)
        await (_show(chat, memory, fact_id) if word == "show" else _forget(chat, memory, fact_id))
        return
    await _list(chat, memory, rest)


async def _list(chat: Conversation, memory: Memory, words: str) -> None:
    from kipu.cli.memory_view import COLUMNS, fact_json, fact_row
    from kipu.memory.place import MemoryPlace
    from kipu.ports.memory import FactQuery

    spaces = None
    if chat.session is not None:
        spaces = tuple(MemoryPlace.of(chat.session.head, chat.session.history.reader.spans).spaces())
    query = FactQuery(spaces=spaces, statuses=frozenset({"active", "quarantined"}), limit=SHOWN)
    principal = chat.manager.principal
    if words:
        page = await memory.search(words, query, principal=principal)
    else:
        page = await memory.facts(query, principal=principal)
    if page.items:
        chat.screen.table(COLUMNS, [fact_row(fact) for fact in page.items])
    else:
        chat.screen.say("nothing is known here" if not words else "nothing found")
    if page.cursor is not None:
        chat.screen.say("there is more: kipu memory ls")
    chat.screen.result({"command": "memory", "facts": [fact_json(fact) for fact in page.items]})


async def _show(chat: Conversation, memory: Memory, fact_id: str) -> None:
    from kipu.cli.memory_view import fact_details, fact_json

    fact = await memory.fact(fact_id, principal=chat.manager.principal)
    for name, value in await fact_details(chat.manager, fact):
        if value is not None:
            chat.screen.show(f"{name}: {value}")
    chat.screen.result({"command": "memory", "fact": fact_json(fact)})


async def _forget(chat: Conversation, memory: Memory, fact_id: str) -> None:
    fact = await memory.forget(fact_id, principal=chat.manager.principal)
    chat.screen.say(f"forgotten: {fact.text}; where this window shows it already, it stands until the window moves on")
    chat.screen.result({"command": "memory", "forgotten": fact.fact_id})


MEMORY_COMMANDS = {
    "memory": Command("[WORDS|show ID|forget ID]", "what is remembered here across sessions", _memory),
}
