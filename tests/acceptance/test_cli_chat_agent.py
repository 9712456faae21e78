"""`kipu chat` as an agent on a real terminal: questions, interruptions, queues, kills, several sessions, undone files."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_cli_chat_terminal import POLL_S, WAIT_S, Starter, Terminal
from tests.unit.cli.command_line import KIPU, CommandLine

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

READY = "/help lists commands"
OPTIONS = "y yes · n [why] no"


@pytest.fixture
def kipu(tmp_path: Path) -> CommandLine:
    home = tmp_path / "home"
    home.mkdir()
    return CommandLine(home, f"sqlite:///{tmp_path / 'sessions.db'}")


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    opened: list[Terminal] = []

    def open_terminal(kipu: CommandLine, *words: str, captured: bool = False) -> Terminal:
        socket = tmp_path_factory.mktemp("tmux") / "socket"
        command = shlex.join([*KIPU, *words]) + (" | cat" if captured else "")
        opened.append(Terminal(socket, command, environment=kipu.process_environment(), directory=kipu.home))
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


def ask_for(terminal: Terminal, message: str) -> None:
    """Have the agent ask about a call."""
    terminal.type(message)
    terminal.wait_for(OPTIONS, then=">")


def of_type(kipu: CommandLine, session_id: str, event_type: str) -> list[dict[str, Any]]:
    return [event for event in kipu.events(session_id) if event["event_type"] == event_type]


def test_a_write_is_shown_as_a_diff_and_runs_once_allowed(kipu: CommandLine, start: Starter) -> None:
    """A change is shown as a diff before it happens; `y` lets it happen, and `/undo` brings the file back (A20, C15, C11)."""
    (kipu.home / "notes.txt").write_text("old\n")
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "replace old with new in notes.txt")
    assert "-old" in terminal.screen()
    assert "+new" in terminal.screen()
    assert (kipu.home / "notes.txt").read_text() == "old\n"
    terminal.type("y")
    terminal.wait_until_gone(OPTIONS)
    wait_until(lambda: (kipu.home / "notes.txt").read_text() == "new\n")
    terminal.wait_until_gone("working")
    terminal.type("/undo")
    terminal.wait_for("files brought back: notes.txt")
    assert (kipu.home / "notes.txt").read_text() == "old\n"


def test_a_refusal_with_its_reason_reaches_the_model(kipu: CommandLine, start: Starter) -> None:
    """`n` with a reason runs nothing, and the model is told why (C15)."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "write notes.txt: hello")
    terminal.type("n use another name")
    terminal.wait_for("I was not allowed", then=">")
    assert not (kipu.home / "notes.txt").exists()
    (result,) = of_type(kipu, kipu.ids()[0], "tool_result")
    assert "use another name" in result["result"]


