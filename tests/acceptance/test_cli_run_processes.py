"""`kipu run` as processes: signals, crashes, and others that have a say in it meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kipu.cli.exit_code import ExitCode
from kipu.testing.fake_provider import FakeAnswer, FakeCall, FakeProvider
from tests.unit.cli.command_line import KIPU, CommandLine

SLOW = "run `sleep 600`"


class RunProcess:
    """One `kipu run --json`, its events as they come."""

    def __init__(self, kipu: CommandLine, *words: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [*KIPU, "run", "--json", *words],
            env=kipu.process_environment(),
            cwd=kipu.home,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def _lines(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            yield event

    def until(self, event_type: str) -> dict[str, Any]:
        """Return the next event of this type."""
        for event in self._lines():
            if event["event_type"] == event_type:
                return event
        raise AssertionError(f"no {event_type}: {self.process.communicate()[1]}")

    def result(self) -> dict[str, Any]:
        """Return the run's own last line, once it has ended with the exit code that it names."""
        *_, last = list(self._lines())
        _, errors = self.process.communicate(timeout=60)
        assert last["event_type"] == "run_result", errors
        assert self.process.returncode == last["exit_code"], errors
        assert "Traceback" not in errors
        return last


@pytest.fixture(params=["sqlite", "jsonl"])
def kipu(request: pytest.FixtureRequest, tmp_path: Path) -> CommandLine:
    line = CommandLine(tmp_path, f"{request.param}:///{tmp_path / 'store'}")
    line.home = tmp_path / "work"
    line.home.mkdir()
    return line


def of_type(kipu: CommandLine, session_id: str, event_type: str) -> list[dict[str, Any]]:
    return [event for event in kipu.events(session_id) if event["event_type"] == event_type]


def test_ctrl_c_ends_the_turn_in_order(kipu: CommandLine) -> None:
    """SIGINT in the middle of a command ends it, closes its call and finishes the turn; the exit code is 130 (A3, C5)."""
    run = RunProcess(kipu, SLOW, "--yes")
    session_id = run.until("tool_started")["session_id"]
    run.process.send_signal(signal.SIGINT)
    assert run.result()["exit_code"] == ExitCode.INTERRUPTED
    assert [event["outcome"] for event in of_type(kipu, session_id, "turn_finished")] == ["cancelled"]
    assert [event["synthetic"] for event in of_type(kipu, session_id, "tool_result")] == ["cancelled"]
    assert kipu.run("status", session_id, "--json").json["state"] == "idle"
    assert kipu.run("verify").code == 0


def test_sigterm_leaves_the_turn_to_whoever_goes_on(kipu: CommandLine) -> None:
    """SIGTERM ends the process at once and the turn stays open; the next one goes on, and the command is not run again (C14)."""
    run = RunProcess(kipu, SLOW, "--yes")
    session_id = run.until("tool_started")["session_id"]
    run.process.terminate()
    assert run.result()["exit_code"] == ExitCode.HANDED_OVER
    assert of_type(kipu, session_id, "turn_finished") == []
    ran = kipu.process("run", "--resume", session_id)
    assert ran.code == 0
    assert len(of_type(kipu, session_id, "tool_started")) == 1
    assert [event["synthetic"] for event in of_type(kipu, session_id, "tool_result")] == ["interrupted"]


def test_killed_run_is_gone_on_with(kipu: CommandLine) -> None:
    """After SIGKILL in the middle of an answer, `--resume` asks again and the one answer is the whole one (C5, C14)."""
    held = FakeAnswer("Half of it", chunk_chars=2, hold_after=3)
    with FakeProvider([held, FakeAnswer("The whole of it.")]) as provider:
        kipu.environment |= {"OPENAI_BASE_URL": provider.base_url, "KIPU_MODEL": "openai-chat:some-model"}
        run = RunProcess(kipu, "a question")
        assert provider.held.wait(60)
        run.process.kill()
        run.process.communicate()
        session_id = kipu.ids()[0]
        assert kipu.run("status", session_id, "--json").json["run_by"] is None
        ran = kipu.process("run", "--resume", session_id)
    assert (ran.code, ran.stdout) == (0, "The whole of it.\n")
    assert [event["outcome"] for event in of_type(kipu, session_id, "turn_finished")] == ["completed"]


def test_waiting_run_goes_on_when_another_process_approves(kipu: CommandLine) -> None:
    """A decision made beside it reaches the waiting process at once, and whoever decides is told which one goes on (C15)."""
    run = RunProcess(kipu, "write a.txt: x", "--wait")
    parked = run.until("turn_parked")
    ran = kipu.process("approve", parked["waits_for"][0])
    assert f"process {run.process.pid} goes on with the turn" in ran.stderr
    assert run.result()["outcome"] == "completed"
    assert (kipu.home / "a.txt").read_text() == "x\n"


