"""The table is the one place: what it does not say is denied, and the page says what it says (A19, C19)."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType

import pytest

from kipu.errors import KipuError
from kipu.manager import access
from kipu.manager.access import TABLE, Role, Verb, may
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.wiring import open_manager
from tests.acceptance.access.facade_calls import MANAGER_ROWS, SESSION_ROWS
from tests.acceptance.access.people import ALLOWED, OWNER, PEOPLE, outcome, shared_session

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "access.md"
PERSON = {Role.OWNER: "owner", Role.ADMIN: "admin", Role.PARTICIPANT: "participant", Role.VIEWER: "viewer"}


def test_table_is_the_one_written_by_hand() -> None:
    """Every verb is in the table, with the roles that the tests write down once more (C19)."""
    assert set(TABLE) == set(Verb)
    for verb, roles in TABLE.items():
        assert {PERSON[role] for role in roles} == ALLOWED[verb.name.lower()] - {"tenant admin"}, verb


def test_page_shows_the_table() -> None:
    """The table of docs/concepts/access.md is the code's, verb by verb and role by role (C19)."""
    rows = re.findall(r"^\| `(\w+)` \|.*?\| (.) \| (.) \| (.) \| (.) \|$", PAGE.read_text(), re.MULTILINE)
    shown = {name: {role for role, mark in zip(Role, marks, strict=True) if mark == "✓"} for name, *marks in rows}
    assert shown == {verb.name.lower(): set(roles) for verb, roles in TABLE.items()}


@pytest.mark.parametrize("verb", Verb)
async def test_right_that_is_taken_out_of_the_table_is_gone_everywhere(
    monkeypatch: pytest.MonkeyPatch, verb: Verb
) -> None:
    """Without its row, or without one role in it, a verb is denied by every call that asks for it: nothing else allows (C19)."""
    rows = [row for row in [*SESSION_ROWS.values(), *MANAGER_ROWS.values()] if row.verb == verb.name.lower()]
    assert rows or verb in {Verb.DECIDE, Verb.WITHDRAW}
    for row in rows:
        for person in ("owner", "admin", "participant", "viewer"):
            async with await open_manager("memory://") as manager:
                session = await shared_session(manager)
                with monkeypatch.context() as patch:
                    patch.setattr(access, "TABLE", MappingProxyType({v: r for v, r in TABLE.items() if v != verb}))
                    ended = await outcome(
                        lambda: row.call(manager, session, PEOPLE[person]),  # noqa: B023
                        empty_is_missing=row.empty_is_missing,
                    )
                assert ended != "done", (row, person)


async def test_role_that_may_not_read_sees_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists and searches ask the table too: a role taken out of `read` lists, finds and follows nothing (C19)."""
    async with await open_manager("memory://") as manager:
        session = await shared_session(manager)
        vic = PEOPLE["viewer"]
        assert await manager.list_sessions(principal=vic) == [session.session_id]
        patched = {**TABLE, Verb.READ: TABLE[Verb.READ] - {Role.VIEWER}}
        monkeypatch.setattr(access, "TABLE", MappingProxyType(patched))
        assert await manager.list_sessions(principal=vic) == []
        assert not (await manager.search("secret", principal=vic)).items
        assert await manager.get_session(session.session_id, principal=vic) is None


async def test_right_that_is_put_into_the_table_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing beside the table refuses: a role added to a row may, and everybody else is as before (C19)."""
    async with await open_manager("memory://") as manager:
        session = await shared_session(manager)
        monkeypatch.setattr(access, "TABLE", MappingProxyType({**TABLE, Verb.FORK: TABLE[Verb.FORK] | {Role.VIEWER}}))
        fork = await session.fork(principal=PEOPLE["viewer"])
        assert fork.head.owner == "vic"
        with pytest.raises(KipuError):
            await session.fork(principal=PEOPLE["participant"])


def test_role_of_a_later_version_gives_nothing() -> None:
    """A role in a head that this version does not know, or one for an owner nobody named, is no role (C19)."""
    later = Head("s", tenant="acme", owner="ada", members={"bob": "editor", "cyd": "owner"})
    damaged = Head("s", owner="", members={"bob": "admin"})
    for verb in Verb:
        assert not may(Principal("bob", "acme"), verb, head=later)
        assert not may(Principal("cyd", "acme"), verb, head=later)
        assert not may(Principal("bob"), verb, head=damaged)
        assert not may(Principal("", "acme"), verb, head=later)
    assert may(OWNER, Verb.ERASE, head=later)
    assert may(Principal.local(), Verb.READ, head=damaged)
