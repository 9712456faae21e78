"""Erasing what was forked from: refused, taken along, or let go with copies of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kipu.errors import SessionForkedError
from kipu.events.boundary import NoteEvent, SessionInitEvent
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.interop.export_file import write_whole
from kipu.interop.export_jsonl import export_jsonl
from kipu.interop.import_events import import_events
from kipu.manager.copying import copy_store
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.session.fold import fold
from kipu.wiring import open_manager
from tests.acceptance.erasing.crowded_session import canary, files_with
from tests.acceptance.erasing.test_erasure import erase_and_die


async def say(session: Session, text: str) -> None:
    """Hold one exchange with a big result."""
    async with session.turn() as turn:
        await turn.add_event(UserMessageEvent(content=text))
        await turn.add_events(
            [AgentMessageEvent(content=""), ToolCallEvent(tool_name="t", tool_call_id=text[:20], tool_input={})]
        )
        await turn.add_event(ToolResultEvent(tool_call_id=text[:20], result=f"{text} " * 3000))
        await turn.add_event(AgentMessageEvent(content=f"heard {text}"))


async def family(manager: SessionManager) -> tuple[Session, Session, Session, dict[str, str]]:
    """Return a parent, its fork and that one's fork, and what was said before and after each fork."""
    marks = {name: canary() for name in ("shared", "after", "child", "grandchild")}
    await manager.create_session("parent", key="test:family", title="a parent")
    parent = await manager.open("parent")
    await say(parent, marks["shared"])
    child = await parent.fork()
    await say(parent, marks["after"])
    await say(child, marks["child"])
    grandchild = await child.fork()
    await say(grandchild, marks["grandchild"])
    return parent, child, grandchild, marks


async def seen(session: Session) -> dict[str, Any]:
    """Return what a fork shows: its events without whose log they are in, its windows, and its blobs."""
    events = [event async for event in session.events()]
    blobs = [event.blob.digest for event in events if isinstance(event, ToolResultEvent) and event.blob is not None]
    renderings = [await session.render(target) for target in ("neutral", "openai_chat", "anthropic")]
    return {
        "events": [event.model_copy(update={"session_id": ""}) for event in events],
        "windows": [rendering.messages for rendering in renderings],
        "blobs": {digest: await session.blob(digest) for digest in blobs},
    }


async def test_a_parent_of_forks_is_not_erased_by_chance(url: str, home: Path) -> None:
    """Erasing a parent is refused with the list of all its forks; with cascade they go too, and nothing is left (C11, C20)."""
    async with await open_manager(url) as manager:
        parent, child, grandchild, marks = await family(manager)
        with pytest.raises(SessionForkedError) as refused:
            await manager.erase_session("parent")
        assert {child.session_id, grandchild.session_id} <= set(str(refused.value.data["forks"]).split(", "))
        assert (await manager.open("parent")).title == parent.title
        receipt = await manager.erase_session("parent", cascade=True)
        assert receipt.sessions == (grandchild.session_id, child.session_id, "parent")
    assert files_with(home, list(marks.values())) == {}


async def test_a_detached_fork_shows_what_it_showed(url: str, home: Path) -> None:
    """With detach a fork keeps history, windows and blobs under the same seqs; what its parent said later is gone (C6, C11, C20, JL-27)."""
    async with await open_manager(url) as manager:
        _, child, grandchild, marks = await family(manager)
        before = {session.session_id: await seen(session) for session in (child, grandchild)}
        receipt = await manager.erase_session("parent", detach=True, prove=True)
        assert receipt.detached == (child.session_id,)
        assert receipt.proof is not None
        assert receipt.proof.found == 0
        for session_id, expected in before.items():
            shown = await seen(await manager.open(session_id))
            detached = session_id == child.session_id
            assert shown["events"][: len(expected["events"])] == expected["events"]
            assert (shown["windows"], shown["blobs"]) == (expected["windows"], expected["blobs"])
            assert len(shown["events"]) - len(expected["events"]) == detached
        assert files_with(home, [marks["after"]]) == {}
        found = await manager.search(marks["shared"])
        assert {hit.session_id for hit in found.items} == {child.session_id}
    async with await open_manager(url) as manager:
        reopened = await manager.open(child.session_id)
        assert (await seen(reopened))["windows"] == before[child.session_id]["windows"]
        assert (reopened.head.base_seq, reopened.head.forked_from) == (0, None)
        await say(reopened, "and on")
        assert await manager.store.verify() == []
        await manager.erase_session(child.session_id, cascade=True)
    assert files_with(home, list(marks.values())) == {}


async def test_a_live_fork_goes_on_after_its_parent_is_gone(url: str, home: Path) -> None:
    """A fork that another manager has open reads its old events, and goes on, after its parent was erased elsewhere (C11)."""
    async with await open_manager(url) as manager, await open_manager(url) as other:
        _, child, grandchild, marks = await family(manager)
        live = [await other.open(session.session_id) for session in (child, grandchild)]
        await manager.erase_session("parent", detach=True)
        for session in live:
            said = [str(event.content) async for event in session.events() if isinstance(event, UserMessageEvent)]
            assert marks["shared"] in said
            await say(session, "on and on")
            assert marks["shared"] in str(await session.get_context_for_llm())


