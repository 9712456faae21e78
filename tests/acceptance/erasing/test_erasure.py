"""Erasing a session: no byte of it is left anywhere, and everything else is as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from kipu.errors import SessionErasedError, SessionNotFoundError
from kipu.manager.manager import SessionManager
from kipu.runtime.policy.grants import Grants
from kipu.stores.host import SystemClock
from kipu.wiring import open_manager
from tests.acceptance.erasing.crowded_session import HISTORY, WORKSPACES, crowd, files_with


async def exported(manager: SessionManager, session_id: str) -> tuple[object, ...]:
    """Return all that can be seen of a session."""
    store = manager.store
    head = await store.head(session_id)
    blobs = {digest: await store.get_blob(session_id, digest) for digest in await store.blobs(session_id)}
    return (head, await store.read(session_id), await store.keys(session_id), await store.outcomes(session_id), blobs)


async def test_an_erased_session_leaves_no_byte_in_any_file(url: str, home: Path) -> None:
    """After erasing no file has a byte of any field of the session, its neighbour is as before, the receipt names all (C20, B27, B58)."""
    async with await open_manager(url) as manager:
        stays = await crowd(manager, url, home, session_id="stays")
        goes = await crowd(manager, url, home, session_id="goes")
        assert len(files_with(home, goes.marks)) >= 3, "the marks are in files before"
        before = await exported(manager, "stays")
        receipt = await manager.erase_session("goes", prove=True)
        assert files_with(home, goes.marks) == {}
        after = await exported(manager, "stays")
        assert after == before
        with pytest.raises(SessionNotFoundError):
            await manager.open("goes")
        assert await manager.search(goes.marks[5]) == await manager.search("nothing-at-all-like-this")
        assert await manager.resolve(f"test:{goes.marks[0]}") is None
    assert files_with(home, goes.marks) == {}
    assert receipt.proof is not None
    assert (receipt.proof.found, receipt.proof.repeated) == (0, 0)
    assert receipt.proof.samples > 20
    removed = receipt.removed
    assert set(removed) >= {"store", "workspace", "grants", "memory", "chat_history"}
    assert (removed["workspace"], removed["grants"], removed["memory"]) == ({"files": 2}, {"grants": 1}, {"facts": 1})
    assert removed["chat_history"] == {"lines": 1}
    assert all(mark not in orjson.dumps(receipt.to_json()).decode() for mark in goes.marks)
    assert (home / WORKSPACES / "stays").is_dir()
    assert stays.marks[5] in (home / HISTORY).read_text() or any(m in (home / HISTORY).read_text() for m in stays.marks)


async def test_an_erased_session_stays_erased_after_reopening(url: str, home: Path) -> None:
    """After reopening the id is not used again, the receipt can be read, others' grants stand, and nothing is damaged (C20, B58)."""
    async with await open_manager(url) as manager:
        await crowd(manager, url, home, session_id="goes")
        done = await manager.erase_session("goes")
    async with await open_manager(url) as manager:
        assert await manager.receipts() == [done]
        assert await manager.receipts(session_id="goes") == [done]
        assert await manager.receipts(session_id="stays") == []
        with pytest.raises(SessionErasedError):
            await manager.create_session("goes")
        assert [head.session_id async for head in manager.heads()] == []
        grants = await Grants(manager, clock=SystemClock()).list(manager.principal)
        assert [(grant.subject, grant.approval_id) for grant in grants] == [("ls", "approval_elsewhere")]
        assert await manager.store.verify() == []


def erase_and_die(url: str, what: str, *, at: int, before: bool, detach: bool = False) -> bool:
    """Run the eraser that kills itself; return True when it did, False when it had fewer steps."""
    command = [sys.executable, "-m", "tests.acceptance.erasing.killed_eraser", url, what, str(at)]
    command += ["before" if before else "after", "detach" if detach else "-"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode in {0, -9}, ran.stderr[-2000:]
    return ran.returncode == -9


async def expect_finished(url: str, home: Path, *, at: int, before: bool) -> None:
    """Kill an erasure at a step, and say that the next opening ends it, or that it had not begun."""
    async with await open_manager(url) as manager:
        await crowd(manager, url, home, session_id="stays")
        goes = await crowd(manager, url, home, session_id="goes")
        neighbour = await exported(manager, "stays")
    was_killed = erase_and_die(url, "goes", at=at, before=before)
    async with await open_manager(url) as manager:
        assert await exported(manager, "stays") == neighbour
        receipts = await manager.receipts()
        if not receipts:
            assert was_killed
            await manager.open("goes")
            receipts = [await manager.erase_session("goes")]
        assert [receipt.sessions for receipt in receipts] == [("goes",)]
        assert await manager.store.head("goes") is None
    assert files_with(home, goes.marks) == {}


@pytest.mark.parametrize("at", [2, 6, 8, 10, 12])
async def test_a_killed_erasure_is_finished_by_the_next_opening(url: str, home: Path, at: int) -> None:
    """Killed after a step, an erasure is ended to the last byte by whoever opens the store next, or had not begun (C20)."""
    await expect_finished(url, home, at=at, before=False)


@pytest.mark.long
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 20))
async def test_an_erasure_killed_anywhere_is_finished(url: str, home: Path, at: int, before: bool) -> None:
    """Killed before or after any of its steps, an erasure is ended by whoever opens the store next, or had not begun (C20)."""
    await expect_finished(url, home, at=at, before=before)
