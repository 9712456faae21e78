"""A streaming answer in blocks of Markdown: what is finished, and the tail that still grows. Pure."""

from __future__ import annotations

import re

_FENCE = re.compile(r"(?P<indent> {0,3})(?P<mark>`{3,}|~{3,})(?P<info>.*)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
_HEADING = re.compile(r"#{1,6}(?:\s|$)")


class AnswerBlocks:
    """Take an answer piece by piece. Joined, all blocks and the tail are the text, but for blank lines between blocks.

    A block ends where what follows can no longer change how it looks: at a blank line, unless a list or a quote goes on behind
    it; at a heading; at the end of a fence.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest = ""
        self._fence: str | None = None  # what closes the open one
        self._is_fence_block = False
        self._had_blank = False

    @property
    def tail(self) -> str:
        """Return what is not finished yet."""
        return "\n".join([*self._lines, self._rest] if self._rest else self._lines)

    def last_lines(self, count: int) -> str:
        """Return the end of the tail, in time that does not grow with it."""
        lines = self._lines[-count:]
        return "\n".join([*lines, self._rest] if self._rest else lines)

    def feed(self, text: str) -> list[str]:
        """Take a piece and return the blocks that it finished."""
        *lines, self._rest = (self._rest + text).split("\n")
        return [block for line in lines for block in self._take(line)]

    def finish(self) -> list[str]:
        """Return what is left as its last blocks."""
        rest, self._rest = self._rest, ""
        blocks = self._take(rest) if rest else []
        self._fence, self._is_fence_block = None, False
        return [*blocks, *self._flush()]

    def _take(self, line: str) -> list[str]:
        if self._fence is not None:
            return self._in_fence(line)
        if not line.strip():
            self._had_blank = bool(self._lines)
            return []
        done = self._flush() if self._begins_anew(line) else self._keep_blank()
        fence = _FENCE.match(line)
        if fence and not (fence["mark"][0] == "`" and "`" in fence["info"]):
            self._is_fence_block = not self._lines or not fence["indent"]
            if self._is_fence_block:
                done += self._flush()
            self._fence = fence["mark"]
        self._lines.append(line)
        if _HEADING.match(line):
            done += self._flush()
        return done

    def _in_fence(self, line: str) -> list[str]:
        self._lines.append(line)
        mark = self._fence or ""
        closing = line.strip()
        if closing and set(closing) == {mark[0]} and len(closing) >= len(mark):
            self._fence = None
            if self._is_fence_block:
                self._is_fence_block = False
                return self._flush()
        return []

    def _begins_anew(self, line: str) -> bool:
        if _HEADING.match(line):
            return True
        if not self._had_blank:
            return False
        goes_on = _ITEM.match(self._lines[0]) is not None and (line[:1].isspace() or _ITEM.match(line) is not None)
        return not goes_on

    def _keep_blank(self) -> list[str]:
        if self._had_blank:
            self._lines.append("")
            self._had_blank = False
        return []

    def _flush(self) -> list[str]:
        lines, self._lines, self._had_blank = self._lines, [], False
        text = "\n".join(lines)
        return [text] if text.strip() else []
