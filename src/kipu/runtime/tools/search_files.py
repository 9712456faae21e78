"""`search_files`: lines of the workspace that match, with their surroundings."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kipu.errors import InvalidQueryError, PathNotFoundError
from kipu.ports.tool import JsonObject, ToolContext, ToolResult, ToolSpec
from kipu.ports.workspace import WorkspaceFiles
from kipu.runtime.tools.file_tool import FileTool, failure, finished, whole_number
from kipu.runtime.tools.ignore_rules import IgnoreRules, glob_matcher
from kipu.runtime.tools.result_limit import DEFAULT_LIMIT
from kipu.runtime.tools.search_engines import FoundLine, LineQuery, SearchEngine, Stopper, WalkEngine, searched_text
from kipu.runtime.tools.terminal_text import visible_controls
from kipu.runtime.tools.workspace_walk import rules_in

DEFAULT_MATCHES = 100
MAX_MATCHES = 1_000
MAX_CONTEXT_LINES = 10
LINE_CHARACTERS = 300
TIMEOUT_S = 30.0
_NOTE_CHARACTERS = 500

SPEC = ToolSpec(
    name="search_files",
    description=(
        "Search the files of the workspace line by line, by regular expression (the common ground of Python and ripgrep) or "
        "literal text. Left out are .git, what .gitignore names, binary files and files over 16 MB. The answer has the "
        "path, then the matching lines with their numbers."
    ),
    parameters={
        "type": "object",
        "properties": {
            "pattern": {
                "type": "string",
                "minLength": 1,
                "maxLength": 2000,
                "description": "What to look for in a line.",
            },
            "path": {"type": "string", "description": "A directory or file to search. Default: the whole workspace."},
            "glob": {
                "type": "string",
                "description": "Only files whose name or path matches, such as *.py, src/**/*.ts or *.{js,ts}.",
            },
            "literal": {"type": "boolean", "description": "Take the pattern as plain text. Default: false."},
            "ignore_case": {"type": "boolean", "description": "Do not tell case apart. Default: false."},
            "context_lines": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_CONTEXT_LINES,
                "description": "Lines to show before and after each match. Default: 0.",
            },
            "files_only": {"type": "boolean", "description": "Only name the files that match. Default: false."},
            "max_matches": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_MATCHES,
                "description": f"How many matches at most. Default: {DEFAULT_MATCHES}.",
            },
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
    is_idempotent=True,
    has_side_effect=False,
    default_policy="allow",
)


class SearchFiles(FileTool):
    """Search the workspace with `engine`, and by our own walk where the engine does not know the pattern.

    What is shown is read through the workspace, whatever the engine saw (A19, B41). One that takes too long is ended.
    """

    def __init__(
        self,
        *,
        engine: SearchEngine | None = None,
        root: Path | None = None,
        page_characters: int = DEFAULT_LIMIT,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__(SPEC, root=root)
        self._engines: list[SearchEngine] = [WalkEngine()] if engine is None else [engine, WalkEngine()]
        self._room = max(page_characters - _NOTE_CHARACTERS, 500)
        self._timeout_s = timeout_s

    async def work(self, arguments: JsonObject, *, files: WorkspaceFiles, context: ToolContext) -> ToolResult:
        """Search, and end every process of it before this returns."""
        stopper = Stopper()
        timer = asyncio.get_running_loop().call_later(self._timeout_s, stopper.stop)
        try:
            return await finished(lambda: self._search(arguments, files, stopper=stopper), on_cancel=stopper.stop)
        finally:
            timer.cancel()

    def _search(self, arguments: JsonObject, files: WorkspaceFiles, *, stopper: Stopper) -> ToolResult:
        path = files.resolve(arguments.get("path") or "")
        entry = files.stat(path)
        if entry is None:
            raise PathNotFoundError(root=str(files.root), path=path)
        if entry.kind not in ("file", "directory"):
            return failure(f"{path} is neither a file nor a directory: it cannot be searched.", word="not_a_file")
        glob = arguments.get("glob")
        names = glob_matcher([glob]) if glob else None
        if glob and names is None:
            return failure(f"{glob!r} is not a glob that can be used.", word="glob_invalid")
        if "\n" in arguments["pattern"]:
            return failure("The pattern has a line break in it; the search is line by line.", word="pattern_invalid")
        query = self._query(arguments, path, is_file=entry.kind == "file")
        page = SearchPage(
            files, whole_number(arguments, "context_lines", default=0), bool(arguments.get("files_only")), self._room
        )
        kept = _Kept(files, path, is_file=query.is_file)
        reason = ""
        for engine in self._engines:
            found = engine.lines(query, files, stopper=stopper)
            try:
                wanted = (
                    line for line in found if (names is None or names.fullmatch(line.path)) and kept.keeps(line.path)
                )
                page.fill(wanted, most=_most(arguments))
            except InvalidQueryError as error:
                reason = str(error.reason)
                continue
            return ToolResult(page.told(timeout_s=self._timeout_s if stopper.stopped.is_set() else None))
        return failure(f"The pattern is not a regular expression that can be used: {reason}", word="pattern_invalid")

    def _query(self, arguments: JsonObject, path: str, *, is_file: bool) -> LineQuery:
        glob = arguments.get("glob") or ""
        is_name = bool(glob) and not set(glob) & set("/{}[]\\,!")
        return LineQuery(
            pattern=arguments["pattern"],
            path=path,
            is_file=is_file,
            is_literal=bool(arguments.get("literal")),
            ignore_case=bool(arguments.get("ignore_case")),
            per_file=1
            if arguments.get("files_only")
            else _most(arguments) + 1,  # one more, to know that there are more
            name_glob=glob if is_name and not is_file else None,
        )


def _most(arguments: JsonObject) -> int:
    return whole_number(arguments, "max_matches", default=DEFAULT_MATCHES)


class _Kept:
    """Whether a found file counts: rules of all directories above it, which an engine may know in part only."""

    def __init__(self, files: WorkspaceFiles, start: str, *, is_file: bool) -> None:
        self._files = files
        self._start = start
        self._is_file = is_file
        self._rules: dict[str, IgnoreRules] = {}
        self._known: dict[str, bool] = {}

    def keeps(self, path: str) -> bool:
        if self._is_file:
            return path == self._start
        if path not in self._known:
            self._known[path] = self._keeps(path)
        return self._known[path]

    def _keeps(self, path: str) -> bool:
        parts = path.split("/")
        begin = len(self._start.split("/")) if self._start else 0
        for count in range(begin + 1, len(parts) + 1):
            rules = self._rules_of("/".join(parts[: count - 1]))
            if rules.leave_out("/".join(parts[:count]), is_directory=count < len(parts)):
                return False
        return True

    def _rules_of(self, directory: str) -> IgnoreRules:
        if directory not in self._rules:
            above = IgnoreRules() if not directory else self._rules_of(directory.rpartition("/")[0])
            self._rules[directory] = rules_in(self._files, directory, rules=above)
        return self._rules[directory]


@dataclass(slots=True)
class SearchPage:
    """The answer of a search, bounded by matches and by characters."""

    files: WorkspaceFiles
    context_lines: int
    files_only: bool
    room: int
    said: list[str] = field(default_factory=list)
    matches: int = 0
    found_files: int = 0
    is_cut: bool = False

    def fill(self, found: Iterator[FoundLine], *, most: int) -> None:
        """Take in what was found, until there is enough."""
        for path, group in itertools.groupby(found, key=lambda line: line.path):
            text = searched_text(self.files, path)
            if text is None:
                continue
            self._add_file(path, text.split("\n"), group=group, most=most)
            if self.is_cut:
                return

    def _add_file(self, path: str, lines: list[str], *, group: Iterator[FoundLine], most: int) -> None:
        shown, last = _shown_path(path), 0
        matches = [one for one in itertools.islice(group, most - self.matches + 1) if one.line <= len(lines)]
        for index, found in enumerate(matches):
            following = matches[index + 1].line if index + 1 < len(matches) else len(lines) + 1
            piece = [] if self.files_only else self._piece(lines, found, between=(last, following))
            head = [] if last else [shown]
            length = sum(len(line) + 1 for line in [*head, *piece])
            if self.matches >= most or (length > self.room and self.matches):
                self.is_cut = True
                return
            self.said += [*head, *piece]
            self.room -= length
            self.matches += 1
            self.found_files += not last
            last = max(min(found.line + self.context_lines, following - 1), found.line)

    def _piece(self, lines: list[str], found: FoundLine, *, between: tuple[int, int]) -> list[str]:
        """Return the lines to show for a match: after those that are shown already, before the next match."""
        last, following = between
        start = max(found.line - self.context_lines, last + 1)
        end = max(min(found.line + self.context_lines, following - 1, len(lines) - (not lines[-1])), found.line)
        piece = ["  --"] if last and start > last + 1 and self.context_lines else []
        for number in range(start, end + 1):
            column = found.column if number == found.line else 1
            piece.append(f"{number:>6}{':' if number == found.line else '-'} {_shown_line(lines[number - 1], column)}")
        return piece

    def told(self, *, timeout_s: float | None) -> str:
        """Return the answer."""
        if not self.matches:
            return "No matches." if timeout_s is None else f"No matches within {timeout_s:g} s; the search was ended."
        files = f"{self.found_files} file{'s' if self.found_files != 1 else ''}"
        count = files if self.files_only else f"{self.matches} match{'es' if self.matches != 1 else ''} in {files}"
        if timeout_s is not None:
            note = f"[{count}; ended after {timeout_s:g} s: there may be more. Narrow path or glob]"
        elif self.is_cut:
            note = f"[the first {count}; there are more. Narrow pattern, path or glob]"
        else:
            note = f"[{count}]"
        return "\n".join([*self.said, note])


def _shown_path(path: str) -> str:
    name = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return visible_controls(name).replace("\n", "\\n")


def _shown_line(line: str, column: int) -> str:
    """Return a line, or of a long one the part around the match."""
    raw = line.removesuffix("\r").encode("utf-8", "surrogateescape")
    if len(raw) <= LINE_CHARACTERS:
        return visible_controls(raw.decode("utf-8", "replace"))
    start = max(0, min(column - 1 - LINE_CHARACTERS // 3, len(raw) - LINE_CHARACTERS))
    piece = raw[start : start + LINE_CHARACTERS].decode("utf-8", "replace").strip("\ufffd")
    before, after = ("…" if start else ""), ("…" if start + LINE_CHARACTERS < len(raw) else "")
    return f"{before}{visible_controls(piece)}{after} [{len(line)} characters]"
