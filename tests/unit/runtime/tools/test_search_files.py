"""`search_files` finds the same lines with ripgrep and without."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kipu.ports.workspace import WorkspaceFiles
from kipu.runtime.tools.result_limit import DEFAULT_LIMIT
from kipu.runtime.tools.search_engines import FoundLine, LineQuery, Stopper
from kipu.runtime.tools.search_files import TIMEOUT_S, SearchFiles
from tests.unit.runtime.tools.tool_bench import ToolBench

RIPGREP = shutil.which("rg")
ENGINES = ["", pytest.param(None, marks=pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed"))]


@pytest.fixture(params=ENGINES, ids=["walk", "ripgrep"])
def searching(request: pytest.FixtureRequest, tmp_path: Path) -> ToolBench:
    root = tmp_path / "workspace"
    root.mkdir()
    return ToolBench(root, ripgrep=request.param)


async def test_search_files_shows_lines_and_surroundings(searching: ToolBench) -> None:
    """Matching lines come with path and number, surroundings around them once, and how many there are."""
    searching.put("b.txt", "\n".join(f"line {n}" for n in range(1, 21)) + "\n")
    searching.put("a/c.txt", "no\nline 7 here\n")
    assert await searching.text("search_files", pattern="line (7|9|15)$", context_lines=1) == (
        "b.txt\n     6- line 6\n     7: line 7\n     8- line 8\n     9: line 9\n    10- line 10\n  --\n"
        "    14- line 14\n    15: line 15\n    16- line 16\n[3 matches in 1 file]"
    )
    assert await searching.text("search_files", pattern="line 7", files_only=True) == "a/c.txt\nb.txt\n[2 files]"
    assert (
        await searching.text("search_files", pattern="line 7", path="a")
        == "a/c.txt\n     2: line 7 here\n[1 match in 1 file]"
    )
    assert await searching.text("search_files", pattern="nothing like it") == "No matches."


async def test_search_files_takes_text_literally_and_without_case(searching: ToolBench) -> None:
    """Literal patterns are no expressions, and case can be left aside."""
    searching.put("a", "f(x)\nF(X)\nfx\n\u00c9t\u00e9\n\u4e2d\u6587\u641c\u7d22\n")
    assert "[1 match" in await searching.text("search_files", pattern="f(x)", literal=True)
    assert "[2 matches" in await searching.text("search_files", pattern="f(x)", literal=True, ignore_case=True)
    assert "     3: fx" in await searching.text("search_files", pattern="f(x)")
    assert "[1 match" in await searching.text("search_files", pattern="\u00e9T\u00c9", ignore_case=True)
    assert "     5: \u4e2d\u6587\u641c\u7d22" in await searching.text("search_files", pattern="\u6587\u641c")


async def test_search_files_leaves_out_what_git_ignores(searching: ToolBench) -> None:
    """What .gitignore files name, .git, binary files and links are left out; hidden files are not."""
    searching.put(".gitignore", "*.log\n/build/\n!keep.log\n")
    searching.put("sub/.gitignore", "secret*\n!x.log\n")
    for path in ("a.txt", ".hidden", "keep.log", "sub/x.log", "sub/build/in"):
        searching.put(path, "needle\n")
    for path in ("x.log", "build/out", ".git/config", "sub/secret.txt", "sub/y.log"):
        searching.put(path, "needle\n")
    searching.put("blob", b"needle\n\x00")
    searching.put("wide", "\ufeffneedle\r\n".encode("utf-16-le"))
    (searching.root / "link.txt").symlink_to("a.txt")
    (searching.root / "up").symlink_to("..")
    found = await searching.text("search_files", pattern="needle$", files_only=True)
    assert found.split("\n")[:-1] == [".hidden", "a.txt", "keep.log", "sub/build/in", "sub/x.log", "wide"]
    found = await searching.text("search_files", pattern="needle", path="sub", files_only=True)
    assert found.split("\n")[:-1] == ["sub/build/in", "sub/x.log"]
    assert "build/out" in await searching.text("search_files", pattern="needle", path="build")
    assert "x.log" in await searching.text("search_files", pattern="needle", path="x.log")


async def test_search_files_filters_by_glob(searching: ToolBench) -> None:
    """A glob picks files by name at any depth, or by path, and brings back nothing that is ignored."""
    searching.put(".gitignore", "ignored.py\n")
    for path in ("a.py", "src/b.py", "src/deep/c.ts", "src/d.js", "e.txt", "ignored.py"):
        searching.put(path, "needle\n")

    async def found(glob: str) -> list[str]:
        return (await searching.text("search_files", pattern="needle", glob=glob, files_only=True)).split("\n")[:-1]

    assert await found("*.py") == ["a.py", "src/b.py"]
    assert await found("src/**/*.ts") == ["src/deep/c.ts"]
    assert await found("*.{ts,js}") == ["src/d.js", "src/deep/c.ts"]
    assert await found("src/*") == ["src/b.py", "src/d.js"]
    assert (await searching.error("search_files", pattern="x", glob="[a"))[0] == "glob_invalid"


async def test_search_files_bounds_its_answer(searching: ToolBench) -> None:
    """Many matches and huge lines fill one answer and no more, and the answer says that there is more."""
    searching.put("flood", "needle\n" * 5000)
    text = await searching.text("search_files", pattern="needle", max_matches=7)
    assert text.endswith(
        "     7: needle\n[the first 7 matches in 1 file; there are more. Narrow pattern, path or glob]"
    )
    searching.put("flood", ("x" * 100_000 + "needle" + "y" * 100_000 + "\n") * 20)
    text = await searching.text("search_files", pattern="needle")
    assert "xneedley" in text
    assert "[200006 characters]" in text
    searching.put("flood", ("x" * 250 + "needle\n") * 1000)
    text = await searching.text("search_files", pattern="needle", max_matches=1000)
    assert ("there are more" in text, len(text) <= DEFAULT_LIMIT) == (True, True)


async def test_search_files_refuses_what_is_no_pattern(searching: ToolBench) -> None:
    """A pattern that cannot be used is an error that says why."""
    searching.put("a", "x\n")
    assert (await searching.error("search_files", pattern="a(b"))[0] == "pattern_invalid"
    assert (await searching.error("search_files", pattern="a\nb"))[0] == "pattern_invalid"
    assert (await searching.error("search_files", pattern="a", path="none"))[0] == "path_not_found"


async def test_search_files_takes_patterns_that_ripgrep_does_not_know(searching: ToolBench) -> None:
    """Look-around is found too: where ripgrep has none, the own walk takes over."""
    searching.put("a", "ab\nac\n")
    assert "     2: ac" in await searching.text("search_files", pattern="a(?!b)")


async def test_search_files_ends_a_pattern_that_never_ends(tmp_path: Path) -> None:
    """A regular expression that would take for ever is ended with its process, and the loop goes on meanwhile."""
    bench = ToolBench(tmp_path)
    bench.put("a", "a" * 60 + "!\n")
    tool = SearchFiles(timeout_s=0.5)
    ticks = 0

    async def ticking() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticker = asyncio.ensure_future(ticking())
    result = await tool.run({"pattern": "(a+)+$"}, bench.context)
    ticker.cancel()
    assert result.content == "No matches within 0.5 s; the search was ended."
    assert ticks


async def test_search_files_leaves_no_process_when_cancelled(tmp_path: Path) -> None:
    """A cancelled search has ended its process when it returns (B49)."""
    bench = ToolBench(tmp_path)
    bench.put("a", "a" * 60 + "!\n")
    before = _children()  # of other tests' workers
    task = asyncio.ensure_future(bench.call("search_files", pattern="(a+)+$"))
    while _children() <= before:  # noqa: ASYNC110 - nobody tells when a process has begun
        await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().time() - began < TIMEOUT_S / 2
    assert _children() <= before


def _children() -> set[str]:
    tasks = Path("/proc/self/task").iterdir()
    return {child for task in tasks for child in (task / "children").read_text().split()}


async def test_search_files_goes_on_without_ripgrep(tmp_path: Path) -> None:
    """A ripgrep that cannot be started any more is no failure: the own walk answers."""
    bench = ToolBench(tmp_path, ripgrep=str(tmp_path / "gone"))
    bench.put("a", "needle\n")
    assert "     1: needle" in await bench.text("search_files", pattern="needle")


class LyingEngine:
    """An engine that was led outside by a directory swapped for a link."""

    def lines(self, query: LineQuery, files: WorkspaceFiles, *, stopper: Stopper) -> Iterator[FoundLine]:
        yield FoundLine("out/secret", 1, 1)
        yield FoundLine("../secret", 1, 1)
        yield FoundLine("a", 1, 1)


async def test_search_files_shows_nothing_from_outside_whatever_the_engine_says(tmp_path: Path) -> None:
    """Lines are read through the workspace: what lies outside is not shown, also when an engine found it (A19, B41)."""
    (tmp_path / "secret").write_text("token\n")
    root = tmp_path / "workspace"
    root.mkdir()
    bench = ToolBench(root)
    bench.put("a", "inside\n")
    (root / "out").symlink_to("..")
    result = await SearchFiles(engine=LyingEngine(), root=root).run({"pattern": "x"}, bench.context)
    assert result.content == "a\n     1: inside\n[1 match in 1 file]"


NAMES = st.sampled_from(["a", "b.py", "c.log", "build", "d e", ".x"])
RULES = st.lists(
    st.sampled_from(
        [
            "*.log",
            "build",
            "build/",
            "/a",
            "!c.log",
            "a/b.py",
            "**/a",
            "build/**",
            "d e",
            "# no",
            "*",
            "!*/",
            "[ab]*",
            "?.py",
            "a/**/b.py",
            "!b.py",
        ]
    ),
    max_size=4,
)


@pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    paths=st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), min_size=1, max_size=12, unique=True),
    rules=st.dictionaries(st.sampled_from(["", "a/", "build/", "a/build/"]), RULES, max_size=3),
    start=st.sampled_from(["", "a", "build"]),
)
def test_search_files_finds_the_same_with_ripgrep_and_without(
    paths: list[str], rules: dict[str, list[str]], start: str
) -> None:
    """Whatever the files and the ignore rules, ripgrep and the own walk give the same answer."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        bench, other = ToolBench(root), ToolBench(root, ripgrep=RIPGREP)
        for path in [*paths, *(f"{directory}.gitignore" for directory in rules)]:
            try:
                bench.put(path, "needle one\nother\nNeedle two\n" if path in paths else "\n".join(rules[path[:-10]]))
            except OSError:  # a file where a directory would be
                continue
        arguments = {"pattern": "[nN]eedle", "path": start}
        first = asyncio.run(bench.call("search_files", **arguments))
        second = asyncio.run(other.call("search_files", **arguments))
        assert first == second


def test_patterns_of_ignore_files_cost_no_exponential_time(tmp_path: Path) -> None:
    """A glob of many stars, as a hostile repository may have it, is matched in no time."""
    bench = ToolBench(tmp_path)
    bench.put(".gitignore", "*a" * 60 + "b\n" + "**/a/" * 30 + "x\n")
    bench.put("a" * 250, "needle\n")
    assert "[1 match" in asyncio.run(bench.text("search_files", pattern="needle", glob="*a" * 30 + "*"))


def test_ripgrep_output_survives_line_breaks_in_names(tmp_path: Path) -> None:
    """A file whose name has a line break or bytes that are no text in it is found like others."""
    if RIPGREP is None:
        pytest.skip("ripgrep is not installed")
    bench = ToolBench(tmp_path, ripgrep=RIPGREP)
    bench.put("new\nline", "needle\n")
    (tmp_path / os.fsdecode(b"b\xffd")).write_text("needle\n")
    assert asyncio.run(bench.text("search_files", pattern="needle", files_only=True)).endswith("new\\nline\n[2 files]")
