"""`kipu proposals` as processes: what one proposes another decides, whatever is killed in between (C26)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kipu.cli.exit_code import ExitCode
from kipu.errors import NotAPersonError
from kipu.security.key_file import key_line
from kipu.testing.conformance.erasing import files_with
from kipu.testing.fake_provider import FakeAnswer, FakeCall, FakeProvider
from tests.unit.cli.command_line import KIPU, CommandLine

RULE = "Run make test after each change, canary-5b1e."
GIVEN = {"kind": "instruction", "text": RULE, "reason": "asked for twice"}


@pytest.fixture(params=["sqlite", "jsonl"])
def kipu(request: pytest.FixtureRequest, tmp_path: Path) -> CommandLine:
    line = CommandLine(tmp_path, f"{request.param}:///{tmp_path / 'store'}")
    line.home = tmp_path / "work"
    line.home.mkdir()
    return line


def propose(kipu: CommandLine, **given: Any) -> str:
    """Have the demo agent propose something, and return the proposal's id."""
    ran = kipu.run("run", f"call propose with {json.dumps(GIVEN | given)}")
    assert ran.code == 0, ran.stderr
    return str(kipu.run("proposals", "ls", "--json").json[-1]["proposal_id"])


def window(kipu: CommandLine) -> str:
    """Return the newest session's window."""
    return kipu.run("window", kipu.ids()[0]).stdout


def test_proposal_goes_its_way_through_processes(kipu: CommandLine) -> None:
    """Proposed by one process, tried and approved by others, told to the next session, and gone again after the revert (C26)."""
    proposal_id = propose(kipu)
    refused = kipu.process("proposals", "approve", proposal_id)
    assert (refused.code, "[proposal_untried]" in refused.stderr) == (ExitCode.USAGE, True)
    tried = kipu.process("proposals", "try", proposal_id, "--json")
    assert (tried.code, tried.json["answered"], tried.json["cost_usd"]) == (0, 1, 0.0)
    assert tried.json["steps"][0]["recorded"]["calls"][0]["name"] == "propose"
    approved = kipu.process("proposals", "approve", proposal_id[-6:], "--reason", "good", "--json").json
    assert (approved["status"], approved["version"]) == ("approved", 1)
    assert [step["what"] for step in approved["history"]] == ["made", "tried", "approved"]
    assert kipu.process("run", "hello").code == 0
    assert RULE in window(kipu)
    assert kipu.process("proposals", "approve", proposal_id).code == ExitCode.BUSY
    assert kipu.process("proposals", "revert", proposal_id).code == 0
    assert kipu.process("run", "hello").code == 0
    assert RULE not in window(kipu)
    assert kipu.process("proposals", "ls", "--json").json == []
    assert kipu.process("proposals", "--json").json == []  # alone it lists, as memory and store do
    assert kipu.process("proposals", "ls", "--all", "--json").json[0]["status"] == "reverted"
    assert kipu.process("proposals", "show", "nothing").code == ExitCode.NOT_FOUND


def test_show_tells_all_that_a_person_needs(kipu: CommandLine) -> None:
    """The change as a diff, hidden characters written out, the evidence as it stands, the trial's answers, and what is wrong (C26)."""
    proposal_id = propose(kipu, text="Be kind\u200b\u202e.")
    assert kipu.run("proposals", "try", proposal_id).code == 0
    shown = kipu.run("proposals", "show", proposal_id).stdout
    assert "+Be kind\\u200b\\u202e." in shown
    assert "warning: it has 2 hidden characters (U+200B ZERO WIDTH SPACE, U+202E RIGHT-TO-LEFT OVERRIDE)" in shown
    assert "user_message: call propose with" in shown
    assert "1 of 1 answered by demo" in shown
    assert "\u200b" not in shown
    assert kipu.run("proposals", "approve", proposal_id).code == ExitCode.USAGE
    assert kipu.run("proposals", "approve", proposal_id, "--despite-warnings").code == 0
    assert kipu.run("erase", kipu.ids()[0], "--yes").code == 0
    told = kipu.run("proposals", "show", proposal_id, "--json").json
    assert "all of its evidence is erased" in told["warnings"]
    assert [event["state"] for event in told["evidence"]] == ["gone", "gone"]
    assert told["answers"] == []
    assert kipu.run("proposals", "try", proposal_id).code == ExitCode.USAGE


