"""`kipu chat` on a real terminal: keys are sent through tmux, and the screen is read."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from kipu.testing.fake_provider import FakeAnswer, FakeProvider
from tests.unit.cli.command_line import KIPU, CommandLine

WAIT_S = 120
POLL_S = 0.05

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A terminal with a program in it."""

    def __init__(self, socket: Path, command: str, *, environment: dict[str, str], directory: Path) -> None:
        self._socket = socket
        variables = [
            f"{name}={value}" for name, value in {**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"}.items()
        ]
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "50",
            "-c", str(directory),
            shlex.join(["env", "-i", *variables, "sh", "-c", f"trap : INT; {command}; echo ended with $?; cat"]),
        )  # fmt: skip

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-S", str(self._socket), *words], capture_output=True, text=True, check=True)
        return done.stdout

    def screen(self) -> str:
        """Return what is on the screen and above it."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-200")

    def keys(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """Type a line."""
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def wait_for(self, text: str, *, then: str = "") -> None:
        """Return once `text` is on the screen, which ends with `then`."""
        until = time.monotonic() + WAIT_S
        while text not in (screen := self.screen()) or not screen.rstrip().endswith(then):
            assert time.monotonic() < until, f"{text!r} did not come:\n{screen}"
            time.sleep(POLL_S)  # the screen of another process can only be looked at again

    def wait_until_gone(self, text: str) -> None:
        """Return once `text` is no longer on the screen."""
        until = time.monotonic() + WAIT_S
        while text in (screen := self.screen()):
            assert time.monotonic() < until, f"{text!r} stayed:\n{screen}"
            time.sleep(POLL_S)

    def kill(self, signal: str = "KILL") -> None:
        """End the program by a signal, as a crash would: the last process of the pane's shell."""
        pane = self._tmux("list-panes", "-F", "#{pane_pid}").strip()
        (child,) = subprocess.run(["pgrep", "-P", pane], capture_output=True, text=True, check=True).stdout.split()
        subprocess.run(["kill", f"-{signal}", child], check=True)

    def settings(self) -> list[str]:
        """Return how the terminal is set, as `stty -a` tells it."""
        place = self._tmux("list-panes", "-F", "#{pane_tty}").strip()
        return subprocess.run(["stty", "-a", "-F", place], capture_output=True, text=True, check=True).stdout.split()

    def close(self) -> None:
        """End the program and the terminal."""
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, check=False)


class Starter(Protocol):
    """Start a command of a person's command line in a terminal."""

    def __call__(self, kipu: CommandLine, *words: str, captured: bool = False) -> Terminal:
        """Return the terminal; `captured` output goes through a pipe."""
        ...


@pytest.fixture
def kipu(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, f"sqlite:///{tmp_path / 'sessions.db'}")


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


def test_chat_on_a_terminal_from_first_message_to_resume(kipu: CommandLine, start: Starter) -> None:
    """A person chats, forks, rewinds and leaves; `--continue` shows the history and goes on with it (B2, B4, C11)."""
    terminal = start(kipu, "chat")
    terminal.wait_for("/help lists commands")
    terminal.type("my bird is a heron")
    terminal.wait_for("I understood your message 1")
    terminal.type("/fork side")
    terminal.wait_for("you are in the fork now")
    terminal.type("forget about it")
    terminal.wait_for("I understood your message 2")
    terminal.wait_until_gone("working")
    terminal.type("/rewind")
    terminal.wait_for("went back to event")
    terminal.type("how many messages?")
    terminal.wait_for("my window holds 3 messages")
    terminal.type("/quit")
    terminal.wait_for("ended with 0")
    again = start(kipu, "chat", "--continue")
    again.wait_for("side")
    again.wait_for("> my bird is a heron")
    again.type("what did I say about heron?")
    again.wait_for("message 1: “my bird is a heron”", then=">")
    again.keys("C-d")
    again.wait_for("ended with 0")
    assert len(kipu.ids()) == 2


