"""Processes that are begun with less than stdin, stdout and stderr, as some schedulers and supervisors do."""

from __future__ import annotations

import subprocess

import pytest

from tests.unit.cli.command_line import KIPU, CommandLine


@pytest.mark.parametrize(
    ("closed", "words", "code"),
    [
        ("<&-", ("chat",), 0),
        ("<&-", ("chat", "--resume"), 2),
        ("<&-", ("run", "-"), 2),
        (">&-", ("run", "hello"), 0),
        ("<&- >&- 2>&-", ("run", "hello"), 0),
        ("<&- >&- 2>&-", ("show", "sess_none"), 3),
    ],
    ids=str,
)
def test_commands_work_without_standard_streams(
    kipu_sqlite: CommandLine, closed: str, words: tuple[str, ...], code: int
) -> None:
    """A command that has no stdin, stdout or stderr ends as it would with empty ones, and shows no traceback."""
    kipu_sqlite.chat("before")
    shell = ("sh", "-c", f'exec "$@" {closed}', "sh", *KIPU, *words)
    environment = kipu_sqlite.process_environment()
    done = subprocess.run(shell, capture_output=True, env=environment, cwd=kipu_sqlite.home, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False)
    assert kipu_sqlite.run("verify").code == 0
