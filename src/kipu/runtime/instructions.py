"""What a coding agent is told first: who it is, where it works, and what its project says of itself."""

from __future__ import annotations

from pathlib import Path

from kipu.errors import WorkspaceError
from kipu.ports.home_path import home_path
from kipu.ports.workspace import Workspace
from kipu.proposals.text_check import SECTION_MARK

PROJECT_FILES = ("AGENTS.md", "CLAUDE.md")
MAX_PROJECT_CHARACTERS = 20_000

_TEXT = """\
You are a coding agent in a terminal. You work in the directory {root} by the tools you are given; paths are relative to it.

- Look before you change: read a file before you edit it, search before you guess.
- Make the smallest change that does what was asked, in the style that is there. Then run what checks it, and say what came out.
- A call may be denied, skipped or interrupted; its result says so. Do not repeat a call whose outcome is unknown before you
  have looked what it did.
- Say what you did and what you did not. If something cannot be done, say why.
- Answer in the language of the person. Be brief.
"""

_OF_ITS_OWN = "of this session (name files by relative paths: its place may change)"
_CARRIED = """\
- The next turn may run on another machine. The files of the directory come along, but for folders that programs can fill again
  (node_modules, .venv, caches). What lies elsewhere stays behind, and background processes end: start them again.
"""


def coding_instruction(
    workspace: Workspace | None, *, project_text: str | None = None, is_carried: bool = False
) -> str:
    """Return the system prompt of a new session: the same text for the same workspace, so that prompt caches hold."""
    root = str(workspace.root) if workspace is not None else "(none)"
    text = _TEXT.format(root=root) if not is_carried else _TEXT.format(root=_OF_ITS_OWN) + _CARRIED
    if project_text:
        said = project_text.replace(SECTION_MARK, "")  # a project does not say what the person approved
        text += f"\nThe project says of itself:\n\n{said}"
    return text


def project_text(workspace: Workspace | None) -> str | None:
    """Return what the project tells agents (AGENTS.md), cut where it is too long. Blocking."""
    if workspace is None:
        return None
    for name in PROJECT_FILES:
        try:
            data = workspace.files.read(name, max_bytes=MAX_PROJECT_CHARACTERS * 4)
        except WorkspaceError:
            continue
        text = data.decode("utf-8", "replace").strip()
        if text:
            cut = text[:MAX_PROJECT_CHARACTERS]
            return cut if cut == text else f"{cut}\n[{name} goes on; read it for the rest.]"
    return None


def default_workspaces_folder(data_home: str | None, home: str | None) -> Path:
    """Return where sessions' own directories are made when nobody says otherwise: in the XDG data folder."""
    base = Path(data_home) if data_home and data_home.startswith("/") else Path(home or "~", ".local", "share")
    return home_path(base) / "kipu" / "workspaces"
