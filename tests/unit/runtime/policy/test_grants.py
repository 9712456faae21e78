"""What people allowed for more than once: where it holds, how long, and that it can be taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kipu import open_manager
from kipu.errors import InputError
from kipu.events.boundary import MetadataChangedEvent, SessionInitEvent
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.ports.store import SessionQuery
from kipu.runtime.policy.grant import Grant, GrantScope
from kipu.runtime.policy.grants import Grants, project_of
from kipu.runtime.tools.shell_commands import commands_of
from kipu.session.patch import patch_for
from kipu.testing.fakes import FakeClock

ALICE = Principal("alice", tenant="acme")
ONLY_SESSION: tuple[GrantScope, ...] = ("session",)
BOB = Principal("bob", tenant="acme")


@pytest.fixture(params=["memory://", "sqlite", "jsonl"])
async def manager(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionManager]:
    url = {"memory://": "memory://", "sqlite": f"sqlite:///{tmp_path}/a.db", "jsonl": f"jsonl:///{tmp_path}/logs"}
    async with await open_manager(url[request.param]) as opened:
        yield opened


def grants_of(manager: SessionManager) -> Grants:
    return Grants(manager, clock=FakeClock(), splitters={"shell": commands_of})


async def session_in(
    manager: SessionManager,
    root: str | None = None,
    *,
    workspace: dict[str, Any] | None = None,
    principal: Principal = ALICE,
) -> Session:
    """Return a session with a directory of its own, or the one named."""
    if workspace is None:
        workspace = {"kind": "private", "path": "/p"} if root is None else {"kind": "directory", "path": root}
    session_id = manager.mint("sess")
    init = SessionInitEvent(owner=principal.id, tenant=principal.tenant, workspace=workspace)
    prepared = await manager.writer.prepare(session_id, init)
    await manager.store.append(session_id, [prepared.record], head=patch_for([prepared.event]))
    return await manager.open(session_id, principal=principal)


async def give(grants: Grants, session: Session, subject: str = "npm test", **how: Any) -> Grant:
    values = {"scope": "session", "principal": ALICE, "by": "alice", "approval_id": "appr_1", **how}
    return await grants.add(session, values.pop("tool", "shell"), subject=subject, **values)


async def is_granted(
    grants: Grants, session: Session, subject: str = "npm test", tool: str = "shell", principal: Principal = ALICE
) -> bool:
    return await grants.matching(session, tool, subject=subject, principal=principal) is not None


async def test_grants_allow_only_what_was_seen(manager: SessionManager) -> None:
    """A grant covers the tool, the very subject and the principal it was given for, and nothing else (C15, A19)."""
    grants, session = grants_of(manager), await session_in(manager)
    assert not await is_granted(grants, session)
    await give(grants, session)
    assert await is_granted(grants, session)
    for subject in ("npm test ", "npm test; rm -rf /", "npm", "NPM test", "npm test && npm test", ""):
        assert not await is_granted(grants, session, subject)
    assert not await is_granted(grants, session, tool="write_file")
    assert not await is_granted(grants, session, principal=Principal("alice"))


async def test_grants_for_a_session_are_not_used_in_another(manager: SessionManager) -> None:
    """Scope session ends with the session: others and forks of it ask again (C15, A19)."""
    grants, session = grants_of(manager), await session_in(manager)
    await give(grants, session)
    assert not await is_granted(grants, await session_in(manager))
    fork = await session.fork(principal=ALICE)
    assert not await is_granted(grants, fork)


async def test_grants_for_a_project_are_not_used_in_another(manager: SessionManager) -> None:
    """What was allowed in one project is asked again in every other, also in one whose path begins alike (A4, C15)."""
    grants = grants_of(manager)
    await give(grants, await session_in(manager, "/work/a"), scope="project")
    assert await is_granted(grants, await session_in(manager, "/work/a/"))
    for root in ("/work/b", "/work/a/sub", "/work/ab", "/work", None):
        assert not await is_granted(grants, await session_in(manager, root))


async def test_grants_for_a_user_hold_in_every_session_of_theirs(manager: SessionManager) -> None:
    """Scope user is one principal's, in all their sessions, and no one else's (C15, A20)."""
    grants = grants_of(manager)
    await give(grants, await session_in(manager), scope="user")
    assert await is_granted(grants, await session_in(manager))
    assert not await is_granted(grants, await session_in(manager, principal=BOB), principal=BOB)
    assert await grants.list(BOB) == []


async def test_grants_of_scopes_that_are_not_asked_for_do_not_count(manager: SessionManager) -> None:
    """A caller that only takes a session's grants is not given a user's (A19)."""
    grants, session = grants_of(manager), await session_in(manager)
    await give(grants, session, scope="user")
    found = await grants.matching(session, "shell", subject="npm test", principal=ALICE, scopes=ONLY_SESSION)
    assert found is None


@pytest.mark.parametrize(
    ("tool", "granted", "match", "covered", "uncovered"),
    [
        (
            "shell",
            "npm run",
            "below",
            ["npm run", "npm run a", "npm run a; npm run b"],
            ["npm runx", "npm run a; rm b", "X=1 npm run a", "npm run $(x)", "npm run a > /etc/x", "npm run ../x"],
        ),
        ("shell", "rm *", "below", ["rm *", "rm * x"], ["rm x", "rm -rf /"]),
        ("shell", "git log*", "pattern", ["git log", "git log -1"], ["git push", "git log | sh"]),
        ("shell", "a; b", "exact", ["a; b"], ["a", "b", "a;b"]),
        (
            "write_file",
            "src/",
            "below",
            ["src", "src/a", "src/a/b"],
            ["srcs", "src/../x", "src/a/../../x", "SRC/a", "./src/a", "ｓrc/a", "src/a\u202e"],
        ),
        ("write_file", "a*", "below", ["a*", "a*/b"], ["ab", "a/b"]),
        ("write_file", "*", "pattern", ["anything", "../x"], []),
    ],
)
async def test_grants_cover_what_was_chosen_and_nothing_that_looks_like_it(
    tool: str, granted: str, match: Any, covered: list[str], uncovered: list[str]
) -> None:
    """Exact, below and pattern are read to the letter: no trick of paths, commands or characters widens one (A19, C15)."""
    async with await open_manager("memory://") as manager:
        grants, session = grants_of(manager), await session_in(manager)
        await give(grants, session, granted, tool=tool, match=match)
        assert [text for text in covered if not await is_granted(grants, session, text, tool)] == []
        assert [text for text in uncovered if await is_granted(grants, session, text, tool)] == []


async def test_grants_can_be_listed_and_revoked(manager: SessionManager) -> None:
    """Each grant is listed with who gave it in which approval, and holds no longer once revoked (C15)."""
    grants, session = grants_of(manager), await session_in(manager, "/work/a")
    made = [await give(grants, session, scope=scope) for scope in ("user", "project", "session")]
    listed = await grants.list(ALICE, session=session)
    assert listed == made[::-1]
    assert {(grant.by, grant.approval_id, grant.created_at[:4]) for grant in listed} == {("alice", "appr_1", "2027")}
    assert not await grants.revoke(made[0].grant_id, principal=BOB)
    for grant in made:
        assert await is_granted(grants, session)
        assert await grants.revoke(grant.grant_id, principal=ALICE, session=session)
        assert not await grants.revoke(grant.grant_id, principal=ALICE, session=session)
    assert not await is_granted(grants, session)
    assert await grants.list(ALICE, session=session) == []


async def test_grants_survive_a_rewind(manager: SessionManager) -> None:
    """Going back in a session's history takes no grant back, and brings no revoked one back (C11, C15)."""
    grants, session = grants_of(manager), await session_in(manager)
    revoked = await give(grants, session, "rm x")
    await session.add_event(UserMessageEvent(content="do it"), principal=ALICE)
    await session.add_event(AgentMessageEvent(content="done"), principal=ALICE)
    await give(grants, session, "npm test")
    await grants.revoke(revoked.grant_id, principal=ALICE, session=session)
    await session.rewind(principal=ALICE)
    assert await is_granted(grants, session)
    assert not await is_granted(grants, session, "rm x")