def test_proposals_of_an_erased_session_are_erased_with_it(kipu: CommandLine, tmp_path: Path) -> None:
    """What an agent proposed in an erased session leaves no byte; others stay, and approved ones are named as kept (C20, C26)."""
    canary, other = "canary-77aa01", "canary-13be42"
    gone, kept = propose(kipu, text=f"Say {canary}."), propose(kipu, text="Say nothing.")
    newest, oldest = kipu.ids()[0], kipu.ids()[1]
    assert kipu.run("proposals", "reject", gone, "--reason", f"no {canary}").code == 0
    assert kipu.run("proposals", "approve", kept, "--untried").code == 0
    assert kipu.run("erase", oldest, "--yes", "--json").code == 0
    assert [each["proposal_id"] for each in kipu.run("proposals", "ls", "--all", "--json").json] == [kept]
    assert files_with(tmp_path, canary) == []
    receipt = kipu.run("erase", newest, "--yes", "--json").json
    assert "approved proposals" in receipt["kept"]
    assert kipu.run("proposals", "show", kept, "--json").json["status"] == "approved"
    assert kipu.run("verify").code == 0
    propose(kipu, text=f"Say {other}.")
    assert kipu.run("erase", "--person", "local", "--yes").code == 0
    assert kipu.run("proposals", "ls", "--all", "--json").json == []
    assert files_with(tmp_path, other) == []


def test_killed_agent_proposed_once(kipu: CommandLine) -> None:
    """A proposal is durable when its tool says so: kill -9 right after loses none, and going on makes no second (C14, C26)."""
    calling = FakeAnswer("I learned something.", calls=[FakeCall("c1", "propose", json.dumps(GIVEN))])
    with FakeProvider([calling, FakeAnswer("Proposed.", hold_after=1), FakeAnswer("Proposed.")]) as provider:
        kipu.environment |= {"OPENAI_BASE_URL": provider.base_url, "KIPU_MODEL": "openai-chat:some-model"}
        process = started(kipu, "run", "learn")
        assert provider.held.wait(60)
        process.kill()
        process.communicate()
        (proposal,) = kipu.run("proposals", "ls", "--json").json
        assert (proposal["after"], proposal["status"]) == (RULE, "open")
        assert kipu.process("run", "--resume", kipu.ids()[0]).code == 0
        assert provider.violations() == []
    assert len(kipu.run("proposals", "ls", "--json").json) == 1
    assert kipu.run("verify").code == 0


def test_killed_trial_recorded_nothing(kipu: CommandLine) -> None:
    """A trial that was killed in the middle of an answer is none, and the next one is (C26)."""
    proposal_id = propose(kipu)
    with FakeProvider([FakeAnswer("I would", hold_after=1), FakeAnswer("I would run make test.")]) as provider:
        kipu.environment |= {"OPENAI_BASE_URL": provider.base_url}
        words = ("proposals", "try", proposal_id, "--model", "openai-chat:some-model", "--json")
        process = started(kipu, *words)
        assert provider.held.wait(60)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert kipu.run("proposals", "approve", proposal_id).code == ExitCode.USAGE
        step = kipu.run(*words).json["steps"][0]
        assert RULE in json.dumps(provider.asked[-1].json()["messages"][0])
        assert provider.violations() == []
    assert (step["tried"]["text"], step["is_same"]) == ("I would run make test.", False)
    assert kipu.run("proposals", "approve", proposal_id).code == 0


def test_trial_that_nobody_answers_is_not_one(kipu: CommandLine) -> None:
    """Where the model cannot be asked the command fails, says why, and the proposal counts as untried (C26)."""
    proposal_id = propose(kipu)
    with FakeProvider() as provider:
        kipu.environment |= {"OPENAI_BASE_URL": provider.base_url}
        ran = kipu.run("proposals", "try", proposal_id, "--model", "openai-chat:some-model")
    assert (ran.code, "no answer:" in ran.stdout) == (ExitCode.FAILURE, True)
    assert kipu.run("proposals", "approve", proposal_id).code == ExitCode.USAGE


