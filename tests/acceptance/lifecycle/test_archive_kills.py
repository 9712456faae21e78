"""SIGKILL at every step of archiving and of coming back: nothing is lost, and the next call goes on (C16, B48)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kipu.events.conversation import UserMessageEvent
from kipu.manager.lifecycle.session_archives import SessionArchives
from tests.acceptance.lifecycle.sessions import STORES, archive, filled, opened, whole

MOST_STEPS = 400


def killed_at(folder: Path, kind: str, session_id: str, *, what: str, number: int, how: str) -> bool:
    """Run the process to this step; return False when it came to its end instead."""
    words = (f"{kind}:///{folder}/store", session_id, what, str(number), how)
    command = [sys.executable, "-m", "tests.acceptance.lifecycle.killed_archiver", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in {0, -9}, done.stderr[-2000:]
    return done.returncode == -9


async def every_step(folder: Path, kind: str, *, what: str, how: str, stride: int) -> int:
    """Kill at one step after the other, each in a session as it was before, and check after each; return how many there were."""
    number = 1
    while number < MOST_STEPS:
        async with opened(folder, kind) as manager:
            session_id = await filled(manager, events=12, key=f"cli:{number}")
            await (await manager.open(session_id)).add_event(UserMessageEvent(content="the last"))
            before = await whole(manager, session_id)
            blobs = await manager.store.blobs(session_id)
            if what == "unarchive":
                await archive(manager, session_id)
                before = await whole(manager, session_id)
        is_killed = killed_at(folder, kind, session_id, what=what, number=number, how=how)
        async with opened(folder, kind) as manager:
            assert (await whole(manager, session_id))[: len(before)] == before, f"step {number} of {what}"
            assert await manager.store.blobs(session_id) == blobs
            assert [damage for damage in await manager.store.verify(session_id) if damage.reason != "torn"] == []
            archives = SessionArchives(manager)
            if what == "archive":
                await archives.archive(session_id)
                head = await manager.store.head(session_id)
                assert head is not None
                assert head.offloaded_seq == head.last_seq
                assert (await whole(manager, session_id))[: len(before)] == before
            await archives.unarchive(session_id)
            assert (await whole(manager, session_id))[: len(before)] == before
            assert await manager.store.blobs(session_id) == blobs
            assert list((folder / "store.archive").iterdir()) == []
            assert await manager.store.verify(session_id) == []
        if not is_killed:
            return number - 1
        number += stride
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("what", ["archive", "unarchive"])
async def test_a_kill_between_steps_loses_nothing_and_is_gone_on_from(tmp_path: Path, kind: str, what: str) -> None:
    """Killed before and after each change to store or place, a session is whole, and calling again does the work (C16, AR-11)."""
    assert await every_step(tmp_path, kind, what=what, how="calls", stride=1) >= 4


@pytest.mark.long
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("what", ["archive", "unarchive"])
async def test_a_kill_at_any_change_of_a_file_loses_nothing(tmp_path: Path, kind: str, what: str) -> None:
    """Killed at every opening, renaming and removing of a file, a session is whole, and the work is done by calling again (C16)."""
    assert await every_step(tmp_path, kind, what=what, how="files", stride=1) >= 4


@pytest.mark.parametrize("what", ["archive", "unarchive"])
async def test_a_kill_at_some_changes_of_files_loses_nothing(tmp_path: Path, what: str) -> None:
    """The same for some of the changes of files, in a store of files (C16, JL-29, JL-30)."""
    assert await every_step(tmp_path, "jsonl", what=what, how="files", stride=9) >= 4