async def test_grants_are_kept_out_of_lists_and_found_by_their_key(manager: SessionManager) -> None:
    """The session that keeps grants is not among a person's sessions, unless its key is asked for (A20, C15)."""
    grants, session = grants_of(manager), await session_in(manager)
    await give(grants, session, scope="user")
    assert await manager.list_sessions(principal=ALICE) == [session.session_id]
    page = await manager.list(SessionQuery(key_prefix="kipu:"), principal=ALICE)
    assert [head.key for head in page.items] == ["kipu:grants;tenant=acme;member=alice"]
    assert await manager.list_sessions({"key_prefix": "kipu:"}, principal=BOB) == []


async def test_grants_of_a_session_that_was_copied_into_settings_allow_nothing(manager: SessionManager) -> None:
    """A grant binds to session and principal by its own words: a copy elsewhere, or a broken one, is no grant (A19, A20)."""
    grants, session, other = grants_of(manager), await session_in(manager), await session_in(manager)
    made = await give(grants, session)
    wrong: dict[str, Any] = {
        "grant.copy": made.to_json(),
        "grant.half": {**made.to_json(), "scope": "all"},
        "grant.none": 3,
    }
    await other.add_event(MetadataChangedEvent(set=wrong), principal=ALICE)
    assert not await is_granted(grants, other)
    wide: dict[str, Any] = {"grant.wide": {**made.to_json(), "scope": "user", "target": ""}}
    await other.add_event(MetadataChangedEvent(set=wide), principal=ALICE)
    assert not await is_granted(grants, other)


