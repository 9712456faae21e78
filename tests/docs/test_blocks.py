"""Every program and every `kipu` command that the documentation shows runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_in, commands_in, missing_lines

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page for page in [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").rglob("*.md"))] if page.exists()]
PROGRAMS = [block for page in PAGES for block in blocks_in(page) if block.language == "python" and block.is_run]
CONSOLES = [page for page in PAGES if any(block.language == "console" for block in blocks_in(page))]
TIME_LIMIT_S = 120
MODEL_SETTING = re.compile(r"(_API_KEY|_BASE_URL|_TOKEN)$|^(OLLAMA|KIPU)_")
KIPU = re.compile(r"(^|[|;&\s])kipu\s")
MAKE_CHAT = re.compile(r"(^|[|;&\s])make chat\b")


def _where(block: Block) -> str:
    return f"{block.page.relative_to(ROOT)}:{block.line}"


def _environment(home: Path) -> dict[str, str]:
    """Return what a newcomer's shell has: no key, no settings, the environment's own commands first."""
    kept = {name: value for name, value in os.environ.items() if not MODEL_SETTING.search(name)}
    kept = {name: value for name, value in kept.items() if not name.startswith("XDG_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    # The docs show the demo model; a machine with a local model or a key would answer in other words.
    shown = {"KIPU_MODEL": "demo", "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"}
    return {**kept, **shown, "HOME": str(home), "PATH": path}


def _run(arguments: list[str], *, folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end. What is not over in time is aborted, and says then where each of its threads stood."""
    with subprocess.Popen(
        arguments,
        cwd=folder,
        env={**_environment(home), "PYTHONFAULTHANDLER": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        output = _output(process)
        if output is None:
            # The whole group: of a shell too, whose programs hold the output open.
            os.killpg(process.pid, signal.SIGABRT)
            output = f"{_output(process)}\nnot over after {TIME_LIMIT_S} s"
    return subprocess.CompletedProcess(arguments, process.returncode, output)


def _output(process: subprocess.Popen[str]) -> str | None:
    """Return all it says, None where it is not over in time. A second in which the machine stands still longer is one."""
    for _ in range(TIME_LIMIT_S):
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=1)[0]
    return None


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return an empty home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty working folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("block", PROGRAMS, ids=_where)
def test_programs_in_the_docs_run(block: Block, folder: Path, *, home: Path) -> None:
    """Each ```python block runs by itself in an empty folder, with warnings as errors."""
    program = folder / "program.py"
    program.write_text(block.body, encoding="utf-8")
    done = _run([sys.executable, "-W", "error", program.name], folder=folder, home=home)
    assert done.returncode == 0, f"{_where(block)}\n{done.stdout}"


@pytest.mark.parametrize("page", CONSOLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_docs_run(page: Path, folder: Path, *, home: Path) -> None:
    """Each `$ … kipu …` and `make chat` line of a page runs, one after the other in one folder, and says what is shown."""
    for block in blocks_in(page):
        if block.language != "console" or not block.is_run:
            continue
        for command in commands_in(block):
            is_make = MAKE_CHAT.search(command.line) is not None
            if not is_make and not KIPU.search(command.line):
                continue
            at = ROOT if is_make else folder
            done = _run(["bash", "-o", "pipefail", "-c", command.line], folder=at, home=home)
            assert done.returncode == 0, f"{_where(block)} $ {command.line}\n{done.stdout}"
            missing = missing_lines(command.shown, done.stdout)
            assert not missing, f"{_where(block)} $ {command.line}\nshown but not said: {missing}\nsaid:\n{done.stdout}"


def test_translated_readme_shows_the_same_commands() -> None:
    """The README in Chinese shows the commands of the README in English."""
    shown = [
        [command.line for block in blocks_in(page) if block.language == "console" for command in commands_in(block)]
        for page in (ROOT / "README.md", ROOT / "README.zh-CN.md")
    ]
    assert shown[0] == shown[1]


LINK = re.compile(r"\[[^\]]*\]\((?!\w+:|#)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "AGENTS.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_in_the_docs_lead_somewhere(page: Path) -> None:
    """Every link of a page to a file of the project leads to one that exists."""
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


PAGE = """# A page

```console
$ echo one | kipu chat
you said … in sess_01h5n0et5q6mt3v7ms1234abcd
$ kipu ls \\
    --json
```

<!-- not run: needs a key -->
```python
raise SystemExit(1)
```
"""


def test_blocks_are_read_with_their_commands(tmp_path: Path) -> None:
    """The reader finds blocks, commands with the output shown, commands over two lines, and what is not to be run."""
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    console, program = blocks_in(page)
    first, second = commands_in(console)
    assert (console.line, console.is_run, program.language, program.is_run) == (3, True, "python", False)
    assert first.line == "echo one | kipu chat"
    assert second.line == "kipu ls \\\n    --json"
    assert missing_lines(first.shown, "hello\nyou said one in sess_01h5n0et5q6mt3v7ms9999zzzz\n") == []
    assert missing_lines(first.shown, "you said one\n") == list(first.shown)
