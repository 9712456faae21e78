"""The whole of it: two chats on terminals clone a repository, find its fault and repair it, and one is killed in the middle."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kipu.testing.fake_provider import FakeAnswer, FakeCall, FakeProvider
from kipu.testing.fake_provider_requests import Body, asked_calls, newest_results
from tests.acceptance.test_cli_chat_terminal import POLL_S, WAIT_S, Terminal
from tests.unit.cli.command_line import KIPU, CommandLine

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None or shutil.which("git") is None, reason="tmux or git is not installed"
)

READY = "/help lists commands"
QUESTION = "y yes · n [why] no"
FAULTY = "def total(prices):\n    return sum(prices) - 1\n"
TEST = """\
import unittest

from prices import total


class TotalTest(unittest.TestCase):
    def test_total_is_the_sum(self):
        self.assertEqual(total([1, 2, 3]), 6)
"""
RUN_TESTS = "cd shop && python3 -B -m unittest -q"
# The first run waits for a file, so that it is known where the kill comes.
HELD_TESTS = f"echo run >> runs; until test -e go; do sleep 0.1; done; {RUN_TESTS}"
DONE = "The test passes now: total() took one away from the sum."


def repair(body: Body) -> FakeAnswer:
    """Say what comes next, as a model does that looks at nothing but the conversation it is shown."""
    made = [name for _, name in asked_calls(body)]
    results = [text for _, text in newest_results(body)]
    if any("interrupted" in text.lower() for text in results):
        return calling(len(made), "shell", command=HELD_TESTS)
    if "edit_file" in made:
        return FakeAnswer(DONE) if made[-1] == "shell" else calling(len(made), "shell", command=RUN_TESTS)
    if not made:
        return calling(0, "shell", command="git clone -q shop.git shop && ls shop")
    if made == ["shell"]:
        assert "prices.py" in results[0], results
        return calling(1, "shell", command=HELD_TESTS)
    if "read_file" not in made:
        assert "AssertionError: 5 != 6" in results[0], results
        return calling(len(made), "read_file", path="shop/prices.py")
    assert "sum(prices) - 1" in results[0], results
    edits = [{"old_text": "sum(prices) - 1", "new_text": "sum(prices)"}]
    return calling(len(made), "edit_file", path="shop/prices.py", edits=edits)


def calling(number: int, name: str, **arguments: Any) -> FakeAnswer:
    return FakeAnswer("Next.", calls=[FakeCall(f"call_{number}", name, json.dumps(arguments))])


class Desk:
    """A person's terminal in a directory of their own, over the store that all share."""

    def __init__(self, kipu: CommandLine, open_terminal: Callable[..., Terminal]) -> None:
        self.kipu = kipu
        self._open = open_terminal
        self.terminal = open_terminal(kipu, "chat")
        self.session_id = ""

    def ask(self, text: str) -> None:
        """Send the first message, and learn which session it began."""
        self.terminal.wait_for(READY)
        known = set(self.kipu.ids())
        self.terminal.type(text)
        self.until(lambda: bool(set(self.kipu.ids()) - known))
        (self.session_id,) = set(self.kipu.ids()) - known

    def begin_again(self) -> None:
        """Open the chat again, and go on with the turn that was broken off."""
        self.terminal = self._open(self.kipu, "chat", "--resume", self.session_id)
        self.terminal.wait_for("interrupted: shell")
        self.terminal.type("/retry")

    def allow_until(self, done: Callable[[], bool]) -> None:
        """Answer `y` to each question, once, until something holds."""
        self.until(lambda: done() or self._answered())

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until something holds that other processes bring about."""
        limit = time.monotonic() + 2 * WAIT_S
        while not done():
            assert time.monotonic() < limit, self.terminal.screen()
            time.sleep(POLL_S)

    def _answered(self) -> bool:
        asked = {event["approval_id"] for event in self.events("approval_request")}
        open_ones = asked - {event["approval_id"] for event in self.events("approval_decision")}
        if open_ones and QUESTION in self.terminal.screen():
            self.terminal.type("y")
            self.until(lambda: not open_ones - {each["approval_id"] for each in self.events("approval_decision")})
        return False

    def events(self, event_type: str) -> list[dict[str, Any]]:
        """Return the session's events of a type."""
        return [event for event in self.kipu.events(self.session_id) if event["event_type"] == event_type]

    @property
    def is_finished(self) -> bool:
        return bool(self.events("turn_finished"))

    @property
    def runs(self) -> int:
        """Return how often the held tests were begun."""
        file = self.kipu.home / "runs"
        return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture
def open_terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(kipu: CommandLine, *words: str) -> Terminal:
        socket = tmp_path_factory.mktemp("tmux") / "socket"
        command = shlex.join([*KIPU, *words])
        opened.append(Terminal(socket, command, environment=kipu.process_environment(), directory=kipu.home))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


@pytest.fixture(params=["sqlite", "jsonl"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> list[CommandLine]:
    """Return two people's command lines over one store, each with a repository whose test fails."""
    found = []
    for name in ("ann", "ben"):
        line = CommandLine(tmp_path / name, f"{request.param}:///{tmp_path / 'store'}")
        line.home.mkdir()
        line.environment["KIPU_PROJECT"] = name
        make_repository(line.home)
        found.append(line)
    return found


def make_repository(home: Path) -> None:
    """Make a bare repository of one module, one test and one fault."""
    source = home / "source"
    source.mkdir()
    (source / "prices.py").write_text(FAULTY)
    (source / "test_prices.py").write_text(TEST)
    as_somebody = ("-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main")
    git(source, *as_somebody, "init", "-q")
    git(source, "add", ".")
    git(source, *as_somebody, "commit", "-q", "-m", "Begin")
    git(home, "clone", "-q", "--bare", "source", "shop.git")
    shutil.rmtree(source)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_two_chats_repair_a_cloned_repository_and_one_survives_a_kill(
    places: Sequence[CommandLine], open_terminal: Callable[..., Terminal]
) -> None:
    """Both repair the fault side by side; the killed one goes on where it was, and runs nothing twice unasked (A40, B2, C5, C14, C15)."""
    with FakeProvider(script=repair) as provider:
        for line in places:
            line.environment |= {"OPENAI_BASE_URL": provider.base_url, "KIPU_MODEL": "openai-chat:some-model"}
        killed, other = (Desk(line, open_terminal) for line in places)
        killed.ask("clone shop.git and repair the test that fails")
        other.ask("clone shop.git and repair the test that fails")
        killed.allow_until(lambda: killed.runs == 1)
        other.allow_until(lambda: other.runs == 1)

        killed.terminal.kill()
        killed.terminal.wait_for("ended with 137")
        (other.kipu.home / "go").touch()
        other.allow_until(lambda: other.is_finished)
        other.terminal.wait_for(DONE[:30])
        assert (killed.runs, killed.is_finished) == (1, False)

        (killed.kipu.home / "go").touch()
        killed.begin_again()
        killed.until(lambda: QUESTION in killed.terminal.screen())
        assert killed.runs == 1, "what may have had an effect is not run again unasked"
        killed.allow_until(lambda: killed.is_finished)
        killed.terminal.wait_for(DONE[:30])
        assert provider.violations() == []
    for desk, runs in ((killed, 2), (other, 1)):
        assert desk.runs == runs
        assert git(desk.kipu.home / "shop", "diff", "--numstat") == "1\t1\tprices.py\n"
        tested = subprocess.run(["sh", "-c", RUN_TESTS], cwd=desk.kipu.home, capture_output=True, check=False)
        assert tested.returncode == 0, tested.stderr
        assert [event["outcome"] for event in desk.events("turn_finished")] == ["completed"]
        assert desk.events("agent_message")[-1]["content"] == DONE
        replayed = desk.kipu.process("replay", desk.session_id, "--all")
        assert replayed.code == 0, replayed.stderr
    synthetic = [event["synthetic"] for event in killed.events("tool_result") if event.get("synthetic")]
    assert synthetic == ["interrupted"]
    assert killed.events("turn_started")[0]["timestamp"] < other.events("turn_started")[0]["timestamp"]
    assert other.events("turn_finished")[0]["timestamp"] < killed.events("turn_finished")[0]["timestamp"]
    assert other.kipu.process("verify").code == 0