def test_chat_on_a_terminal_streams_and_is_interrupted_by_ctrl_c(kipu: CommandLine, start: Starter) -> None:
    """An answer is shown as it comes; Ctrl-C keeps what there is, and the chat goes on."""
    held = FakeAnswer("Once upon a time there was", chunk_chars=5, hold_after=4)
    with FakeProvider([held, FakeAnswer("And then it ended.")]) as provider:
        kipu.environment |= {"OPENAI_BASE_URL": provider.base_url, "KIPU_MODEL": "openai-chat:some-model"}
        terminal = start(kipu, "chat")
        terminal.wait_for("/help lists commands")
        terminal.type("tell me a story")
        terminal.wait_for("Once upon")
        terminal.keys("C-c")
        terminal.wait_for("interrupted; what had come is kept")
        terminal.type("go on")
        terminal.wait_for("And then it ended.", then=">")
        terminal.keys("C-d")
        terminal.wait_for("ended with 0")
    answers = [event for event in kipu.events(kipu.ids()[0]) if event["event_type"] == "agent_message"]
    assert [answer["state"] for answer in answers] == ["interrupted", "complete"]
    assert answers[0]["content"].startswith("Once upon")


def test_chat_that_is_terminated_leaves_the_terminal_as_it_was(kipu: CommandLine, start: Starter) -> None:
    """SIGTERM ends a chat in order, with 143: what is typed afterwards is seen again, and the session goes on (C5)."""
    terminal = start(kipu, "chat")
    terminal.wait_for("/help lists commands")
    terminal.type("hello")
    terminal.wait_for("This is your message 1", then=">")
    assert "-echo" in terminal.settings()
    terminal.kill("TERM")
    terminal.wait_for("ended with 143")
    assert {"echo", "icanon", "isig"} <= set(terminal.settings())
    assert kipu.process("chat", "--continue", stdin="again\n").code == 0
    assert len(kipu.ids()) == 1


def test_chat_is_not_ended_by_one_signal_of_ctrl_c(kipu: CommandLine, start: Starter) -> None:
    """SIGINT counts as Ctrl-C does: the first one says what the second one does (C13)."""
    terminal = start(kipu, "chat")
    terminal.type("hello")
    terminal.wait_for("This is your message 1", then=">")
    terminal.kill("INT")
    terminal.wait_for("Ctrl-C again ends the chat", then=">")
    terminal.kill("INT")
    terminal.wait_for("ended with 130")
    assert {"echo", "icanon", "isig"} <= set(terminal.settings())


def test_resume_on_a_terminal_picks_by_keyboard(kipu: CommandLine, start: Starter) -> None:
    """`--resume` alone opens the picker: typing filters, the preview shows the session, Enter goes on with it."""
    for line in ("about penguins", "about camels", "about herons"):
        kipu.chat(line)
    terminal = start(kipu, "chat", "--resume")
    terminal.wait_for("about camels")
    terminal.wait_for("── local #3")
    terminal.keys("p", "e", "n", "g")
    terminal.wait_for("title: about penguins")
    terminal.keys("Enter")
    terminal.wait_for("> about penguins")
    terminal.type("/quit")
    terminal.wait_for("ended with 0")


def test_picker_on_a_terminal_is_left_without_a_choice(kipu: CommandLine, start: Starter) -> None:
    """Escape leaves the picker; nothing is opened or begun."""
    kipu.chat("about penguins")
    terminal = start(kipu, "pick")
    terminal.wait_for("about penguins")
    terminal.keys("Escape")
    terminal.wait_for("ended with 3")
    assert len(kipu.ids()) == 1


def test_picker_fills_the_terminal_when_its_output_is_captured(kipu: CommandLine, start: Starter) -> None:
    """`kipu show $(kipu pick)` draws over the whole width of the terminal, and not over the 80 columns of a pipe."""
    assert kipu.chat("hello").code == 0
    terminal = start(kipu, "pick", captured=True)
    terminal.wait_for("last activity")
    terminal.wait_for("hello")
    terminal.wait_for("── local #3")
    shown = [line.rstrip() for line in terminal.screen().splitlines() if "type to filter" in line]
    assert [(len(line) > 110, line.count("▎")) for line in shown] == [(True, 1)]
    terminal.keys("Enter")
    terminal.wait_for(kipu.ids()[0])
