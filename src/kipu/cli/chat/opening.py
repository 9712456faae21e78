"""Which session a chat goes on with. An unknown one is an error, never a new session (situation 45)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kipu.cli.reference import find_exactly, only_one
from kipu.errors import InputError, InvalidQueryError, SearchUnavailableError, SessionNotFoundError
from kipu.ports.store import SessionQuery
from kipu.session.key import SessionKey

if TYPE_CHECKING:
    from kipu.cli.output import Output
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session
    from kipu.ports.head import Head

SEARCHED_HITS = 50


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asked for; `resume` is "" for `--resume` without a session."""

    last: bool = False
    resume: str | None = None
    model: str | None = None


async def choose_session(manager: SessionManager, wanted: Wanted, *, key: SessionKey, output: Output) -> Session | None:
    """Return the session to go on with, or None for a new one.

    Raises: SessionNotFoundError, SessionAmbiguousError, InputError (there is no terminal to pick one on).
    """
    if wanted.last:
        return await newest_session(manager, key)
    if wanted.resume is None:
        return None
    if wanted.resume:
        return await find_for_chat(manager, wanted.resume)
    if output.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            reason="--resume without a session needs a terminal to pick one on; give an id, or use --continue"
        )
    from kipu.cli.picker import pick_session

    picked = await pick_session(manager)
    return await manager.open(picked) if picked is not None else None


async def newest_session(manager: SessionManager, key: SessionKey) -> Session:
    """Return the most recently active session of the key.

    Raises: SessionNotFoundError; StoreError where the one that the key leads to cannot be read: it may be the newest.
    """
    page = await manager.list(SessionQuery(key=str(key), limit=1))
    bound = await manager.store.resolve(str(key))
    if bound is not None and bound not in {head.session_id for head in page.items}:
        await manager.store.head(bound)
    if not page.items:
        raise SessionNotFoundError(session_id=str(key))
    return await manager.open(page.items[0].session_id)


async def find_for_chat(manager: SessionManager, text: str) -> Session:
    """Return the session of this id or key, else the one whose id, title or events hold these words.

    Raises: SessionNotFoundError, SessionAmbiguousError.
    """
    exact = await find_exactly(manager, text)
    if exact is not None:
        return exact
    found = await _by_title_or_id(manager, text) or await _by_words(manager, text)
    return await manager.open(only_one(found, text).session_id)


async def _by_title_or_id(manager: SessionManager, text: str) -> list[Head]:
    folded = text.casefold()
    return [
        head
        async for head in manager.heads(SessionQuery(limit=500))
        if folded in head.display_title.casefold() or (len(text) >= 4 and text in head.session_id)
    ]


async def _by_words(manager: SessionManager, text: str) -> list[Head]:
    try:
        page = await manager.search(text, limit=SEARCHED_HITS)
    except (InvalidQueryError, SearchUnavailableError):
        return []
    ids = dict.fromkeys(hit.session_id for hit in page.items)
    heads = [await manager.store.head(session_id) for session_id in ids]
    return [head for head in heads if head is not None and head.status != "trashed"]
