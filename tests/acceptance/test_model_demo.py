"""The demo model with real tools over a real directory: what it does for what is asked, and what it says of it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kipu.context.content import value_text
from kipu.ports.model import ModelReply, ModelRequest, TextDelta, ToolCallDelta
from kipu.ports.tool import ToolResult
from kipu.runtime.models.demo import DemoModelClient
from kipu.testing.validators.neutral import validate_neutral
from tests.acceptance.runtime.shell_session import ShellSession, open_shell
from tests.unit.runtime.tools.tool_bench import ToolBench

PYTHON_3 = pytest.mark.skipif(shutil.which("python3") is None, reason="there is no python3 in PATH")
CALC = 'def sub(a, b):\n    return a - b\n\n\ndef add(a, b):\n    """Add."""\n    return a - b\n'
TEST = (
    "import unittest\nfrom calc import add, sub\n\n\nclass TestCalc(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
    "    def test_sub(self):\n        self.assertEqual(sub(2, 3), -1)\n"
)


class Desk:
    """A window that grows as a turn's does: the demo model's calls are made with the real tools."""

    def __init__(self, bench: ToolBench, shell: ShellSession | None = None) -> None:
        self.bench = bench
        self.shell = shell
        self.model = DemoModelClient()
        self.window: list[dict[str, Any]] = []
        self.steps: list[list[tuple[str, dict[str, Any]]]] = []
        self.refused: set[str] = set()
        self.tools = bench.toolbox.definitions() + ([shell.tools.shell.spec.definition()] if shell else [])

    async def ask(self, text: str) -> str:
        """Say something, make every call that is asked for, and return the last answer."""
        self.window.append({"role": "user", "content": [{"type": "text", "text": text}]})
        self.steps = []
        for _ in range(20):
            reply = await self.step()
            if not reply.tool_calls:
                return reply.text
            await self.answer(reply.tool_calls)
        raise AssertionError("it goes on for ever")

    async def step(self) -> ModelReply:
        assert validate_neutral(self.window) == []
        request = ModelRequest("demo", self.window, tools=self.tools)
        *deltas, reply = [event async for event in self.model.stream(request)]
        assert isinstance(reply, ModelReply)
        assert "demo model, no AI" in reply.text
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.text
        assert len({call["id"] for call in reply.tool_calls}) == len(reply.tool_calls)
        names = [delta.name for delta in deltas if isinstance(delta, ToolCallDelta) and delta.name]
        assert names == [call["name"] for call in reply.tool_calls]
        again = [event async for event in self.model.stream(request)]
        assert again == [*deltas, reply]
        self.window.append({"role": "assistant", "content": list(reply.content)})
        return reply

    async def answer(self, calls: Sequence[Any]) -> None:
        self.steps.append([(call["name"], call["input"]) for call in calls])
        content = []
        for call in calls:
            result = await self._run(call["name"], call["input"])
            text = value_text(result.content) or "(no output)"
            block = {"type": "tool_result", "id": call["id"], "name": call["name"], "is_error": result.is_error}
            content.append({**block, "content": [{"type": "text", "text": text}]})
        self.window.append({"role": "tool", "content": content})

    async def _run(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if name in self.refused:
            return ToolResult("Denied by local.", is_error=True)
        if name == "shell":
            assert self.shell is not None
            return await self.shell.tools.shell.run(arguments, self.shell.context())
        return await self.bench.call(name, **arguments)


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    root = tmp_path / "workspace"
    root.mkdir()
    return ToolBench(root)


@asynccontextmanager
async def desk_with_shell(bench: ToolBench) -> AsyncIterator[Desk]:
    async with open_shell(bench.root, "none") as shell:
        yield Desk(bench, shell)


@pytest.mark.parametrize(
    "form", ["read a.txt and src/b.py", "Read `a.txt`, then show src/b.py.", "读取 a.txt 和 src/b.py"]
)
async def test_demo_agent_reads_two_files_at_once(bench: ToolBench, form: str) -> None:
    """Two reading requests in one message are two parallel calls, and both results are summed up (A24, A25)."""
    bench.put("a.txt", "first line\nsecond\n")
    bench.put("src/b.py", "import os\n")
    desk = Desk(bench)
    answer = await desk.ask(form)
    assert desk.steps == [[("read_file", {"path": "a.txt"}), ("read_file", {"path": "src/b.py"})]]
    assert "first line" in answer
    assert "import os" in answer


@pytest.mark.parametrize("form", ["list files", "What is in this folder?", "列出文件", "有哪些文件？"])
async def test_demo_agent_lists_the_folder(bench: ToolBench, form: str) -> None:
    """It names what there is."""
    bench.put("one.txt", "1")
    bench.put("two/three.txt", "3")
    desk = Desk(bench)
    answer = await desk.ask(form)
    assert desk.steps == [[("list_dir", {})]]
    assert "one.txt" in answer
    assert "two/" in answer


@pytest.mark.parametrize("form", ["write notes/x.txt: hello there", "创建文件 notes/x.txt，内容为：hello there"])
async def test_demo_agent_writes_and_replaces_in_files(bench: ToolBench, form: str) -> None:
    """What it writes is in the file; a file that was there is read before it is overwritten."""
    desk = Desk(bench)
    await desk.ask(form)
    assert (bench.root / "notes/x.txt").read_text() == "hello there\n"
    await desk.ask("replace `there` with `world` in notes/x.txt")
    assert [name for step in desk.steps for name, _ in step] == ["read_file", "edit_file"]
    assert (bench.root / "notes/x.txt").read_text() == "hello world\n"
    bench.put("old.txt", "before\n")
    await desk.ask("write old.txt with:\n```\nread notes/x.txt\n```")
    assert [name for step in desk.steps for name, _ in step] == ["write_file", "read_file", "write_file"]
    assert (bench.root / "old.txt").read_text() == "read notes/x.txt\n"


async def test_demo_agent_searches(bench: ToolBench) -> None:
    """It looks for a literal text and shows where it is."""
    bench.put("src/a.py", "def f(x):\n    return x\n")
    answer = await Desk(bench).ask("search for `f(x)`")
    assert "src/a.py" in answer


@pytest.mark.parametrize("form", ["run `echo knots; exit 3`", "运行 `echo knots; exit 3`"])
async def test_demo_agent_runs_commands(bench: ToolBench, form: str) -> None:
    """It says how a command ended and what it wrote."""
    async with desk_with_shell(bench) as desk:
        answer = await desk.ask(form)
    assert "3" in answer
    assert "knots" in answer


@PYTHON_3
@pytest.mark.parametrize("form", ["Please fix the failing test.", "请修复失败的测试"])
async def test_demo_agent_fixes_a_wrong_operator(bench: ToolBench, form: str) -> None:
    """It runs the tests, reads what fails, changes the one line that breaks the examples, and runs them again."""
    bench.put("calc.py", CALC)
    bench.put("test_calc.py", TEST)
    async with desk_with_shell(bench) as desk:
        answer = await desk.ask(form)
    assert (bench.root / "calc.py").read_text() == CALC.replace('"""\n    return a - b', '"""\n    return a + b')
    used = [name for step in desk.steps for name, _ in step if name != "shell"]
    assert used == ["read_file", "read_file", "edit_file"]
    assert "return a + b" in answer
    assert "The tests pass now" in answer or "测试现在通过了" in answer


@PYTHON_3
async def test_demo_agent_fixes_in_a_folder_with_the_command_it_is_given(bench: ToolBench) -> None:
    """A project below the workspace, such as one that was just cloned, is worked on in its folder."""
    bench.put("repo/calc.py", CALC)
    bench.put("repo/test_calc.py", TEST)
    async with desk_with_shell(bench) as desk:
        answer = await desk.ask("fix the failing test in repo with `python3 -B -m unittest`")
    assert "return a + b" in (bench.root / "repo/calc.py").read_text()
    assert "The tests pass now" in answer


@PYTHON_3
async def test_demo_agent_says_when_it_cannot_fix(bench: ToolBench) -> None:
    """What its rules do not know it leaves alone, and says so."""
    bench.put("calc.py", CALC.replace("return a - b\n", "return frobnicate(a)\n"))
    bench.put("test_calc.py", TEST)
    before = (bench.root / "calc.py").read_text()
    async with desk_with_shell(bench) as desk:
        answer = await desk.ask("fix the failing test with `python3 -B -m unittest`")
    assert (bench.root / "calc.py").read_text() == before
    assert "no fault that my rules know" in answer
    assert "still fail" in answer


async def test_demo_agent_stops_at_a_no(bench: ToolBench) -> None:
    """After a refusal nothing else is tried, and it is told (A19)."""
    bench.put("b.txt", "b\n")
    desk = Desk(bench)
    desk.refused = {"write_file"}
    answer = await desk.ask("write a.txt: x\n")
    assert len(desk.steps) == 1
    assert "not allowed to write a.txt" in answer
    assert not (bench.root / "a.txt").exists()
    assert "I could not read nothing.txt" in await desk.ask("read nothing.txt")


async def test_demo_agent_does_what_it_is_told_last(bench: ToolBench) -> None:
    """A message in the middle of a turn takes the task's place, and what is forbidden is not done (A42)."""
    bench.put("a.txt", "a\n")
    desk = Desk(bench)
    desk.window = [{"role": "user", "content": [{"type": "text", "text": "read a.txt, then write config.txt: x"}]}]
    reply = await desk.step()
    await desk.answer(reply.tool_calls)
    answer = await desk.ask("wait, don't write config.txt: x")
    assert desk.steps == []
    assert "I understood your message 2" in answer
    assert not (bench.root / "config.txt").exists()


