"""`list_dir` lists, bounded."""

from __future__ import annotations

import os

from tests.unit.runtime.tools.tool_bench import ToolBench


async def test_list_dir_lists_by_name_with_sizes(bench: ToolBench) -> None:
    """Directories, links and others are told apart, and files have their sizes."""
    bench.put("b.txt", "12345")
    bench.put("a/in", "")
    (bench.root / "c").symlink_to("/etc/passwd")
    os.mkfifo(bench.root / "pipe")
    (bench.root / "e").mkdir()
    assert await bench.text("list_dir") == "./\na/\nb.txt  5\nc@\ne/\npipe  (neither file nor directory)"
    assert await bench.text("list_dir", path="a") == "a/\nin  0"
    assert await bench.text("list_dir", path="e") == "e/ is empty."


async def test_list_dir_goes_down_but_not_into_what_is_ignored(bench: ToolBench) -> None:
    """Down to the depth asked for; .git, ignored directories and links are not entered."""
    for path in ("src/deep/x", "node_modules/y", ".git/config", "src/node_modules/z"):
        bench.put(path, "1")
    bench.put(".gitignore", "node_modules/\n")
    (bench.root / "up").symlink_to("..")
    assert await bench.text("list_dir", depth=2) == (
        "./\n.git/  (not listed)\n.gitignore  14\nnode_modules/  (not listed)\nsrc/\n  deep/\n  node_modules/\nup@"
    )
    assert "    x  1" in await bench.text("list_dir", depth=3)
    assert await bench.text("list_dir", path="node_modules") == "node_modules/\ny  1"


async def test_list_dir_bounds_its_entries(bench: ToolBench) -> None:
    """Of very many entries the first ones are shown, and how many are not."""
    for number in range(30):
        bench.put(f"f{number:02}", "")
    text = await bench.text("list_dir", max_entries=10)
    assert (text.count("\n"), "[20 more entries are not shown here" in text) == (11, True)


async def test_list_dir_shows_hostile_names_on_one_line(bench: ToolBench) -> None:
    """Line breaks and escapes in a name are written out."""
    bench.put("a\nb\x1b[2J", "")
    assert await bench.text("list_dir") == "./\na\\nb\\x1b[2J  0"


async def test_list_dir_fails_clearly(bench: ToolBench) -> None:
    """A file, and what is not there, are errors that say what to do."""
    bench.put("a", "")
    assert (await bench.error("list_dir", path="a"))[0] == "not_a_directory"
    assert (await bench.error("list_dir", path="none"))[0] == "path_not_found"
