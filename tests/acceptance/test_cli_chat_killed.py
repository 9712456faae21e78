"""`kipu chat` killed in the middle of an answer, and used by two processes at once."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from kipu.testing.fake_provider import FakeAnswer, FakeFailure, FakeProvider
from tests.unit.cli.command_line import KIPU, CommandLine


@pytest.fixture(params=["sqlite", "jsonl"])
def kipu(request: pytest.FixtureRequest, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, f"{request.param}:///{tmp_path / 'store'}")


def answered_by(kipu: CommandLine, provider: FakeProvider) -> None:
    kipu.environment |= {"OPENAI_BASE_URL": provider.base_url, "KIPU_MODEL": "openai-chat:some-model"}


def start(kipu: CommandLine, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*KIPU, "chat", *options], env=kipu.process_environment(), text=True, cwd=kipu.home,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def send(chat: subprocess.Popen[str], line: str) -> None:
    assert chat.stdin is not None
    chat.stdin.write(line + "\n")
    chat.stdin.flush()


def test_chat_killed_in_an_answer_is_taken_over(kipu: CommandLine) -> None:
    """After SIGKILL in the middle of an answer, the next chat finishes that turn first, and nothing is lost (B2, C5, C14)."""
    held = FakeAnswer("Half of it", chunk_chars=2, hold_after=3)
    with FakeProvider([held, FakeAnswer("The first answer."), FakeAnswer("The second.")]) as provider:
        answered_by(kipu, provider)
        chat = start(kipu)
        send(chat, "first question")
        assert provider.held.wait(60)
        chat.kill()
        chat.communicate()
        ran = kipu.process("chat", "--continue", stdin="second question\n")
    assert ran.stdout.splitlines() == ["The first answer.", "The second."]
    assert "a turn was broken off" in ran.stderr
    events = kipu.events(kipu.ids()[0])
    assert [event["content"] for event in events if event["event_type"] == "user_message"] == [
        "first question",
        "second question",
    ]
    assert [event["outcome"] for event in events if event["event_type"] == "turn_finished"] == ["completed"] * 2
    assert kipu.run("replay", kipu.ids()[0], "--all").code == 0
    assert kipu.run("verify").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_chat_that_waits_for_a_line_ends_at_a_signal(kipu: CommandLine, number: signal.Signals) -> None:
    """A service that is stopped, and a terminal that is closed, end a chat at once, though its input stays open."""
    with FakeProvider([FakeAnswer("One.")]) as provider:
        answered_by(kipu, provider)
        with start(kipu) as chat:
            send(chat, "begin")
            assert chat.stdout is not None
            assert chat.stdout.readline() == "One.\n"
            chat.send_signal(number)
            assert chat.wait(60) == 128 + number
    assert kipu.run("verify").code == 0


def test_chat_that_is_terminated_in_an_answer_is_taken_over(kipu: CommandLine) -> None:
    """After SIGTERM in the middle of an answer nothing is lost, and the next chat answers in its place (C5, C14)."""
    held = FakeAnswer("Half of it", chunk_chars=2, hold_after=3)
    with FakeProvider([held, FakeAnswer("The answer."), FakeAnswer("More.")]) as provider:
        answered_by(kipu, provider)
        with start(kipu) as chat:
            send(chat, "first question")
            assert provider.held.wait(60)
            chat.terminate()
            assert chat.wait(60) == 143
        ran = kipu.process("chat", "--continue", stdin="second question\n")
    assert ran.stdout.splitlines() == ["The answer.", "More."]
    events = kipu.events(kipu.ids()[0])
    assert [event["content"] for event in events if event["event_type"] == "user_message"] == [
        "first question",
        "second question",
    ]
    assert [event["outcome"] for event in events if event["event_type"] == "turn_finished"] == ["completed"] * 2


def test_two_chats_in_one_session_take_turns(kipu: CommandLine) -> None:
    """A second process waits for the first's turn, then sees its answer in the window (A39, C3)."""
    with FakeProvider([FakeAnswer("One."), FakeAnswer("Two.", hold_after=1), FakeAnswer("Three.")]) as provider:
        answered_by(kipu, provider)
        kipu.process("chat", stdin="begin\n")
        first = start(kipu, "--continue")
        send(first, "slow question")
        assert provider.held.wait(60)
        second = start(kipu, "--continue")
        send(second, "quick question")
        assert second.stderr is not None
        while "last activity" not in second.stderr.readline():
            pass
        provider.release()
        assert first.communicate(timeout=60)[0] == "Two.\n"
        assert second.communicate(timeout=60)[0] == "Three.\n"
        shown = [[message["content"] for message in request.json()["messages"]] for request in provider.asked]
    assert shown[-1][1:] == ["begin", "One.", "slow question", "Two.", "quick question"]
    assert len(kipu.ids()) == 1


def test_chat_in_a_pipe_says_what_the_model_refused(kipu: CommandLine) -> None:
    """A model's failure is one clear line with its code, ends a piped chat with 1, and `/retry` asks again."""
    with FakeProvider([FakeFailure(401, "invalid key", "authentication_error"), FakeAnswer("At last.")]) as provider:
        answered_by(kipu, provider)
        ran = kipu.process("chat", stdin="hello\n/retry\n")
    assert ran.code == 1
    assert ran.stdout == "At last.\n"
    assert "[model_auth]" in ran.stderr
    assert "Traceback" not in ran.stderr
