"""`write_file` puts whole files, new or in the place of known ones."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kipu.runtime.workspaces.beneath import BeneathFiles
from tests.unit.runtime.tools.tool_bench import ToolBench


async def test_write_file_makes_files_and_directories(bench: ToolBench) -> None:
    """A new file is there exactly as given, with the directories above it."""
    text = "a\r\nb\u4e2d\n\tc"
    assert "Created a/b/c.txt: 3 lines" in await bench.text("write_file", path="a/b/c.txt", content=text)
    assert (bench.root / "a/b/c.txt").read_bytes() == text.encode()


async def test_write_file_overwrites_only_what_was_read(bench: ToolBench) -> None:
    """A file that the session does not know as it is now stays; once read it is replaced."""
    file = bench.put("a", "one\n")
    assert (await bench.error("write_file", path="a", content="two\n"))[0] == "unread"
    await bench.text("read_file", path="a")
    file.write_bytes(b"other\n")
    assert (await bench.error("write_file", path="a", content="two\n"))[0] == "changed"
    assert file.read_bytes() == b"other\n"
    await bench.text("read_file", path="a")
    assert "Overwrote a" in await bench.text("write_file", path="a", content="two\n")
    assert "Overwrote a" in await bench.text("write_file", path="a", content="three\n")


async def test_write_file_may_run_again(bench: ToolBench) -> None:
    """The same content again is no failure, also in a process that has read nothing: a write is idempotent (C14)."""
    await bench.text("write_file", path="a", content="one\n")
    other = ToolBench(bench.root)
    assert "exactly this content already" in await other.text("write_file", path="a", content="one\n")
    assert "Overwrote a" in await other.text("write_file", path="a", content="two\n")
    tool = bench.toolbox.find("write_file")
    assert tool is not None
    assert tool.spec.is_idempotent


async def test_write_file_shows_a_diff_before(bench: ToolBench) -> None:
    """The preview shows what would change, and changes nothing."""
    preview = await bench.preview("write_file", path="new", content="one\n")
    assert (preview.summary, preview.diff) == (
        "create new: +1 -0 lines",
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1,1 @@\n+one\n",
    )
    assert not (bench.root / "new").exists()
    bench.put("old", "one\n")
    assert "which will fail" in (await bench.preview("write_file", path="old", content="two\n")).summary
    await bench.text("read_file", path="old")
    preview = await bench.preview("write_file", path="old", content="two")
    assert preview.diff is not None
    assert preview.diff.endswith("-one\n+two\n\\ No newline at end of file\n")
    assert "will fail" in (await bench.preview("write_file", path="../out", content="x")).summary


async def test_write_file_refuses_half_a_character(bench: ToolBench) -> None:
    """A lone surrogate is told, and nothing is written."""
    assert (await bench.error("write_file", path="a", content="\ud83d"))[0] == "encoding"
    assert list(bench.root.iterdir()) == []


async def test_write_file_refuses_directories(bench: ToolBench) -> None:
    """A directory, and the root itself, are not overwritten."""
    bench.put("d/a", "")
    assert (await bench.error("write_file", path="d", content=""))[0] == "not_a_file"
    assert (await bench.error("write_file", path=".", content=""))[0] == "not_a_file"


class SlowFiles(BeneathFiles):
    """Files whose writes wait for a word."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.loop = asyncio.get_running_loop()
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    def write(self, path: str, data: bytes, **options: Any) -> None:
        self.loop.call_soon_threadsafe(self.begun.set)
        asyncio.run_coroutine_threadsafe(self.go.wait(), self.loop).result(30)
        super().write(path, data, **options)


async def test_write_file_changes_nothing_after_it_was_cancelled(tmp_path: Path) -> None:
    """A cancelled call ends only when its write has ended: nothing changes behind the back of the next turn (B49)."""
    files = SlowFiles(tmp_path)
    bench = ToolBench(tmp_path, files=files)
    call = asyncio.ensure_future(bench.call("write_file", path="a", content="one\n"))
    await files.begun.wait()
    call.cancel()
    closing = asyncio.ensure_future(bench.toolbox.aclose())
    for _ in range(20):
        await asyncio.sleep(0)
    assert (call.done(), closing.done(), (tmp_path / "a").exists()) == (False, False, False)
    files.go.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (tmp_path / "a").read_bytes() == b"one\n"
    await closing


FULL_DISK = """
    import asyncio, resource, signal, sys
    from pathlib import Path
    from tests.unit.runtime.tools.tool_bench import ToolBench

    async def main():
        bench = ToolBench(Path(sys.argv[1]))
        await bench.text("read_file", path="a")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        for name, arguments in (
            ("write_file", {"path": "a", "content": "x" * 100_000}),
            ("write_file", {"path": "new", "content": "x" * 100_000}),
            ("edit_file", {"path": "a", "edits": [{"old_text": "one", "new_text": "y" * 100_000}]}),
        ):
            print(await bench.error(name, **arguments))

    asyncio.run(main())
"""


def test_writes_leave_the_old_file_when_there_is_no_room(bench: ToolBench) -> None:
    """A write that the system cuts short is told, the old file stays whole, and no part of a new one is left."""
    file = bench.put("a", "one\n")
    root = Path(__file__).parents[4]
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(bench.root)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    told = ran.stdout.splitlines()
    assert [line.startswith("('no_space', ") for line in told] == [True, True, True], told
    assert [entry.name for entry in bench.root.iterdir()] == ["a"]
    assert file.read_bytes() == b"one\n"
