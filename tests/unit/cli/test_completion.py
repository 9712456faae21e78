"""What the shell is offered for a TAB: ids with their titles, of the right store, at once and without harm."""

from __future__ import annotations

import sqlite3
import subprocess
import time

import pytest

from tests.unit.cli.command_line import CommandLine


def test_completion_offers_session_ids_with_titles(kipu_sqlite: CommandLine) -> None:
    """The shell is offered ids that begin so, with their titles; an unreadable store offers nothing and fails nothing."""
    kipu_sqlite.chat("hello birds")
    session_id = kipu_sqlite.ids()[0]
    asked = {"_KIPU_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"kipu show {session_id[:8]}"}
    kipu_sqlite.environment |= asked
    ran = kipu_sqlite.process()
    assert session_id in ran.stdout
    assert "hello birds" in ran.stdout
    kipu_sqlite.environment["KIPU_STORE"] = "nonsense"
    assert kipu_sqlite.process().stderr == ""


@pytest.mark.parametrize(
    "title", [r"\$(touch run)", r"\`touch run`", '"$(touch run)"', "'$(touch run)", "[/b] [red]$(touch run)"]
)
def test_completion_offers_titles_that_no_shell_runs(kipu_sqlite: CommandLine, title: str) -> None:
    """What somebody wrote is only shown by a shell that evaluates the offers twice, as zsh does."""
    kipu_sqlite.chat(title)
    session_id = kipu_sqlite.ids()[0]
    kipu_sqlite.environment |= {"_KIPU_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "kipu show "}
    offered = kipu_sqlite.process()
    assert (offered.code, offered.stderr, session_id in offered.stdout) == (0, "", True)
    # The script evaluates the output, and `_arguments` what stands between its brackets.
    twice = """_arguments() { local of="${1#*((}"; eval "ws=( ${of%))*} )"; }; eval "$(cat)"; echo "${ws[0]}" """
    shown = subprocess.run(
        ["bash", "-c", twice], input=offered.stdout, capture_output=True, text=True, cwd=kipu_sqlite.home, check=True
    )  # fmt: skip
    assert (shown.stderr, "touch run" in shown.stdout, session_id in shown.stdout) == ("", True, True)
    assert not (kipu_sqlite.home / "run").exists()


def test_completion_looks_into_the_store_that_is_named(kipu_sqlite: CommandLine) -> None:
    """Ids are offered of the store that `--store` names, before or after a command's name, not of the default one."""
    kipu_sqlite.chat("hello birds")
    session_id, store = kipu_sqlite.ids()[0], kipu_sqlite.store
    kipu_sqlite.environment |= {
        "KIPU_STORE": f"sqlite:///{kipu_sqlite.home}/none.db",
        "_KIPU_COMPLETE": "complete_bash",
    }
    for words in (f"kipu show --store {store} ", f"kipu --store {store} proposals try --session ", "kipu show "):
        kipu_sqlite.environment |= {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        assert kipu_sqlite.process().stdout.split() == ([session_id] if store in words else [])


def test_completion_does_not_wait_for_a_locked_store(kipu_sqlite: CommandLine) -> None:
    """Where another process holds the store's lock the shell goes on, with nothing offered and nothing said."""
    kipu_sqlite.chat("hello birds")
    holder = sqlite3.connect(kipu_sqlite.store.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    kipu_sqlite.environment |= {"_KIPU_COMPLETE": "complete_bash", "COMP_WORDS": "kipu show ", "COMP_CWORD": "2"}
    begun = time.monotonic()
    ran = kipu_sqlite.process()
    taken_s = time.monotonic() - begun
    holder.close()
    assert (ran.code, ran.stdout.strip(), ran.stderr) == (0, "", "")
    assert taken_s < 20  # a command waits for half a minute
