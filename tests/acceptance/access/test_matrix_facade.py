"""Everybody × every call of the façade, async and not: done, denied, or not there (A20, A69, B56, C19)."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from kipu import blocking
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.wiring import open_manager
from tests.acceptance.access.facade_calls import (
    BY_KEY,
    EXPORT_ROWS,
    MANAGER_HELD,
    MANAGER_ROWS,
    SESSION_HELD,
    SESSION_ROWS,
    Row,
)
from tests.acceptance.access.people import PEOPLE, expected, outcome, shared_session, shared_without_async

ROWS = {**{f"session.{name}": row for name, row in SESSION_ROWS.items()},
        **{f"manager.{name}": row for name, row in MANAGER_ROWS.items()}}  # fmt: skip


def rows_of(table: dict[str, Row]) -> set[str]:
    return {name.partition(":")[0] for name in table}


def public(kind: type[Any]) -> set[str]:
    """Return the names of the methods; a property is what a program holds, and no verb."""
    names = (name for name in dir(kind) if not name.startswith("_"))
    return {name for name in names if not isinstance(inspect.getattr_static(kind, name), property)}


def test_every_public_name_of_the_facade_has_its_row() -> None:
    """A new method of Session or SessionManager says which right it asks for, or this fails (C19)."""
    assert rows_of(SESSION_ROWS) | SESSION_HELD == public(Session)
    assert rows_of(MANAGER_ROWS) | MANAGER_HELD == public(SessionManager)
    assert not rows_of(SESSION_ROWS) & SESSION_HELD
    assert not rows_of(MANAGER_ROWS) & MANAGER_HELD


def wanted(name: str, verb: str, person: str) -> str:
    method = name.removeprefix("manager.").partition(":")[0]
    if name.startswith("manager.") and method in BY_KEY and PEOPLE[person].tenant != "acme":
        return "done"
    return expected(person, verb)


EXPORTS = {f"export.{name}": row for name, row in EXPORT_ROWS.items()}


@pytest.mark.parametrize("name", [*ROWS, *EXPORTS])
async def test_each_may_what_their_role_says(name: str) -> None:
    """For everybody a call is done, denied with whom to ask, or there is no such session: as the role says (A20, B56, C19)."""
    row, ended, due = {**ROWS, **EXPORTS}[name], {}, {}
    for person, who in PEOPLE.items():
        async with await open_manager("memory://") as manager:
            session = await shared_session(manager)
            call = lambda: row.call(manager, session, who)  # noqa: B023, E731
            ended[person] = await outcome(call, empty_is_missing=row.empty_is_missing)
            due[person] = wanted(name, row.verb, person)
    assert ended == due


@pytest.mark.parametrize("name", ROWS)
def test_each_may_the_same_without_async(name: str) -> None:
    """The façade without async asks the same (C19)."""
    row, ended, due = ROWS[name], {}, {}
    for person, who in PEOPLE.items():
        with blocking.open_manager("memory://") as manager:
            session = shared_without_async(manager)
            call = lambda: row.call(manager, session, who)  # noqa: B023, E731
            ended[person] = asyncio.run(outcome(call, empty_is_missing=row.empty_is_missing))
            due[person] = wanted(name, row.verb, person)
    assert ended == due


@pytest.mark.parametrize("name", sorted(name for name, row in ROWS.items() if row.verb not in ("read", "audit")))
async def test_who_may_not_changes_nothing(name: str) -> None:
    """After a call that was refused the session is as it was, but for the record of the refusal (A20, C19)."""
    row = ROWS[name]
    for person, who in PEOPLE.items():
        if wanted(name, row.verb, person) == "done":
            continue
        async with await open_manager("memory://") as manager:
            session = await shared_session(manager)
            before = [event.event_type for event in await session.get_full_history(principal=PEOPLE["owner"])]
            head = await manager.store.head(session.session_id)
            assert await outcome(lambda: row.call(manager, session, who)) != "done" or row.empty_is_missing  # noqa: B023
            after = [event.event_type for event in await session.get_full_history(principal=PEOPLE["owner"])]
            assert [kind for kind in after if kind != "access_denied"] == before, person
            now = await manager.store.head(session.session_id)
            assert head is not None
            assert now is not None
            assert (now.members, now.title, now.status, now.key) == (head.members, head.title, head.status, head.key)
            assert now.last_activity_at == head.last_activity_at