def test_stop_from_another_process_ends_the_run(kipu: CommandLine) -> None:
    """`kipu stop` reaches a turn wherever it runs; the run ends with a code that says that somebody else did it (A44, C13)."""
    run = RunProcess(kipu, SLOW, "--yes")
    session_id = run.until("tool_started")["session_id"]
    status = kipu.run("status", session_id, "--json").json
    assert (status["state"], status["run_by"]) == ("running", run.process.pid)
    assert kipu.process("stop", session_id, "--json").json["outcome"] == "cancelled"
    assert run.result()["exit_code"] == ExitCode.STOPPED


def test_message_sent_meanwhile_is_answered_by_the_run(kipu: CommandLine) -> None:
    """A message of another process gets its turn in the run's process, and the result is that of the last turn (A39, C12)."""
    answers = [FakeAnswer("One.", hold_after=1), FakeAnswer("Two.")]
    with FakeProvider(answers) as provider:
        kipu.environment |= {"OPENAI_BASE_URL": provider.base_url, "KIPU_MODEL": "openai-chat:some-model"}
        run = RunProcess(kipu, "first")
        assert provider.held.wait(60)
        session_id = kipu.ids()[0]
        sent = kipu.process("send", session_id, "second", "--json").json
        assert sent["run_by"] == run.process.pid
        provider.release()
        result = run.result()
    assert (result["exit_code"], result["answer"]) == (0, "Two.")
    assert [event["content"] for event in of_type(kipu, session_id, "agent_message")] == ["One.", "Two."]


def test_interrupting_message_takes_the_place_of_the_task(kipu: CommandLine) -> None:
    """`kipu send --policy interrupt` ends the running command and is answered next, in the same process (A42, C12)."""
    run = RunProcess(kipu, SLOW, "--yes")
    session_id = run.until("tool_started")["session_id"]
    sent = kipu.process("send", session_id, "hello", "--policy", "interrupt", "--json").json
    assert sent["stopped"] is not None
    result = run.result()
    assert (result["exit_code"], "hello!" in result["answer"]) == (0, True)
    outcomes = [event["outcome"] for event in of_type(kipu, session_id, "turn_finished")]
    assert outcomes == ["interrupted", "completed"]


def test_two_runs_in_one_directory_keep_apart(kipu: CommandLine) -> None:
    """Runs at once have sessions of their own, and each gets its own answer (A4, A36)."""
    (kipu.home / "a.txt").write_text("alpha\n")
    (kipu.home / "b.txt").write_text("beta\n")
    runs = [RunProcess(kipu, "read a.txt"), RunProcess(kipu, "read b.txt")]
    results = [run.result() for run in runs]
    assert ["alpha" in results[0]["answer"], "beta" in results[1]["answer"]] == [True, True]
    assert len({result["session_id"] for result in results}) == 2


def test_task_in_a_session_that_another_process_runs_waits_for_its_turn(kipu: CommandLine) -> None:
    """A second run in the same session is answered after the first, whoever of the two runs the turn (A38, C3)."""
    with FakeProvider([FakeAnswer("One.", hold_after=1), FakeAnswer("Two.")]) as provider:
        kipu.environment |= {"OPENAI_BASE_URL": provider.base_url, "KIPU_MODEL": "openai-chat:some-model"}
        first = RunProcess(kipu, "first")
        assert provider.held.wait(60)
        second = RunProcess(kipu, "second", "--session", kipu.ids()[0])
        second.until("user_message")
        provider.release()
        assert second.result()["answer"] == "Two."
        assert first.result()["exit_code"] == 0


def test_one_of_two_questions_decided_runs_and_the_other_is_asked_again(kipu: CommandLine) -> None:
    """Parallel calls that both ask are decided one by one: what is allowed runs, the rest parks the turn again (C15)."""
    calls = [FakeCall(name, "write_file", json.dumps({"path": name, "content": name})) for name in ("a", "b")]
    with FakeProvider([FakeAnswer(calls=calls), FakeAnswer("Done.")]) as provider:
        kipu.environment |= {"OPENAI_BASE_URL": provider.base_url, "KIPU_MODEL": "openai-chat:some-model"}
        first = RunProcess(kipu, "write both").result()
        session_id, questions = first["session_id"], [one["approval_id"] for one in first["approvals"]]
        assert len(questions) == 2
        kipu.run("approve", questions[0])
        second = RunProcess(kipu, "--resume", session_id).result()
        assert [one["approval_id"] for one in second["approvals"]] == questions[1:]
        assert (kipu.home / "a").exists()
        assert not (kipu.home / "b").exists()
        assert RunProcess(kipu, "--resume", session_id, "--yes").result()["answer"] == "Done."
    assert (kipu.home / "b").exists()