@pytest.mark.parametrize(
    "how",
    [{"scope": "world"}, {"match": "regex"}, {"scope": "project"}, {"by": ""}, {"approval_id": ""}, {"tool": ""}],
)
async def test_grants_that_bind_to_nothing_are_refused(how: dict[str, Any]) -> None:
    """A grant without a known scope, a project to hold in, or somebody who decided is not kept (C15)."""
    async with await open_manager("memory://") as manager:
        grants, session = grants_of(manager), await session_in(manager)
        with pytest.raises(InputError):
            await give(grants, session, **how)
        assert await grants.list(ALICE, session=session) == []


@pytest.mark.parametrize("scheme", ["sqlite:///{}/a.db", "jsonl:///{}/logs"])
async def test_grants_of_two_processes_at_once_are_all_kept(tmp_path: Path, scheme: str) -> None:
    """Two that add at the same time lose none, and each sees what the other granted and revoked, over a restart (C15)."""
    url = scheme.format(tmp_path)
    async with await open_manager(url) as one, await open_manager(url) as two:
        here, there = grants_of(one), grants_of(two)
        session = await session_in(one)
        twin = await two.open(session.session_id, principal=ALICE)
        adding = [
            give(grants, place, f"cmd {n}", scope=scope)
            for n in range(4)
            for grants, place in ((here, session), (there, twin))
            for scope in ("user", "session")
        ]
        made = await asyncio.gather(*adding)
        for n in range(4):
            assert await is_granted(here, session, f"cmd {n}")
            assert await is_granted(there, twin, f"cmd {n}")
        first = {grant.grant_id for grant in made if grant.subject == "cmd 0"}
        for grant_id in first:
            await here.revoke(grant_id, principal=ALICE, session=session)
        assert not await is_granted(there, twin, "cmd 0")
    async with await open_manager(url) as again:
        kept = await grants_of(again).list(ALICE, session=await again.open(session.session_id, principal=ALICE))
        assert {grant.subject for grant in kept} == {"cmd 1", "cmd 2", "cmd 3"}


async def test_grants_know_the_project_of_a_worktree_by_its_repository(manager: SessionManager) -> None:
    """A repository and its worktrees are one project; a private directory is none (B41)."""
    worktree = {"kind": "worktree", "path": "/work/trees/x", "repository": "/work/a"}
    sessions = [await session_in(manager, "/work/a/"), await session_in(manager, workspace=worktree)]
    assert [project_of(session) for session in sessions] == ["/work/a", "/work/a"]
    assert project_of(await session_in(manager)) is None
