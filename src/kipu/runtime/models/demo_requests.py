"""What a message asks the demo model to do with tools: fixed forms, in English and Chinese, and nothing guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

QUOTED = r"`[^`\n]+`|\"[^\"\n]+\"|“[^”\n]+”|‘[^’\n]+’|「[^」\n]+」|(?<!\w)'[^'\n]+'"
# A bare path looks like one: it has a dot or a slash inside, and no Chinese, which has no spaces around it.
BARE = r"[A-Za-z0-9_~-]*[./][A-Za-z0-9_./~-]*[A-Za-z0-9_]|[A-Za-z0-9_-]+/"
PATH = rf"(?:{QUOTED}|{BARE})"
PATHS = rf"{PATH}(?:\s*(?:,\s*and|,|、|，|and|和|&)\s*(?:the\s+file\s+)?{PATH})*"
WORDS = rf"(?:{QUOTED}|[^\s`\"“”]+)"
REST = r"(?:```\w*\n(?P<fenced>.*?)\n?```|(?P<content>.*))"
NOT = re.compile(
    r"(?:\b(?:don'?t|don’t|do not|never|not|without)\s+(?:\w+\s+)?|不要再?|别再?|不许|不用)$", re.IGNORECASE
)
ITEM = re.compile(PATH)
MAX_CHARS = 20_000
MAX_REQUESTS = 50
NOT_CHARS = 40
FLAGS = re.IGNORECASE | re.DOTALL

FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "fix",
        re.compile(
            r"\b(?:fix|repair)\s+(?:the\s+|a\s+|all\s+|my\s+)?(?:failing\s+|broken\s+)?tests?\b"
            rf"(?:\s+in\s+(?P<path>{PATH}|[\w-]+))?(?:\s+with\s+(?P<command>`[^`\n]+`))?"
            rf"|(?:修复|修好|修正)(?:(?P<path2>{PATH})(?:中|里)?的?)?(?:失败的|坏的)?(?:单元)?测试",
            FLAGS,
        ),
    ),
    (
        "write",
        re.compile(
            r"\b(?:write|create)\s+(?:(?:a|the)\s+)?(?:new\s+)?(?:file\s+)?(?:(?:named|called)\s+)?"
            rf"(?P<path>{PATH})(?:\s*(?::|：|\bwith(?:\s+(?:the\s+)?(?:content|text))?\b\s*[:：]?)\s*{REST})?"
            rf"|(?:写入|写|创建|新建)(?:一个)?(?:文件)?\s*(?P<path2>{PATH})"
            rf"(?:\s*[，,]?\s*(?:内容(?:为|是)?\s*[:：]?|[:：])\s*{REST.replace('fenced', 'fenced2').replace('content', 'content2')})?",
            FLAGS,
        ),
    ),
    (
        "edit",
        re.compile(
            rf"\b(?:replace|change)\s+(?P<old>{WORDS})\s+(?:with|by|to|into)\s+(?P<new>{WORDS})\s+in\s+"
            rf"(?:the\s+)?(?:file\s+)?(?P<path>{PATH})"
            rf"|[把将]\s*(?P<path2>{PATH})\s*[中里]?的\s*(?P<old2>{WORDS}?)\s*(?:替换|改|换)(?:成|为)\s*(?P<new2>{WORDS})",
            FLAGS,
        ),
    ),
    (
        "run",
        re.compile(
            r"\b(?:run|execute)\s*(?:the\s+command\s*)?:?\s*(?P<command>`[^`\n]+`)"
            r"(?P<background>\s+in\s+the\s+background)?"
            r"|^\s*(?:please\s+)?run:?\s+(?!the\b|all\b|my\b|a\b|it\b)(?P<line>[\w./~$-][^\n]*?)(?=\s*(?:[.!]?\s*$|,?\s+(?:and\s+)?then\s))"
            r"|(?P<tests>\brun\s+(?:the\s+|all\s+|my\s+)?tests\b|(?:运行|执行|跑)(?:一下)?(?:所有)?测试)"
            r"|(?:运行|执行)(?:一下)?(?:命令)?\s*[:：]?\s*(?P<command2>`[^`\n]+`|“[^”\n]+”|[\x21-\x7e][\x20-\x7e]*)",
            FLAGS | re.MULTILINE,
        ),
    ),
    (
        "search",
        re.compile(
            rf"\b(?:search|grep|look)\s+(?:(?:the\s+|all\s+|in\s+)*files\s+)?for\s+(?P<pattern>{WORDS})"
            rf"(?:\s+in\s+(?P<path>{PATH}))?"
            rf"|(?:搜索|查找)(?:一下)?\s*(?P<pattern2>{QUOTED}|[^\s，。,]+)",
            FLAGS,
        ),
    ),
    (
        "list",
        re.compile(
            r"\b(?:list|show)\s+(?:me\s+)?(?:the\s+|all\s+)*(?:files|directory|folder)\b"
            rf"(?:\s+(?:in|of|under)\s+(?:the\s+)?(?:folder\s+|directory\s+)?(?P<path>{PATH}))?"
            r"|\bwhat\s+(?:files\s+are|is)\s+(?:there|in\s+(?:this|the)\s+(?:folder|directory|workspace))\b"
            rf"|列出(?:所有)?\s*(?:(?P<path2>{PATH})\s*[中里下]?的?)?\s*(?:文件|目录)|有(?:哪些|什么)文件",
            FLAGS,
        ),
    ),
    (
        "read",
        re.compile(
            rf"\b(?:read|show|open|print|cat)\s+(?:me\s+)?(?:the\s+)?(?:files?\s+)?(?P<paths>{PATHS})"
            rf"|(?:读取|阅读|读|查看|打开|看看)(?:一下)?(?:文件)?\s*(?P<paths2>{PATHS})",
            FLAGS,
        ),
    ),
)
CALL = re.compile(
    r"\b(?:call|use)\s+(?:the\s+)?(?:tool\s+)?`?(?P<name>[\w.-]+)`?\s*(?:with\s*)?(?P<given>\{.*\})?"
    r"|(?:调用|使用)(?:工具)?\s*`?(?P<name2>[\w.-]+)`?\s*(?P<given2>\{.*\})?",
    FLAGS,
)


@dataclass(frozen=True, slots=True)
class Request:
    """One thing that was asked for: "list", "read", "write", "edit", "run", "search", "fix" or "call", and its details."""

    kind: str
    details: Mapping[str, Any] = field(default_factory=dict)


def requests_in(text: str, offered: Collection[str]) -> list[Request]:
    """Return what a message asks for, in its order; what it forbids ("don't run …") is not asked for."""
    text = text[:MAX_CHARS]
    found: list[tuple[int, int, Request]] = []
    for start, end, request in _matches(text, offered):
        inside = any(start < taken_end and taken_start < end for taken_start, taken_end, _ in found)
        if not inside and not NOT.search(text[max(0, start - NOT_CHARS) : start]):
            found.append((start, end, request))
        if len(found) == MAX_REQUESTS:
            break
    return [request for _, _, request in sorted(found, key=lambda place: place[0])]


def _matches(text: str, offered: Collection[str]) -> Iterator[tuple[int, int, Request]]:
    """Return every match, those first that may contain others: a file's content is no request."""
    for match in CALL.finditer(text):
        groups = _groups(match)
        if groups.get("name") in offered:
            details = {"name": groups["name"], "arguments": _object(groups.get("given"))}
            yield match.start(), match.end(), Request("call", details)
    for kind, form in FORMS:
        for match in form.finditer(text):
            for request in _read(kind, _groups(match)):
                # Several paths of one match stand at their own places.
                place = match.start() + (
                    text[match.start() :].find(request.details.get("at", "")) if kind == "read" else 0
                )
                yield place, match.end() if kind != "read" else place + 1, request


