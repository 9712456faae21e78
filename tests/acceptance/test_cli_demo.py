"""`kipu demo`: what it shows really happened."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.unit.cli.command_line import CommandLine


@pytest.fixture
def kipu(tmp_path: Path) -> CommandLine:
    line = CommandLine(tmp_path, f"sqlite:///{tmp_path / 'mine.db'}")
    line.environment["TMPDIR"] = str(tmp_path)
    return line


@pytest.mark.parametrize("options", [(), ("--no-sandbox",)], ids=["as it is here", "without a sandbox"])
def test_demo_shows_what_really_happened(kipu: CommandLine, options: tuple[str, ...]) -> None:
    """A test fails and passes, a question is asked, a process is killed in a command that never runs twice, words are found."""
    report = kipu.process("demo", "--fast", "--json", "--keep", *options).json
    facts, folder = report["facts"], Path(report["folder"])
    assert (facts["tests_fail_before"], facts["tests_pass_after"], len(facts["asked"])) == (True, True, 1)
    assert facts["killed_by"] == signal.SIGKILL
    assert (facts["starts_of_the_killed_call"], facts["interrupted_results"]) == (1, 1)
    assert facts["command_ended_with_it"] is not False
    assert (facts["found_in_chinese"], facts["found_in_english"]) == (True, True)
    assert facts["window_shows_the_interrupted_call"]
    assert set(facts["sessions"]) == {facts["first_session"], facts["second_session"], facts["fork"]}
    shown = CommandLine(folder / "home", f"sqlite:///{folder / 'sessions.db'}")
    assert set(shown.ids()) == set(facts["sessions"])
    assert "width * height" in (folder / "project" / "shapes.py").read_text()
    assert ("without a sandbox" in report["sandbox"]) is (bool(options) or shutil.which("bwrap") is None)
    assert not (kipu.home / "mine.db").exists()


def test_demo_leaves_nothing_and_prints_what_a_person_would_type(kipu: CommandLine) -> None:
    """Without `--keep` its folder is gone afterwards; each step shows its command, and the whole takes under 30 s of work."""
    ran = kipu.process("demo", "--fast")
    assert ran.code == 0, ran.stdout + ran.stderr
    commands = [line.split()[1:3] for line in ran.stdout.splitlines() if line.startswith("$ ")]
    named = ("run", "approvals", "approve", "diff", "status", "fork", "search", "window", "ls", "verify")
    assert {name for program, name in commands if program == "kipu"} == set(named)
    assert ["kill", "-9"] in commands
    assert list(kipu.home.glob("kipu-demo-*")) == []
