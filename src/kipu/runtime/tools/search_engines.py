"""Finding lines in the files of a workspace: by ripgrep, or by a walk of our own with the same answer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, Protocol, Self

from kipu.errors import InvalidQueryError, WorkspaceError
from kipu.ports.workspace import WorkspaceFiles
from kipu.runtime.tools import line_matcher
from kipu.runtime.tools.text_file import TextFile
from kipu.runtime.tools.workspace_walk import walk_files

MAX_SEARCHED_BYTES = 16 * 1024 * 1024
_READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class LineQuery:
    """What is searched for, from `path` on (a directory or file, resolved); at most `per_file` lines of a file."""

    pattern: str
    path: str
    is_file: bool
    is_literal: bool
    ignore_case: bool
    per_file: int
    name_glob: str | None = None  # a hint only: names that the caller keeps anyway


class FoundLine(NamedTuple):
    """A line that matches: its file, its number from 1, and the column of the match in bytes from 1."""

    path: str
    line: int
    column: int


@dataclass(slots=True)
class Stopper:
    """Ends the processes of a search from another thread, and tells the search to stop."""

    stopped: threading.Event = field(default_factory=threading.Event)
    _process: subprocess.Popen[bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(
        self, command: list[str], *, cwd: Path | None, with_input: bool = False, errors: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that `stop` ends."""
        with self._lock:
            self._process = subprocess.Popen(  # noqa: S603 - a list of our own, no shell
                command,
                cwd=cwd,
                stdin=subprocess.PIPE if with_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors or subprocess.DEVNULL,
                env={"LC_ALL": "C.UTF-8"},
            )
            if self.stopped.is_set():
                self._process.kill()
            return self._process

    def stop(self) -> None:
        """End it all."""
        self.stopped.set()
        with self._lock:
            if self._process is not None:
                self._process.kill()


class SearchEngine(Protocol):
    """Find lines, file by file in the order of `walk_files`.

    Raises: InvalidQueryError (it does not understand the pattern), before the first line.
    """

    def lines(self, query: LineQuery, files: WorkspaceFiles, *, stopper: Stopper) -> Iterator[FoundLine]:
        """Yield what matches. What ripgrep finds beyond the workspace's rules is for the caller to leave out."""
        ...


