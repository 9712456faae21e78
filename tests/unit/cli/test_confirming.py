"""What cannot be taken back is asked for, and where nobody can answer it is not done (B47)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.cli.exit_code import ExitCode
from tests.unit.cli.command_line import CommandLine


@pytest.fixture
def kipu(tmp_path: Path) -> CommandLine:
    line = CommandLine(tmp_path, f"sqlite:///{tmp_path / 'sessions.db'}")
    line.chat("hello")
    return line


@pytest.mark.parametrize("command", ["erase", "memory forget"])
def test_nobody_to_ask_is_an_error_that_says_how_to_go_on(kipu: CommandLine, command: str) -> None:
    """An input that has ended, and a program that reads JSON, get the option to give; stdout stays clean (B47)."""
    (session_id,) = kipu.ids()
    what = [*command.split(), session_id if command == "erase" else "mem_x"]
    silent = kipu.process(*what)
    assert (silent.code, silent.stdout) == (ExitCode.USAGE, "")
    assert "--yes" in silent.stderr
    program = kipu.process(*what, "--json", stdin="y\n")
    assert program.code == ExitCode.USAGE
    assert "--yes" in program.stderr
    assert "[y/N]" not in program.stderr
    assert program.stdout == ""
    assert kipu.ids() == [session_id]


@pytest.mark.parametrize("answer", ["", "n", "yesterday"])
def test_anything_but_yes_is_no(kipu: CommandLine, answer: str) -> None:
    """An empty line and any other word leave all as it is (B47)."""
    (session_id,) = kipu.ids()
    refused = kipu.run("erase", session_id, stdin=f"{answer}\n")
    assert refused.code == ExitCode.FAILURE
    assert "nothing was changed" in refused.stderr
    assert kipu.run("erase", session_id, stdin="Y\n").code == 0
    assert kipu.ids() == []