def _groups(match: re.Match[str]) -> dict[str, str]:
    """Return the groups that matched; both languages have the same names, with a 2 behind one of them."""
    return {name.rstrip("2"): value for name, value in match.groupdict().items() if value is not None}


def _read(kind: str, groups: Mapping[str, str]) -> list[Request]:
    path = bare(groups["path"]) if "path" in groups else ""
    if kind == "read":
        return [Request("read", {"path": bare(item), "at": item}) for item in ITEM.findall(groups["paths"])]
    if kind == "write":
        content = groups.get("fenced", groups.get("content", ""))
        return [Request("write", {"path": path, "content": _ended(bare(content))})]
    if kind == "edit":
        return [Request("edit", {"path": path, "old": bare(groups["old"]), "new": bare(groups["new"])})]
    if kind == "run":
        command = "" if "tests" in groups else bare(groups.get("command") or groups.get("line") or "")
        return [Request("run", {"command": command, "background": "background" in groups})]
    if kind == "search":
        return [Request("search", {"pattern": bare(groups["pattern"]), "path": path})]
    if kind == "fix":
        return [Request("fix", {"path": path, "command": bare(groups.get("command", ""))})]
    return [Request("list", {"path": path})]


def bare(text: str) -> str:
    """Return text without the quotes around it."""
    text = text.strip()
    if len(text) > 1 and text[0] + text[-1] in {"``", '""', "“”", "‘’", "「」", "''"}:
        return text[1:-1]
    return text


def _ended(content: str) -> str:
    return content if not content or content.endswith("\n") else content + "\n"


def _object(given: str | None) -> dict[str, Any]:
    try:
        found = json.loads(given or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