def test_a_call_is_changed_before_it_runs(kipu: CommandLine, start: Starter) -> None:
    """`e` puts the call into the line; what is entered runs instead (C15)."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "run `echo one`")
    terminal.type("e")
    terminal.wait_for("> echo one")
    terminal.keys("BSpace", "BSpace", "BSpace")
    terminal.type("two > out.txt")
    terminal.wait_for("exit code 0")
    assert (kipu.home / "out.txt").read_text() == "two\n"


def test_a_long_argument_is_changed_in_the_persons_editor(kipu: CommandLine, start: Starter) -> None:
    """`e` opens text of several lines in EDITOR; what it leaves there is what runs, and one that fails changes nothing (C15)."""
    editor = kipu.home / "editor"
    editor.write_text('#!/bin/sh\n[ -e ready ] || exit 3\nsed -i s/two/three/ "$1"\n')
    editor.chmod(0o755)
    kipu.environment["EDITOR"] = str(editor)
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, 'use write_file with {"path": "a.txt", "content": "one\\ntwo\\n"}')
    terminal.type("e")
    terminal.wait_for("the editor did not end well; the call still waits")
    (kipu.home / "ready").touch()
    terminal.type("e")
    terminal.wait_for("write_file", then=">")
    wait_for_file(kipu.home / "a.txt", "one\nthree\n")
    terminal.keys("C-d")


@pytest.mark.parametrize("editor", ["/no/such/editor", "vi 'unended"])
def test_an_editor_that_cannot_be_started_changes_nothing(kipu: CommandLine, start: Starter, editor: str) -> None:
    """An EDITOR that is not there is told; the chat goes on, and the call still waits (C15)."""
    kipu.environment["EDITOR"] = editor
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, 'use write_file with {"path": "long.txt", "content": "one\\ntwo\\n"}')
    terminal.type("e")
    terminal.wait_for("cannot be used")
    terminal.type("y")
    wait_for_file(kipu.home / "long.txt", "one\ntwo\n")
    terminal.keys("C-d")


def wait_for_file(path: Path, text: str) -> None:
    until = time.monotonic() + WAIT_S
    while not path.exists() or path.read_text() != text:
        assert time.monotonic() < until, f"{path.name} is not {text!r}"
        time.sleep(POLL_S)


def test_escape_ends_a_running_command(kipu: CommandLine, start: Starter) -> None:
    """Esc ends the command that runs, closes its call, and the chat goes on (C7, C13)."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "run `echo begun; sleep 300`")
    terminal.type("y")
    terminal.wait_for("│ begun")
    terminal.keys("Escape")
    terminal.wait_for("interrupted; what was done is kept", then=">")
    terminal.type("how many messages?")
    terminal.wait_for("my window holds")
    (result,) = of_type(kipu, kipu.ids()[0], "tool_result")
    assert result["synthetic"] == "cancelled"


def test_a_line_typed_while_it_works_waits_its_turn(kipu: CommandLine, start: Starter) -> None:
    """A line typed meanwhile is shown as queued, listed, and answered in a turn of its own afterwards (A39, C12)."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "run `until test -e go; do sleep 0.1; done`")
    terminal.type("y")
    terminal.wait_for("working")
    terminal.type("how many messages?")
    terminal.wait_for("queued (1)")
    terminal.type("and this is taken back")
    terminal.wait_for("queued (2)")
    terminal.type("/queue cancel 2")
    terminal.wait_for("taken back: 1")
    (kipu.home / "go").touch()
    terminal.wait_for("my window holds", then=">")
    finished = of_type(kipu, kipu.ids()[0], "turn_finished")
    assert [event["outcome"] for event in finished] == ["completed", "completed"]
    assert [event["reason"] for event in of_type(kipu, kipu.ids()[0], "message_settled")] == ["cancelled"]


def test_a_killed_chat_is_taken_up_where_it_was(kipu: CommandLine, start: Starter) -> None:
    """After SIGKILL in a running command the next chat says what was interrupted, and nothing runs twice (C14, B2)."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "run `echo x >> runs; sleep 300`")
    terminal.type("y")
    terminal.wait_for("working")
    terminal.wait_until_gone(OPTIONS)
    wait_until((kipu.home / "runs").exists)
    terminal.kill()
    terminal.wait_for("ended with 137")
    again = start(kipu, "chat", "--continue")
    again.wait_for("interrupted: shell echo x >> runs; sleep 300")
    again.type("how many messages?")
    again.wait_for("my window holds", then=">")
    assert (kipu.home / "runs").read_text() == "x\n"
    results = of_type(kipu, kipu.ids()[0], "tool_result")
    assert [result["synthetic"] for result in results] == ["interrupted"]


def test_a_parked_turn_is_decided_after_a_kill(kipu: CommandLine, start: Starter) -> None:
    """A question outlives the process that asked it: the next chat asks again, and the call runs once (C15)."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "write notes.txt: hello")
    terminal.kill()
    again = start(kipu, "chat", "--continue")
    again.wait_for("a turn waits for you to decide")
    again.wait_for(OPTIONS, then=">")
    again.type("y")
    again.wait_for("Created notes.txt", then=">")
    assert (kipu.home / "notes.txt").read_text() == "hello\n"


def test_a_session_left_behind_works_on(kipu: CommandLine, start: Starter) -> None:
    """Switching to another session leaves the turn of the first running; its end is told (A39, B43)."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "run `until test -e go; do sleep 0.1; done`")
    terminal.type("y")
    terminal.wait_for("working")
    terminal.type("/new Second")
    terminal.type("hello there")
    terminal.wait_for("demo model, no AI: hello!", then=">")
    terminal.type("/sessions")
    terminal.wait_for("works")
    (kipu.home / "go").touch()
    terminal.wait_for("its turn is completed")
    terminal.type("/switch run")
    terminal.wait_for("ended with exit code 0", then=">")
    assert len(kipu.ids()) == 2


