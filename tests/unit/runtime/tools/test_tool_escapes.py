"""No file tool leaves the workspace, whatever path it is given (A19, B41)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kipu.runtime.tools.default_tools import default_tools
from kipu.runtime.workspaces.beneath import BeneathFiles
from kipu.runtime.workspaces.path_policy import PathPolicy
from tests.unit.runtime.tools.tool_bench import ToolBench, edit_arguments

TOOLS: dict[str, dict[str, Any]] = {
    "read_file": {},
    "write_file": {"content": "overwritten"},
    "edit_file": {"edits": edit_arguments([("secret", "stolen")])},
    "list_dir": {},
    "search_files": {"pattern": "secret"},
}


@pytest.fixture
def outside(bench: ToolBench) -> Path:
    outside = bench.root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret\n")
    (bench.root / "in").mkdir()
    (bench.root / "in" / "up").symlink_to("../../outside")
    (bench.root / "absolute").symlink_to(outside)
    (bench.root / "file_link").symlink_to(outside / "file")
    (bench.root / "first").symlink_to("second")
    (bench.root / "second").symlink_to("in/up/file")
    (bench.root / "loop").symlink_to("loop")
    return outside


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize(
    "path",
    [
        "../outside/file",
        "../outside",
        "in/../../outside/file",
        "in/up/file",
        "in/up",
        "absolute/file",
        "absolute",
        "file_link",
        "first",
        "loop",
        "/etc/passwd",
        "/",
        "..",
        "//etc/passwd",
        "in/up/../../outside/file",
        "/proc/self/root/etc/passwd",
        "in/up/new",
        "absolute/new/new",
        "file\0name",
        "half\ud83d",
        "x" * 5000,
        "a/" * 3000,
    ],
)
async def test_tools_refuse_paths_that_lead_outside(bench: ToolBench, outside: Path, name: str, path: str) -> None:
    """Paths, links and absolute names out of the workspace are errors, and nothing outside is read, made or changed."""
    before = sorted(outside.rglob("*"))
    result = await bench.call(name, path=path, **TOOLS[name])
    if name == "write_file" and path.startswith("a/"):
        return  # very deep, but inside
    assert result.is_error, result
    assert "secret" not in str(result.content).replace("outside", "")
    assert (outside / "file").read_text() == "secret\n"
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize("name", ["read_file", "edit_file", "write_file"])
async def test_absolute_path_outside_is_never_shown_in_a_preview(bench: ToolBench, outside: Path, name: str) -> None:
    """A preview reads no further than the call would."""
    preview = await bench.preview(name, path=str(outside / "file"), **TOOLS[name])
    assert preview.diff is None
    assert "secret" not in preview.summary


async def test_search_of_everything_finds_nothing_outside(bench: ToolBench, outside: Path) -> None:
    """Links are not followed while searching or listing."""
    for ripgrep in ("", None):
        searching = ToolBench(bench.root, ripgrep=ripgrep)
        assert await searching.text("search_files", pattern="secret") == "No matches."
    assert "file\n" not in await bench.text("list_dir", depth=8)


@pytest.mark.parametrize(
    ("path", "subject"),
    [
        ("src/a.py", "src/a.py"),
        ("./src//x/../a.py", "src/a.py"),
        ("{root}/src/a.py", "src/a.py"),
        ("{root}", "."),
        ("{root}2/a", "{root}2/a"),
        ("../x", "../x"),
        ("/etc/passwd", "/etc/passwd"),
        ("", "."),
    ],
)
def test_subjects_are_paths_relative_to_the_workspace(tmp_path: Path, path: str, subject: str) -> None:
    """However a path is written, patterns of a policy see the same one (A19)."""
    for tool in default_tools(root=tmp_path)[:5]:
        assert tool.subject({"path": path.format(root=tmp_path)}) == subject.format(root=tmp_path)


async def test_tools_say_that_there_is_no_workspace(bench: ToolBench) -> None:
    """Without a workspace a file tool is an error result, not a crash."""
    bench.context = type(bench.context)("s", "t", "c", bench.context.principal)
    for name, arguments in TOOLS.items():
        assert (await bench.error(name, path="a", **arguments))[0] == "workspace"


async def test_tools_keep_to_what_the_policy_closes(bench: ToolBench) -> None:
    """A file that may not be read is neither shown, found, overwritten nor edited, by any of its names (A19)."""
    bench.put("private/key.pem", "secret\n")
    bench.put("open.txt", "secret\n")
    (bench.root / "alias").symlink_to("private/key.pem")
    policy = PathPolicy(not_readable=("private",), not_writable=(".git",))
    for ripgrep in ("", None):
        closed = ToolBench(bench.root, files=BeneathFiles(bench.root, policy=policy), ripgrep=ripgrep)
        found = await closed.text("search_files", pattern="secret")
        assert found == "open.txt\n     1: secret\n[1 match in 1 file]"
        for name, arguments in TOOLS.items():
            for path in ("private/key.pem", "alias", "PRIVATE/../private/key.pem"):
                result = await closed.call(name, path=path, **arguments)
                assert result.is_error or result.content == "No matches.", result
                assert "secret\n" not in str(result.content)
        assert (await closed.call("write_file", path=".git/hooks/pre-commit", content="x")).is_error
    assert (bench.root / "private/key.pem").read_text() == "secret\n"
