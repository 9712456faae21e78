"""What the demo model says of its calls: before them what it does, after them what came back, in a sentence each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kipu.runtime.models.demo_task import Call, Done

MAX_QUOTE_CHARS = 120
MAX_TOLD = 6
EXIT_CODE = re.compile(r"^(?:Error: )?exit code (-?\d+)", re.MULTILINE)
# Notes of the tools, what the log adds to an error, and rules across the page say nothing.
REMARK = re.compile(r"^\[.*\]$|^exit_code$|^[-=_*~ ]{4,}$")

DOING: Mapping[str, tuple[str, str]] = {
    "list_dir": ("I list {path}", "列出 {path}"),
    "read_file": ("I read {path}", "读取 {path}"),
    "write_file": ("I write {path}", "写入 {path}"),
    "edit_file": ("I change {path}", "修改 {path}"),
    "search_files": ("I search for “{pattern}”", "搜索“{pattern}”"),
    "shell": ("I run `{command}`", "运行 `{command}`"),
}
FINDINGS: Mapping[str, tuple[str, str]] = {
    "no_tool": ("I have no tool {0} here.", "这里没有工具 {0}。"),
    "passes": ("The tests pass, so there is nothing to fix.", "测试通过，没有需要修复的。"),
    "fixed": ("The tests pass now.", "测试现在通过了。"),
    "no_tests": ("No test was found.", "没有找到测试。"),
    "still_fails": ("The tests still fail.", "测试仍然失败。"),
    "changed": ("I changed {0}.", "我修改了 {0}。"),
    "no_test_file": ("I could not find the failing test's file.", "我没有找到失败的测试文件。"),
    "no_fault": (
        "I found no fault that my rules know (a wrong operator or number in a one-line function), so I changed nothing.",
        "我没有找到规则所知道的错误（单行函数中的错误运算符或数字），所以没有修改。",
    ),
}
HERE = ("the workspace", "工作目录")
OF_A_REPAIR = frozenset(FINDINGS) - {"no_tool"}


def doing_text(calls: Sequence[Call], *, chinese: bool) -> str:
    """Return what is about to be done, in one sentence."""
    told = [_doing(call, chinese=chinese) for call in calls]
    if chinese:
        return "我" + "，".join(told) + "。"
    return " and ".join(text if number == 0 else text.removeprefix("I ") for number, text in enumerate(told)) + "."


def _doing(call: Call, *, chinese: bool) -> str:
    form = DOING.get(call.name, ("I call " + call.name, "调用 " + call.name))[chinese]
    places = {"path": HERE[chinese], **{name: _short(str(value)) for name, value in call.arguments.items()}}
    return form.format_map(_Known(places))


class _Known(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def report_text(done: Sequence[Done], findings: Sequence[tuple[str, str]], *, chinese: bool) -> str:
    """Return what came of the calls and what was found out."""
    refused = [result for result in done if result.is_refused]
    changed = {result.call.arguments.get("path") for result in done if result.call.name in {"edit_file", "write_file"}}
    done = [
        result for result in done if result.call.name != "read_file" or result.call.arguments.get("path") not in changed
    ]
    if any(word in OF_A_REPAIR for word, _ in findings):
        # Of the many steps of a repair the last run of the tests says enough.
        done = [result for result in done if result.call.name == "shell"][-1:]
    told = [_told(result, chinese=chinese) for result in done[-MAX_TOLD:]]
    if len(done) > MAX_TOLD:
        left_out = len(done) - MAX_TOLD
        told.insert(0, f"（另有 {left_out} 次调用）" if chinese else f"({left_out} earlier calls.)")
    told += [FINDINGS[word][chinese].format(detail) for word, detail in findings]
    if refused:
        told.append("我不再继续。" if chinese else "So I go no further.")
    return ("" if chinese else " ").join(told)


def _told(result: Done, *, chinese: bool) -> str:
    call, lines = result.call, [line for line in result.lines if not REMARK.match(line)] or result.lines
    what = _doing(call, chinese=chinese).removeprefix("I ")
    first = _short(lines[0]) if lines else ""
    code = EXIT_CODE.search(result.result)
    if result.is_refused:
        return f"{what}：没有得到许可（{first}）。" if chinese else f"I was not allowed to {what} ({first})."
    if call.name == "shell" and code is not None:
        output = _short(" / ".join(line.strip() for line in lines[1:4]))
        if chinese:
            return f"{what}：退出码 {code.group(1)}，输出：{_ended(output, '。')}"
        return f"`{_short(str(call.arguments.get('command')))}` ended with exit code {code.group(1)}: {_ended(output)}"
    if result.is_error:
        return f"{what}：没有成功（{first}）。" if chinese else f"I could not {what}: {_ended(first)}"
    return _success(call, lines, first=first, what=what, chinese=chinese)


def _success(call: Call, lines: Sequence[str], *, first: str, what: str, chinese: bool) -> str:
    path = call.arguments.get("path", HERE[chinese])
    if call.name == "read_file":
        begin = _short(lines[0].strip().partition("\t")[2] or lines[0]) if lines else ""
        if chinese:
            return f"{path} 有 {len(lines)} 行，开头是“{begin}”。"
        return f"{path} has {_count(len(lines), 'line')} and begins “{begin}”."
    if call.name == "list_dir":
        names = [line.split("  ")[0].strip() for line in lines[1:]]
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return (
            f"{path}里有 {len(names)} 项：{shown}。"
            if chinese
            else f"{path} holds {_count(len(names), 'thing')}: {shown}."
        )
    if call.name == "search_files":
        found = _short(" / ".join(line.strip() for line in lines[:3]))
        return (
            f"{what}：{found}。"
            if chinese
            else f"The search for “{call.arguments.get('pattern')}” gave: {_ended(found)}"
        )
    return f"{what}：{_ended(first, '。')}" if chinese else _ended(first)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ended(text: str, stop: str = ".") -> str:
    return text if text.endswith((".", "。", "?", "!", "…")) else text + stop


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_QUOTE_CHARS else flat[: MAX_QUOTE_CHARS - 1] + "…"