def test_always_is_not_asked_again_and_can_be_revoked(kipu: CommandLine, start: Starter) -> None:
    """`a` allows the same call for the session; `/policy` lists it, and after `revoke` it is asked again (C15, A19)."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "run `echo again`")
    terminal.type("a")
    terminal.wait_for("ended with exit code 0", then=">")
    terminal.type("run `echo again`")
    terminal.type("/policy")
    terminal.wait_for("session: shell(echo again)")
    grant = next(word for word in terminal.screen().split() if word.startswith("grant_"))
    terminal.type(f"/policy revoke {grant}")
    terminal.wait_for(f"revoked: {grant}", then=">")
    ask_for(terminal, "run `echo again`")
    assert len(of_type(kipu, kipu.ids()[0], "approval_request")) == 2


def test_a_line_joins_the_running_turn_where_that_is_set(kipu: CommandLine, start: Starter) -> None:
    """With `busy = steer` a line typed meanwhile joins the turn at its next boundary, as `/steer` does (C12)."""
    kipu.environment["KIPU_BUSY"] = "steer"
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "run `until test -e go; do sleep 0.1; done`")
    terminal.type("y")
    terminal.wait_for("working")
    terminal.type("how many messages?")
    terminal.wait_for("queued (1)")
    (kipu.home / "go").touch()
    terminal.wait_for("your message joined the turn")
    terminal.wait_for("my window holds", then=">")
    assert [event["outcome"] for event in of_type(kipu, kipu.ids()[0], "turn_finished")] == ["completed"]


def test_leaving_in_the_middle_of_a_turn_says_where_it_goes_on(kipu: CommandLine, start: Starter) -> None:
    """Ctrl-D while a command runs ends the command and the chat; the turn stays open and is named (B49, C14)."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    ask_for(terminal, "run `sleep 300`")
    terminal.type("y")
    terminal.wait_for("● shell sleep 300")
    terminal.keys("C-d")
    terminal.wait_for("ended with 0")
    assert "is left in the middle of its turn" in terminal.screen()
    assert of_type(kipu, kipu.ids()[0], "turn_finished") == []


def test_ctrl_c_twice_ends_the_chat(kipu: CommandLine, start: Starter) -> None:
    """The first Ctrl-C says what the second does; nothing is stored by looking in (situation 67a)."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY, then=">")
    terminal.keys("C-c")
    terminal.wait_for("Ctrl-C again ends the chat")
    terminal.keys("C-c")
    terminal.wait_for("ended with 0")


def test_lines_are_remembered_and_may_be_several(kipu: CommandLine, start: Starter) -> None:
    """A backslash at the end makes another line; the next chat has the line in its history, which only its owner reads."""
    terminal = start(kipu, "chat")
    terminal.wait_for(READY)
    terminal.type("two lines\\")
    terminal.type("are one message")
    terminal.wait_for("message 1", then=">")
    terminal.keys("C-d")
    terminal.wait_for("ended with 0")
    history = kipu.home / ".local" / "state" / "kipu" / "chat_history"
    assert history.stat().st_mode & 0o777 == 0o600
    again = start(kipu, "chat", "--new")
    again.wait_for(READY)
    again.keys("Up")
    again.wait_for("are one message")
    assert of_type(kipu, kipu.ids()[0], "user_message")[0]["content"] == "two lines\nare one message"


def wait_until(holds: Callable[[], bool]) -> None:
    """Return once something holds that only the file system tells."""
    until = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < until, "it did not come"
        time.sleep(POLL_S)
