"""Processes that are begun with less than stdin, stdout and stderr, as some schedulers and supervisors do."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import suppress

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


def test_chat_reads_no_further_ahead_than_a_little(kipu_sqlite: CommandLine) -> None:
    """Lines that come faster than they are answered wait in the pipe: `yes | kipu chat` fills no memory."""
    taken = 0
    environment = kipu_sqlite.process_environment()
    command = (*KIPU, "chat")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        pipe = chat.stdin.fileno()

        def write() -> None:
            nonlocal taken
            with suppress(BrokenPipeError):
                while taken < 64_000_000:
                    taken += os.write(pipe, b"hello\n" * 10_000)

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(5):
            assert chat.stdout.readline()
        before_the_end = taken
        chat.kill()
        writer.join()
    assert before_the_end < 2_000_000


def test_chat_reads_lines_that_are_longer_than_what_is_read_at_once(kipu_sqlite: CommandLine) -> None:
    """A line of several reads is one message, in whatever pieces it comes, and so is a last one without its end."""
    long = "fish " * 50_000 + "end"
    assert kipu_sqlite.run("chat", stdin=f"{long}\nshort\n{long}").code == 0
    events = kipu_sqlite.events(kipu_sqlite.ids()[0])
    assert [event["content"] for event in events if event["event_type"] == "user_message"] == [long, "short", long]
