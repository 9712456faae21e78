"""`kipu status`, `stop`, `queue`, `send`, and files: `diff`, `undo`, `rewind --files`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kipu.cli import reference
from kipu.cli.chat import file_commands
from kipu.cli.exit_code import ExitCode
from kipu.wiring import open_store
from tests.unit.cli.command_line import CommandLine

pytestmark = pytest.mark.usefixtures("work")


def parked(kipu: CommandLine) -> str:
    assert kipu.run("run", "write a.txt: x").code == ExitCode.PARKED
    return kipu.ids()[0]


def test_status_says_what_a_session_does(kipu: CommandLine) -> None:
    """Parked with the question, idle after its end; nobody runs it meanwhile (A44)."""
    session_id = parked(kipu)
    shown = kipu.run("status", session_id, "--json").json
    assert (shown["state"], shown["run_by"], len(shown["approvals"])) == ("parked", None, 1)
    kipu.run("run", "--resume", session_id, "--yes")
    assert kipu.run("status", session_id, "--json").json["state"] == "idle"


def test_stop_ends_a_turn_that_nobody_runs(kipu: CommandLine) -> None:
    """A parked turn whose process has ended is closed in order: its call has a result, and nothing of it runs later (C13)."""
    session_id = parked(kipu)
    stopped = kipu.run("stop", session_id, "--json").json
    assert stopped["outcome"] == "cancelled"
    assert kipu.run("status", session_id, "--json").json["state"] == "idle"
    assert kipu.run("approvals", "--json").json == []
    assert "no turn is open" in kipu.run("stop", session_id).stderr
    assert kipu.run("window", session_id).code == 0


def test_send_puts_a_message_into_the_mailbox(kipu: CommandLine) -> None:
    """A message is durable with its receipt, waits in the queue, and is answered by whoever goes on (C5)."""
    kipu.run("run", "hello")
    session_id = kipu.ids()[0]
    sent = kipu.run("send", session_id, "how many messages?", "--json").json
    (waiting,) = kipu.run("queue", session_id, "--json").json
    assert (waiting["seq"], waiting["text"], waiting["mode"]) == (sent["seq"], "how many messages?", "followup")
    assert "my window holds 3 messages" in kipu.run("run", "--resume", session_id).stdout
    assert kipu.run("queue", session_id, "--json").json == []


def test_queued_message_is_taken_back_once(kipu_sqlite: CommandLine) -> None:
    """`kipu queue ID cancel SEQ` settles the message; nobody answers it, and a second time it is not there (C12)."""
    kipu_sqlite.run("run", "hello")
    session_id = kipu_sqlite.ids()[0]
    seq = kipu_sqlite.run("send", session_id, "never mind").stdout.strip()
    assert kipu_sqlite.run("queue", session_id, "cancel", seq).code == 0
    assert kipu_sqlite.run("queue", session_id, "cancel", seq).code == ExitCode.BUSY
    settled = [event for event in kipu_sqlite.events(session_id) if event["event_type"] == "message_settled"]
    assert [(event["seqs"], event["reason"]) for event in settled] == [([int(seq)], "cancelled")]
    assert kipu_sqlite.run("queue", session_id, "remove", seq).code == ExitCode.USAGE


def test_send_under_a_policy_that_refuses_says_so(kipu_sqlite: CommandLine) -> None:
    """`reject` refuses while a turn is open, with a code of its own; `interrupt` asks the turn to end (C12)."""
    session_id = parked(kipu_sqlite)
    refused = kipu_sqlite.run("send", session_id, "now", "--policy", "reject")
    assert (refused.code, "[message_rejected]" in refused.stderr) == (ExitCode.BUSY, True)
    assert kipu_sqlite.run("send", session_id, "now", "--policy", "later").code == ExitCode.USAGE
    sent = kipu_sqlite.run("send", session_id, "hello", "--policy", "interrupt", "--json").json
    assert sent["stopped"] is not None
    assert "hello!" in kipu_sqlite.run("run", "--resume", session_id).stdout
    assert kipu_sqlite.run("send", "sess_nobody", "x").code == ExitCode.NOT_FOUND


def test_diff_and_undo_show_and_take_back_what_turns_did_to_files(kipu: CommandLine, work: Path) -> None:
    """`diff` is all that the session changed, `undo` brings the files of before the last turn back, and nothing is removed."""
    kipu.run("run", "write a.txt: one", "--yes")
    session_id = kipu.ids()[0]
    kipu.run("run", "--session", session_id, "replace `one` with `two` in a.txt", "--yes")
    assert (work / "a.txt").read_text() == "two\n"
    assert "+two" in kipu.run("diff", session_id).stdout
    last = kipu.run("diff", session_id, "--turns", "1", "--json").json["diff"]
    assert "-one" in last
    assert "+two" in last
    undone = kipu.run("undo", session_id, "--json").json
    assert undone["files"] == ["a.txt"]
    assert (work / "a.txt").read_text() == "one\n"
    kipu.run("rewind", session_id, "--files")
    assert list(work.iterdir()) == []
    assert kipu.run("diff", session_id).stdout == ""
    assert kipu.run("verify").code == 0


def test_rewind_alone_leaves_files(kipu_sqlite: CommandLine, work: Path) -> None:
    """Without `--files` only what the model sees goes back."""
    kipu_sqlite.run("run", "write a.txt: one", "--yes")
    kipu_sqlite.run("rewind", kipu_sqlite.ids()[0])
    assert (work / "a.txt").exists()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands wait for nobody."""
    for module in (reference, file_commands):
        monkeypatch.setattr(module, "BUSY_WAIT_S", 0.1)


async def hold_elsewhere(url: str, session_id: str) -> None:
    """Have another machine run the session until a moment that ends a command that waits for it."""
    store = await open_store(url)
    assert await store.claim(session_id, owner="elsewhere/boot/1/1/worker", ttl_s=30) is not None
    await store.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("words", [("rewind",), ("rewind", "--files"), ("undo",), ("trash",)])
def test_a_command_says_who_has_the_session(kipu_sqlite: CommandLine, words: tuple[str, ...]) -> None:
    """What needs the session while a turn of it runs elsewhere is not waited for in silence: exit code 4, and who has it (C3)."""
    kipu_sqlite.run("run", "hello")
    session_id = kipu_sqlite.ids()[0]
    asyncio.run(hold_elsewhere(kipu_sqlite.store, session_id))
    ran = kipu_sqlite.run(words[0], session_id, *words[1:])
    assert (ran.code, "elsewhere/boot/1/1/worker" in ran.stderr, "[session_busy]" in ran.stderr) == (
        ExitCode.BUSY,
        True,
        True,
    )


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("command", ["/rewind", "/undo"])
def test_a_chat_says_who_has_the_session(kipu_sqlite: CommandLine, command: str) -> None:
    """Going back while another process runs the session leaves the chat usable: what has it is said (C3)."""
    kipu_sqlite.run("run", "hello")
    session_id = kipu_sqlite.ids()[0]
    asyncio.run(hold_elsewhere(kipu_sqlite.store, session_id))
    ran = kipu_sqlite.chat(command, "/title", options=("--resume", session_id))
    assert (ran.stdout, "[session_busy]" in ran.stderr) == ("hello\n", True)
