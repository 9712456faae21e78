"""A store in a folder that may not be written: it is read, and writing says why not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kipu.errors import StoreReadOnlyError
from kipu.events.conversation import UserMessageEvent
from kipu.wiring import open_manager
from tests.unit.cli.command_line import CommandLine

pytestmark = pytest.mark.skipif(os.name == "nt", reason="file modes and mounts are those of Unix")


class Folder:
    """A folder that can be closed to writers: by its modes, or for root, who may write anything, by its mount."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mounted = os.geteuid() == 0
        if self._mounted:
            path.mkdir()
            if shutil.which("mount") is None or self._run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(path)):
                pytest.skip("this machine lets nobody mount")
        else:
            path.mkdir()

    @staticmethod
    def _run(*words: str) -> int:
        return subprocess.run(words, check=False, capture_output=True).returncode

    def close(self) -> None:
        """Let nobody write any more."""
        if self._mounted:
            assert self._run("mount", "-o", "remount,ro", str(self.path)) == 0
            return
        for path in [*self.path.rglob("*"), self.path]:
            path.chmod(path.stat().st_mode & ~0o222)

    def remove(self) -> None:
        """Put everything back."""
        if self._mounted:
            self._run("umount", str(self.path))
            return
        for path in [self.path, *self.path.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """Yield such a folder, open to writers."""
    made = Folder(tmp_path / "place")
    yield made
    made.remove()


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_a_store_in_a_closed_folder_is_read_and_not_written(kind: str, folder: Folder) -> None:
    """Sessions, keys, lists and windows are there; a write is StoreReadOnlyError, never "no session" (A50, ST-212)."""
    url = f"{kind}:///{folder.path}/a store"
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("cli:p")
        await session.add_event(UserMessageEvent(content="needle"))
        await manager.search("needle")
    folder.close()
    async with await open_manager(url) as manager:
        assert manager.store.describe().read_only
        again = await manager.get_or_create("cli:p")
        assert again.session_id == session.session_id
        assert [message["content"] for message in await again.get_context_for_llm()] == ["needle"]
        assert await manager.list_sessions() == [session.session_id]
        assert len((await manager.search("needle")).items) == 1
        assert await manager.store.verify() == []
        with pytest.raises(StoreReadOnlyError, match="may not be written"):
            await again.add_event(UserMessageEvent(content="more"))


async def test_search_finds_what_is_indexed_when_the_rest_cannot_be(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that takes in no terms is searched as far as it is indexed, which is said once (C16)."""
    url = f"sqlite:///{folder.path}/a store"
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("cli:p")
        await session.add_event(UserMessageEvent(content="needle one"))
        await manager.search("needle")
        await session.add_event(UserMessageEvent(content="needle two"))
    folder.close()
    async with await open_manager(url) as manager:
        for _ in range(2):
            assert [hit.snippet for hit in (await manager.search("needle")).items] == ["needle one"]
    assert len([record for record in caplog.records if "search index" in record.message]) == 1


async def test_the_command_searches_what_is_indexed_when_the_rest_cannot_be(folder: Folder, tmp_path: Path) -> None:
    """`kipu search` finds in a store that may not be written what a program's search finds, and says what is not (C16)."""
    url = f"sqlite:///{folder.path}/a store"
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("cli:p")
        await session.add_event(UserMessageEvent(content="needle one"))
        await manager.search("needle")
        await session.add_event(UserMessageEvent(content="needle two"))
    folder.close()
    ran = CommandLine(tmp_path, url).process("search", "needle", "--json")
    assert (ran.code, [hit["snippet"] for hit in ran.json]) == (0, ["needle one"])
    assert "newer events are not found" in ran.stderr