async def test_demo_agent_without_the_tool_says_so(bench: ToolBench) -> None:
    """It offers no help that it cannot give."""
    assert "I have no tool shell here" in await Desk(bench).ask("run `ls`")


async def test_demo_agent_calls_any_tool_by_its_name(bench: ToolBench) -> None:
    """Tools of other servers are called with the arguments that the message gives."""
    desk = Desk(bench)
    desk.tools.append({"name": "mcp__x__echo", "parameters": {"type": "object"}})
    desk.window.append({"role": "user", "content": [{"type": "text", "text": 'call mcp__x__echo {"said": "ä"}'}]})
    (call,) = (await desk.step()).tool_calls
    assert (call["name"], call["input"]) == ("mcp__x__echo", {"said": "ä"})


async def test_demo_agent_chats_as_before_where_nothing_is_asked_of_tools(bench: ToolBench) -> None:
    """With tools at hand it still counts, recalls and greets, and says what it can do."""
    desk = Desk(bench)
    assert "hello!" in await desk.ask("hello")
    assert "my window holds 3 messages" in await desk.ask("How many messages are there?")
    assert "fix the failing test" in await desk.ask("help")
    assert "列出文件" in await desk.ask("帮助")
    assert "you said nothing about fish" in await desk.ask("What did I say about fish?")