async def test_a_detached_fork_is_copied_whole(url: str, home: Path) -> None:
    """A fork that stands alone is copied to another store with all its events, and its head is what they make of it (C11, C22, EV-19)."""
    async with await open_manager(url) as manager, await open_manager(f"jsonl:///{home}/copy") as target:
        _, child, _, _ = await family(manager)
        await manager.erase_session("parent", detach=True)
        report = await copy_store(manager.store, target.store, owner="test")
        assert report.skipped == ()
        here, there = await manager.open(child.session_id), await target.open(child.session_id)
        assert await seen(here) == await seen(there)
        events = [event async for event in here.events()]
        assert sum(isinstance(event, SessionInitEvent) for event in events) == 2
        made = fold(events)
        head = await manager.store.head(child.session_id)
        assert head is not None
        names = (
            "key",
            "title",
            "metadata",
            "status",
            "event_count",
            "base_seq",
            "forked_from",
            "pins",
            "waiting",
        )
        assert {name: getattr(made, name) for name in names} == {name: getattr(head, name) for name in names}


@pytest.mark.parametrize("shared", ["修复测试", None])
async def test_a_copied_fork_that_stands_alone_since_is_copied_again(url: str, home: Path, shared: str | None) -> None:
    """The copy of a fork takes over what it shared, be it nothing that was said, and the next sessions come too (C11, C22)."""
    async with await open_manager(url) as manager, await open_manager(f"jsonl:///{home}/copy") as target:
        await manager.create_session("parent")
        parent = await manager.open("parent")
        if shared is not None:
            await say(parent, shared)
        child = await parent.fork()
        await say(child, "of its own")
        assert (await copy_store(manager.store, target.store, owner="test")).skipped == ()
        await manager.erase_session("parent", detach=True)
        await say(child, "since then")
        await manager.create_session("later")
        report = await copy_store(manager.store, target.store, owner="test")
        assert report.skipped == ()
        assert await target.get_session("later") is not None
        here, there = await manager.open(child.session_id), await target.open(child.session_id)
        assert await seen(here) == await seen(there)
        assert (here.head.event_count, here.head.token_count) == (there.head.event_count, there.head.token_count)


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6, 8])
async def test_a_killed_detaching_loses_nothing(url: str, home: Path, at: int) -> None:
    """Killed at any step of letting a fork go, the fork shows what it showed, and doing it again ends it (C11, C16)."""
    async with await open_manager(url) as manager:
        _, child, grandchild, marks = await family(manager)
        before = {session.session_id: await seen(session) for session in (child, grandchild)}
    erase_and_die(url, "parent", at=at, before=False, detach=True)
    async with await open_manager(url) as manager:
        for again in (False, True):
            for session_id, expected in before.items():
                shown = await seen(await manager.open(session_id))
                assert shown["windows"] == expected["windows"]
                assert shown["events"][: len(expected["events"])] == expected["events"]
            if not again and await manager.store.head("parent") is not None:
                await manager.erase_session("parent", detach=True)
    assert files_with(home, [marks["after"]]) == {}


async def test_a_fork_made_while_its_parent_goes_is_refused_or_kept(url: str, home: Path) -> None:
    """A fork of a session whose erasure is under way is taken back, and the error says that the session is erased (C11)."""
    async with await open_manager(url) as manager:
        parent, *_ = await family(manager)
        ending: Any = manager._ending
        await ending._eraser.ledger.begin(
            "erasure_x", {"kind": "session"}, steps=[{"session_id": "parent", "places": {}}]
        )
        heads = [head.session_id async for head in manager.heads()]
        with pytest.raises(Exception, match="was erased"):
            await parent.fork()
        assert [head.session_id async for head in manager.heads()] == heads
        await parent.add_event(NoteEvent(kind="test"))


async def test_a_detached_fork_s_export_comes_back(url: str, home: Path) -> None:
    """The lines of a fork that stands alone are imported as one session, none as raw text, and show the same (C11, EV-19)."""
    async with await open_manager(url) as manager, await open_manager(f"sqlite:///{home}/other.db") as target:
        _, child, _, _ = await family(manager)
        await manager.erase_session("parent", detach=True)
        here = await manager.open(child.session_id)
        lines = home / "fork.jsonl"
        await write_whole(lines, export_jsonl(here, inline_blobs=True))
        report = await import_events(target, lines)
        assert (report.raw, report.quarantined, len(report.sessions)) == (0, 0, 1)
        assert (await import_events(target, lines)).added == 0
        there = await target.open(child.session_id)
        assert (await seen(there))["windows"] == (await seen(here))["windows"]
        assert (there.head.base_seq, there.head.forked_from, there.head.owner) == (0, None, here.head.owner)


async def test_a_fork_from_before_the_first_message_knows_nothing_of_it(url: str, home: Path) -> None:
    """Neither its title nor its head holds what its parent said after the fork, so that erasing the parent takes it (C11, C20)."""
    word = canary()
    async with await open_manager(url) as manager:
        parent = await manager.get_or_create("cli:parent")
        await say(parent, word)
        early, late = await parent.fork(1), await parent.fork(3)
        assert late.title == f"{word} (fork)"
        assert (await early.fork()).head.first_text is None
        await manager.erase_session(late.session_id)
        await manager.erase_session(parent.session_id, detach=True)
        assert early.title == f"{parent.session_id} (fork)"
    assert files_with(home, [word]) == {}