def test_command_of_an_agent_decides_nothing(kipu: CommandLine) -> None:
    """`kipu proposals approve`, run by an agent's shell without a sandbox and with everything allowed, approves nothing (C26)."""
    proposal_id = propose(kipu)
    program = Path(sys.executable).with_name("kipu")
    command = f"{program} proposals approve {proposal_id} --untried --store {kipu.store}"
    kipu.environment |= {"KIPU_SANDBOX": "off"}
    ran = kipu.process("run", f"run `{command}`", "--yes")
    assert ran.code == 0, ran.stderr
    assert "exit code" in ran.stdout
    assert kipu.run("proposals", "ls", "--json").json[0]["status"] == "open"


@pytest.mark.parametrize("wrapped", ["exec {}", "env -i {}; true", "unset KIPU_COMMAND; setsid -w {}; true"])
def test_guard_sees_an_agent_above(kipu: CommandLine, wrapped: str) -> None:
    """Below a command that an agent's tool began no process decides, whatever it takes out of the environment (C26)."""
    proposal_id = propose(kipu)
    program = Path(sys.executable).with_name("kipu")
    command = wrapped.format(f"{program} proposals approve {proposal_id} --untried --store {kipu.store}")
    environment = {**kipu.process_environment(), "KIPU_COMMAND": "0123"}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert f"[{NotAPersonError.code}]" in done.stderr
    assert kipu.run("proposals", "ls", "--json").json[0]["status"] == "open"


def test_chat_says_that_proposals_wait(kipu: CommandLine) -> None:
    """A chat begins with how many proposals wait, and /proposals lists them and shows one (C26)."""
    proposal_id = propose(kipu)
    ran = kipu.run("chat", stdin=f"/proposals\n/proposals {proposal_id}\n")
    assert "a proposal of how to work waits for you: /proposals" in ran.stderr
    assert f"+{RULE}" in ran.stdout
    listed = kipu.run("chat", "--json", stdin="/proposals\n").lines
    assert listed[-1]["proposals"][0]["proposal_id"] == proposal_id


def test_encrypted_store_tells_nothing_of_proposals(tmp_path: Path) -> None:
    """In an encrypted store no file holds a word of proposals, approved skills or trials (C20, C26)."""
    kipu = CommandLine(tmp_path, f"sqlite:///{tmp_path}/s.db?encrypt=env:KIPU_TEST_KEY")
    kipu.environment["KIPU_TEST_KEY"] = key_line(bytes(range(32))).strip()
    proposal_id = propose(kipu, kind="skill", name="make-it")
    assert kipu.run("proposals", "try", proposal_id).code == 0
    assert kipu.run("proposals", "approve", proposal_id).code == 0
    assert kipu.run("run", 'call read_skill with {"name": "make-it"}').code == 0
    assert files_with(tmp_path, "canary-5b1e") == []


def started(kipu: CommandLine, *words: str) -> subprocess.Popen[str]:
    """Start a command and leave it running."""
    return subprocess.Popen(
        [*KIPU, *words],
        env=kipu.process_environment(),
        cwd=kipu.home,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_imported_file_decides_nothing(kipu: CommandLine, tmp_path: Path) -> None:
    """A ledger that comes in as a file is another session, and what it says was approved is in force nowhere (A19, C26)."""
    proposal_id = propose(kipu)
    key, file, forged = "kipu:proposals;member=local", tmp_path / "ledger.jsonl", tmp_path / "forged.jsonl"
    assert kipu.run("export", key, "-o", str(file)).code == 0
    assert kipu.run("proposals", "approve", proposal_id, "--untried").code == 0
    assert kipu.run("export", key, "-o", str(forged)).code == 0

    assert kipu.run("proposals", "revert", proposal_id).code == 0
    for path in (file, forged):
        assert kipu.run("import", str(path)).code == 0
    assert [each["status"] for each in kipu.run("proposals", "ls", "--all", "--json").json] == ["reverted"]
    elsewhere = CommandLine(kipu.home, f"sqlite:///{tmp_path / 'elsewhere'}")
    assert elsewhere.run("run", "hello").code == 0
    assert elsewhere.run("import", str(forged)).code == 0
    assert elsewhere.run("proposals", "ls", "--all", "--json").json == []
    assert elsewhere.run("run", "hello").code == 0
    assert RULE not in window(elsewhere)
