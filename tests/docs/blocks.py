"""The code blocks of a page, and what a console block claims."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```\s*$", re.MULTILINE | re.DOTALL
)
NOT_RUN = re.compile(r"<!--\s*not run:\s*\S.*?-->\s*\Z", re.DOTALL)
# Stands for anything in the output of a console block: an ellipsis, or what differs on every run.
ELLIPSIS = re.compile(r"…|\.\.\.")
VARYING = re.compile(
    r"sess_[0-9a-hjkmnp-tv-z]{26}|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page; `<!-- not run: why -->` right above it keeps it from being run."""

    page: Path
    line: int
    language: str
    body: str
    is_run: bool


@dataclass(frozen=True)
class Command:
    """One command of a console block and the output that the page shows for it."""

    line: str
    shown: tuple[str, ...]


def blocks_in(page: Path) -> list[Block]:
    """Return the fenced blocks of a page from its top."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=page,
            line=text.count("\n", 0, match.start()) + 1,
            language=match["language"],
            body=re.sub(rf"^{match['indent']}", "", match["body"], flags=re.MULTILINE),
            is_run=NOT_RUN.search(text[: match.start()].rstrip()) is None,
        )
        for match in FENCE.finditer(text)
    ]


def commands_in(block: Block) -> list[Command]:
    r"""Return the commands of a console block: lines after `$ `, gone on after a `\` at the end."""
    commands: list[Command] = []
    line: str | None = None
    shown: list[str] = []
    goes_on = False
    for text in block.body.splitlines():
        if goes_on and line is not None:
            line += "\n" + text
        elif text.startswith("$ "):
            if line is not None:
                commands.append(Command(line, tuple(shown)))
            line, shown = text[2:], []
        elif line is not None and text.strip():
            shown.append(text)
        goes_on = line is not None and not shown and text.endswith("\\")
    return [*commands, Command(line, tuple(shown))] if line is not None else commands


def _pattern(shown: str) -> re.Pattern[str]:
    parts = ELLIPSIS.split(VARYING.sub("…", " ".join(shown.split())))
    return re.compile(".*".join(re.escape(part) for part in parts))


def missing_lines(shown: tuple[str, ...], output: str) -> list[str]:
    """Return the shown lines that the output lacks, in order; spaces count once, `…` stands for anything."""
    left = [" ".join(line.split()) for line in output.splitlines()]
    missing: list[str] = []
    for line in shown:
        pattern = _pattern(line)
        if not ELLIPSIS.sub("", line).strip():
            continue
        at = next((number for number, real in enumerate(left) if pattern.fullmatch(real)), None)
        if at is None:
            missing.append(line)
        else:
            left = left[at + 1 :]
    return missing