class RipgrepEngine:
    """Search by the `rg` program. It says where, never what: the lines are read through the workspace."""

    def __init__(self, program: str) -> None:
        self._program = program

    def lines(self, query: LineQuery, files: WorkspaceFiles, *, stopper: Stopper) -> Iterator[FoundLine]:
        """Yield the lines that ripgrep finds."""
        with tempfile.TemporaryFile() as errors:
            try:
                process = stopper.start(self._command(query), cwd=files.root, errors=errors)
            except OSError as error:
                raise InvalidQueryError(reason=f"{self._program} cannot be started: {error}") from error
            try:
                yield from _parsed(process)
                process.wait()
            finally:
                process.kill()
                process.communicate()
            errors.seek(0)
            said = errors.read(2_000).strip()
        if process.returncode == 2 and said and not stopper.stopped.is_set():
            raise InvalidQueryError(reason=said.decode("utf-8", "replace"))

    def _command(self, query: LineQuery) -> list[str]:
        return [
            self._program,
            *("--no-config", "--no-messages", "--color=never", "--no-heading", "--with-filename", "--line-number"),
            *(
                "--column",
                "--null",
                "--max-columns=1",
                "--sort=path",
                "--crlf",
                "--no-mmap",
                "--hidden",
                "--glob=!.git",
            ),
            *("--no-require-git", "--no-ignore-parent", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot"),
            f"--max-filesize={MAX_SEARCHED_BYTES}",
            f"--max-count={query.per_file}",
            "--fixed-strings" if query.is_literal else "--engine=auto",
            *(["--ignore-case"] if query.ignore_case else []),
            *([f"--type-add=asked:{query.name_glob}", "--type=asked"] if query.name_glob else []),
            *("--regexp", query.pattern, "--", f"./{query.path}"),
        ]


def _parsed(process: subprocess.Popen[bytes]) -> Iterator[FoundLine]:
    """Yield what ripgrep prints: path, NUL, line, ':', column, ':', at most one byte of text or a remark, line break."""
    if process.stdout is None:
        return
    rest = b""
    while chunk := os.read(process.stdout.fileno(), _READ_BYTES):
        *complete, rest = (rest + chunk).split(b"\n")
        joined = b""
        for record in complete:
            joined += record
            path, nul, told = joined.partition(b"\0")
            if not nul:  # a line break in the name of a file
                joined += b"\n"
                continue
            joined = b""
            line, column, *_ = told.split(b":", 2)
            name = path.decode("utf-8", "surrogateescape").removeprefix("./")
            yield FoundLine(name, int(line), int(column))
        if joined:
            rest = joined + rest


class WalkEngine:
    """Search by walking the workspace: literal text in this process, regular expressions in one that can be ended."""

    def lines(self, query: LineQuery, files: WorkspaceFiles, *, stopper: Stopper) -> Iterator[FoundLine]:
        """Yield the lines that match."""
        if query.is_literal:
            yield from self._found(query, files, finder=_LiteralFinder(query), stopper=stopper)
            return
        with _PatternFinder(query, stopper) as finder:
            yield from self._found(query, files, finder=finder, stopper=stopper)

    def _found(
        self, query: LineQuery, files: WorkspaceFiles, *, finder: _Finder, stopper: Stopper
    ) -> Iterator[FoundLine]:
        paths = [query.path] if query.is_file else (entry.path for entry in walk_files(files, query.path))
        for path in paths:
            if stopper.stopped.is_set():
                return
            text = searched_text(files, path)
            if text is not None:
                for line, column in finder.find(text):
                    yield FoundLine(path, line, column)


def searched_text(files: WorkspaceFiles, path: str) -> str | None:
    """Return the text of a file as searches see it; None for what is no text, too big, or not to be read.

    Bytes that are not UTF-8 are kept as lone surrogates, which nothing matches.
    """
    try:
        data = files.read(path, max_bytes=MAX_SEARCHED_BYTES + 1)
    except (WorkspaceError, OSError):
        return None
    if len(data) > MAX_SEARCHED_BYTES:
        return None
    file = TextFile.decode(data)
    if file is not None and file.encoding == "latin-1":
        return data.decode("utf-8", "surrogateescape")
    return None if file is None else file.text


class _Finder(Protocol):
    def find(self, text: str) -> list[tuple[int, int]]: ...


class _LiteralFinder:
    """Plain text, which takes no more than one pass."""

    def __init__(self, query: LineQuery) -> None:
        self._most = query.per_file
        self._matcher = re.compile(re.escape(query.pattern), re.IGNORECASE if query.ignore_case else 0)

    def find(self, text: str) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        line, at = 1, 0
        while len(found) < self._most and (match := self._matcher.search(text, at)) is not None:
            line += text.count("\n", at, match.start())
            begin = text.rfind("\n", 0, match.start()) + 1
            found.append((line, len(text[begin : match.start()].encode("utf-8", "surrogateescape")) + 1))
            at = text.find("\n", match.end()) + 1
            if not at:
                break
            line += 1
        return found


class _PatternFinder:
    """A process that matches."""

    def __init__(self, query: LineQuery, stopper: Stopper) -> None:
        script = str(Path(line_matcher.__file__))
        self._process = stopper.start([sys.executable, "-I", "-S", "-B", script], cwd=None, with_input=True)
        self._asked = {"pattern": query.pattern, "ignore_case": query.ignore_case, "most": query.per_file}

    def __enter__(self) -> Self:
        told = self._answer(json.dumps(self._asked).encode())
        if isinstance(told, str):
            self.__exit__()
            raise InvalidQueryError(reason=told)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def find(self, text: str) -> list[tuple[int, int]]:
        told = self._answer(text.encode("utf-8", "surrogateescape"))
        return [] if isinstance(told, str) else [(line, column) for line, column in told]

    def _answer(self, data: bytes) -> str | list[tuple[int, int]]:
        if self._process.stdin is None or self._process.stdout is None:
            return []
        try:
            self._process.stdin.write(line_matcher.frame(data))
            self._process.stdin.flush()
        except BrokenPipeError:  # ended by `stop`
            return []
        line = self._process.stdout.readline()
        answer: str | list[tuple[int, int]] = json.loads(line) if line.endswith(b"\n") else []
        return answer
