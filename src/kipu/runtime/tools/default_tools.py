"""The tools that every session has."""

from __future__ import annotations

import shutil
from pathlib import Path

from kipu.manager.manager import SessionManager
from kipu.ports.tool import Tool
from kipu.runtime.tools.ask_user import AskUser
from kipu.runtime.tools.edit_file import EditFile
from kipu.runtime.tools.list_dir import ListDirectory
from kipu.runtime.tools.read_file import ReadFile
from kipu.runtime.tools.read_result import ReadResult
from kipu.runtime.tools.result_limit import DEFAULT_LIMIT
from kipu.runtime.tools.search_engines import RipgrepEngine, SearchEngine
from kipu.runtime.tools.search_files import SearchFiles
from kipu.runtime.tools.seen_files import SeenFiles
from kipu.runtime.tools.session_search import SessionSearch
from kipu.runtime.tools.write_file import WriteFile


def default_tools(
    *,
    root: Path | None = None,
    manager: SessionManager | None = None,
    ripgrep: str | None = None,
    limit: int = DEFAULT_LIMIT,
    seen: SeenFiles | None = None,
) -> list[Tool]:
    """Return fresh tools for one session, in the order in which a model is told of them.

    `root` is the workspace's; without it there are no file tools. Without `manager` there is no search of sessions. `ripgrep`
    is the program to search with, "" for none; by default the one in PATH, and our own walk where there is none. `limit`
    bounds one answer in characters, as `limited` does. `seen` is what the session knows of files already.
    """
    tools: list[Tool] = []
    if root is not None:
        seen = SeenFiles() if seen is None else seen
        tools += [
            ReadFile(seen=seen, root=root, page_characters=limit),
            WriteFile(seen=seen, root=root),
            EditFile(seen=seen, root=root),
            ListDirectory(root=root),
            SearchFiles(engine=_engine(ripgrep), root=root, page_characters=limit),
        ]
    if manager is not None:
        tools.append(SessionSearch(manager))
    return [*tools, ReadResult(page_characters=limit), AskUser()]


def _engine(ripgrep: str | None) -> SearchEngine | None:
    program = shutil.which("rg") if ripgrep is None else ripgrep
    return RipgrepEngine(program) if program else None
