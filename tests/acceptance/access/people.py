"""Everybody who can stand before a session, what each is allowed, and how a call ended for them.

The allowances are written here once more, by hand: what the code's table says is compared with them, not taken from it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from kipu.blocking import BlockingManager
from kipu.errors import AccessDeniedError, KipuError, SessionNotFoundError
from kipu.events.conversation import UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal

TENANT = "acme"
OWNER = Principal("ada", TENANT)
PEOPLE: dict[str, Principal] = {
    "owner": OWNER,
    "tenant admin": Principal("root", TENANT, frozenset({"admin"})),
    "admin": Principal("amy", TENANT),
    "participant": Principal("pat", TENANT),
    "viewer": Principal("vic", TENANT),
    "stranger": Principal("eve", TENANT),
    "revoked": Principal("rex", TENANT),
    "namesake elsewhere": Principal("ada", "other"),
    "admin elsewhere": Principal("root", "other", frozenset({"admin"})),
    "member elsewhere": Principal("pat", ""),
    "local user": Principal.local(),
}
SHARED = {"amy": "admin", "pat": "participant", "vic": "viewer"}
KEY = "chat:1"

_RUN = {"owner", "tenant admin", "admin"}
_TAKE_PART = _RUN | {"participant"}
_SEE = _TAKE_PART | {"viewer"}
ALLOWED: dict[str, set[str]] = {
    "read": _SEE,
    "leave": {"admin", "participant", "viewer", "tenant admin"},
    "send": _TAKE_PART,
    "decide": _TAKE_PART,
    "stop": _TAKE_PART,
    "withdraw": _TAKE_PART,
    "cancel": _RUN,
    "append": _RUN,
    "configure": _RUN,
    "fork": _RUN,
    "rewind": _RUN,
    "share": _RUN,
    "audit": _RUN,
    "hold": _RUN,
    "erase": _RUN,
}
MISSING: tuple[Any, ...] = (None, False, [], ())


def expected(person: str, verb: str) -> str:
    """Return how a call must end: it is done, it is denied, or there is no such session."""
    if person in ALLOWED[verb]:
        return "done"
    return "denied" if person in _SEE else "missing"


async def shared_session(manager: SessionManager) -> Session:
    """Return a session of the owner that everybody of `SHARED` is a member of, and one is no more."""
    session = await manager.get_or_create(KEY, principal=OWNER)
    await session.add_event(UserMessageEvent(content="a secret plan"), principal=OWNER)
    for who, role in {**SHARED, "rex": "admin"}.items():
        await session.share(who, role=role, principal=OWNER)
    assert await session.revoke("rex", principal=OWNER)
    return session


def shared_without_async(manager: BlockingManager) -> Any:
    """Return the same session, made without async."""
    session = manager.get_or_create(KEY, principal=OWNER)
    session.add_event(UserMessageEvent(content="a secret plan"), principal=OWNER)
    for who, role in {**SHARED, "rex": "admin"}.items():
        session.share(who, role=role, principal=OWNER)
    assert session.revoke("rex", principal=OWNER)
    return session


async def outcome(call: Callable[[], Any], *, empty_is_missing: bool = False) -> str:
    """Return how a call ended; what is wrong with the call itself comes after what the caller may."""
    try:
        result = call()
        if isinstance(result, Awaitable):
            result = await result
        if isinstance(result, AsyncIterator):
            result = await anext(result, None)
        elif inspect.isgenerator(result) or isinstance(result, Iterator):
            result = next(result, None)
    except SessionNotFoundError:
        return "missing"
    except AccessDeniedError:
        return "denied"
    except KipuError:
        return "done"
    return "missing" if empty_is_missing and result in MISSING else "done"
