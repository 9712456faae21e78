"""Names and contents that somebody chose to fool the file tools, or whoever reads what they say (A19)."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.tools.tool_bench import ToolBench, edit_arguments

ESCAPE = "\x1b]0;title\x07\x1b[31mred\x1b[0m\x1b[2J"
RIPGREP = shutil.which("rg")


@pytest.fixture(params=["", pytest.param(RIPGREP, marks=pytest.mark.skipif(not RIPGREP, reason="no ripgrep here"))])
def searching(request: pytest.FixtureRequest, tmp_path: Path) -> ToolBench:
    root = tmp_path / "w"
    root.mkdir()
    return ToolBench(root, ripgrep=request.param)


async def said(bench: ToolBench, name: str, **arguments: Any) -> str:
    async with asyncio.timeout(60):
        return str((await bench.call(name, **arguments)).content)


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
async def test_tools_do_not_hang_on_what_is_no_file(searching: ToolBench, kind: str) -> None:
    """FIFOs, sockets and devices are not opened, by a search of everything neither."""
    import socket

    place = searching.root / "odd"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(place))
    else:
        try:
            os.mknod(place, 0o666 | 0o020000, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only root makes devices")
    (searching.root / "plain").write_text("needle\n")
    for name, more in (("read_file", {}), ("write_file", {"content": "x"})):
        assert (await searching.call(name, path="odd", **more)).is_error
    assert "plain" in await said(searching, "search_files", pattern="needle")
    assert "odd" in await said(searching, "list_dir", path=".")


@pytest.mark.parametrize(
    "name",
    ["-rf", "--pre=touch evil", "--files", "-", "--", "$(touch evil)", "`touch evil`", "; touch evil", "*", "{}"],
)
async def test_names_that_look_like_options_are_names(searching: ToolBench, name: str) -> None:
    """A file whose name reads like an option, a pattern or a command is read, searched and listed as a file."""
    (searching.root / name).write_text("needle\n")
    assert "needle" in await said(searching, "read_file", path=name)
    assert "needle" in await said(searching, "search_files", pattern="needle", path=name)
    assert name in await said(searching, "search_files", pattern="needle")
    assert name in await said(searching, "list_dir")
    assert not (searching.root / "evil").exists()


@pytest.mark.parametrize("pattern", ["--pre=touch evil", "-f/etc/passwd", "--files", "-e", "(a+)+$", "\\"])
async def test_patterns_that_look_like_options_are_patterns(searching: ToolBench, pattern: str) -> None:
    """What is searched for is never an option of the program that searches."""
    (searching.root / "a").write_text(f"x {pattern} y\n{'a' * 5_000}!\n")
    assert "1 match in 1 file" in await said(searching, "search_files", pattern=pattern, literal=True)
    assert not (searching.root / "evil").exists()


@pytest.mark.parametrize("name", ["line\nplain: forged", "cr\rname", "esc\x1b[2J", "bidi\u202etxt.exe", "tab\tname"])
async def test_names_cannot_forge_lines(searching: ToolBench, name: str) -> None:
    """A name with a line break or a control character stays one entry, written out."""
    (searching.root / name).write_text("needle\n")
    for told in (await said(searching, "list_dir"), await said(searching, "search_files", pattern="needle")):
        assert "\x1b" not in told
        assert "\nplain: forged" not in told
        assert "\r" not in told


async def test_contents_cannot_steer_a_terminal(searching: ToolBench) -> None:
    """Escape sequences of a file reach neither the model nor a preview as such."""
    (searching.root / "a").write_text(f"{ESCAPE} needle\n")
    for told in (await said(searching, "read_file", path="a"), await said(searching, "search_files", pattern="needle")):
        assert "\x1b" not in told


async def test_write_does_not_follow_a_link_that_was_put_there(searching: ToolBench, tmp_path: Path) -> None:
    """A file that was read and became a link to one outside is not written through."""
    outside = tmp_path / "outside"
    outside.write_text("theirs\n")
    place = searching.root / "a"
    place.write_text("mine\n")
    await said(searching, "read_file", path="a")
    place.unlink()
    place.symlink_to(outside)
    for name, more in (("write_file", {"content": "x"}), ("edit_file", {"edits": edit_arguments([("mine", "x")])})):
        assert (await searching.call(name, path="a", **more)).is_error
    assert outside.read_text() == "theirs\n"


async def test_changing_a_hard_link_leaves_the_other_name_as_it_was(searching: ToolBench, tmp_path: Path) -> None:
    """A file that has another name elsewhere is replaced, not written into: what it is elsewhere stays."""
    outside = tmp_path / "outside"
    outside.write_text("theirs\n")
    os.link(outside, searching.root / "a")
    assert "theirs" in await said(searching, "read_file", path="a")
    assert not (await searching.call("write_file", path="a", content="mine\n")).is_error
    assert (outside.read_text(), (searching.root / "a").read_text()) == ("theirs\n", "mine\n")
