"""`kipu run`: one task for a script, what it writes, and its exit codes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kipu.cli.exit_code import ExitCode
from tests.unit.cli.command_line import CommandLine


def finished(kipu: CommandLine, session_id: str) -> list[str]:
    return [event["outcome"] for event in kipu.events(session_id) if event["event_type"] == "turn_finished"]


def test_run_writes_the_final_answer_alone_to_stdout(kipu: CommandLine, work: Path) -> None:
    """In a pipe stdout has the last answer and nothing else; calls and session stand on stderr."""
    (work / "a.txt").write_text("one fish\n")
    ran = kipu.run("run", "read a.txt")
    assert (ran.code, ran.stdout) == (0, "demo model, no AI: a.txt has 1 line and begins “one fish”.\n")
    assert "→ read_file a.txt" in ran.stderr
    assert kipu.ids()[0] in ran.stderr
    assert finished(kipu, kipu.ids()[0]) == ["completed"]


def test_run_begins_a_session_that_works_in_the_current_directory(kipu: CommandLine, work: Path) -> None:
    """Each run has a session of its own, whose head names the directory it works in (B41)."""
    kipu.run("run", "list files")
    kipu.run("run", "list files", "--title", "another")
    assert len(kipu.ids()) == 2
    head = kipu.head(kipu.ids()[0])
    assert (head["title"], head["workspace"]["kind"], head["workspace"]["path"]) == ("another", "directory", str(work))


def test_run_reads_its_task_from_stdin(kipu_sqlite: CommandLine, work: Path) -> None:
    """`-`, or no task at all in a pipe, takes the whole of stdin as one message."""
    for words in (("run", "-"), ("run",)):
        ran = kipu_sqlite.run(*words, stdin="list files\nand say so\n")
        assert ran.code == 0
        (message,) = [
            event for event in kipu_sqlite.events(kipu_sqlite.ids()[0]) if event["event_type"] == "user_message"
        ]
        assert message["content"] == "list files\nand say so\n"


def test_run_that_would_ask_ends_parked_with_the_question(kipu: CommandLine, work: Path) -> None:
    """What asks a person is not run: the turn waits, the exit code says so, the question and its commands are told (C15)."""
    ran = kipu.run("run", "write notes.txt: two fish")
    assert (ran.code, ran.stdout) == (ExitCode.PARKED, "")
    assert "write_file asks: create notes.txt" in ran.stderr
    assert "+two fish" in ran.stderr
    session_id = kipu.ids()[0]
    assert f"kipu run --resume {session_id}" in ran.stderr
    assert not (work / "notes.txt").exists()
    assert kipu.run("run", "--resume", session_id).code == ExitCode.PARKED


def test_run_with_a_task_behind_an_open_question_stores_nothing(kipu_sqlite: CommandLine, work: Path) -> None:
    """A task for a session whose turn waits for a person is neither run nor left in its mailbox."""
    kipu_sqlite.run("run", "write notes.txt: x")
    session_id = kipu_sqlite.ids()[0]
    before = len(kipu_sqlite.events(session_id))
    assert kipu_sqlite.run("run", "--session", session_id, "list files").code == ExitCode.PARKED
    assert len(kipu_sqlite.events(session_id)) == before


def test_run_yes_allows_what_asks_and_the_log_says_who_did(kipu: CommandLine, work: Path) -> None:
    """`--yes` decides as a person does: each call has its request and its decision with the reason in the log (C15)."""
    assert kipu.run("run", "write notes.txt: two fish", "--yes").code == 0
    assert (work / "notes.txt").read_text() == "two fish\n"
    (decision,) = [event for event in kipu.events(kipu.ids()[0]) if event["event_type"] == "approval_decision"]
    assert (decision["decision"], decision["reason"]) == ("approved", "kipu run --approve all")


def test_run_allow_covers_its_rule_alone(kipu_sqlite: CommandLine, work: Path) -> None:
    """A rule given with `--allow` lets what it matches run and nothing else; `--deny` wins over it (A19)."""
    assert kipu_sqlite.run("run", "write a.txt: x", "--allow", "write_file(*.txt)").code == 0
    assert kipu_sqlite.run("run", "write a.py: x", "--allow", "write_file(*.txt)").code == ExitCode.PARKED
    denied = kipu_sqlite.run("run", "write b.txt: x", "--yes", "--deny", "write_file")
    assert "not allowed to write b.txt" in denied.stdout
    assert sorted(path.name for path in work.iterdir()) == ["a.txt"]


def test_run_allow_answers_a_question_from_before(kipu_sqlite: CommandLine, work: Path) -> None:
    """Going on with a rule that would not have let the question come up decides it, with the rule as its reason."""
    kipu_sqlite.run("run", "write a.txt: x")
    session_id = kipu_sqlite.ids()[0]
    assert kipu_sqlite.run("run", "--resume", session_id, "--allow", "write_file(*.py)").code == ExitCode.PARKED
    assert kipu_sqlite.run("run", "--resume", session_id, "--approve", "reads").code == ExitCode.PARKED
    assert kipu_sqlite.run("run", "--resume", session_id, "--allow", "write_file(*.txt)").code == 0
    assert (work / "a.txt").exists()


def test_run_ends_at_its_limit_with_a_code_of_its_own(kipu_sqlite: CommandLine, work: Path) -> None:
    """`--max-steps` ends the turn before the next model call, every call closed, and the exit code is not that of a failure."""
    ran = kipu_sqlite.run("run", "read a.txt", "--max-steps", "1")
    assert (ran.code, ran.stdout) == (ExitCode.LIMIT, "")
    assert "its limit is 1" in ran.stderr
    assert finished(kipu_sqlite, kipu_sqlite.ids()[0]) == ["failed"]
    assert kipu_sqlite.run("verify").code == 0


def test_run_without_its_model_stores_nothing(kipu_sqlite: CommandLine, work: Path) -> None:
    """A model that there is not is told before a session is begun."""
    ran = kipu_sqlite.run("run", "hello", "--model", "nonsense")
    assert (ran.code, "[model_name]" in ran.stderr) == (1, True)
    assert kipu_sqlite.ids() == []


def test_run_continues_the_newest_session_of_the_directory(kipu: CommandLine, work: Path) -> None:
    """`--continue` goes on with this directory's newest session and never with another directory's (A12, B2)."""
    (work / "inner").mkdir()
    kipu.run("run", "my fish is called Wanda")
    kipu.run("run", "my cat is called Tom", "--workspace", "inner")
    ran = kipu.run("run", "--continue", "what did I say about fish?")
    assert "my fish is called Wanda" in ran.stdout
    assert len(kipu.ids()) == 2
    elsewhere = kipu.run("run", "--continue", "--workspace", str(work.parent), "x")
    assert (elsewhere.code, "[session_not_found]" in elsewhere.stderr) == (3, True)


def test_run_json_writes_the_events_as_they_are_stored(kipu: CommandLine, work: Path) -> None:
    """With `--json` every line is an event of the log, in order, and the last one the result with its exit code."""
    ran = kipu.run("run", "list files", "--json")
    *events, result = ran.lines
    stored = kipu.events(kipu.ids()[0])
    assert events == stored[1:]
    assert (result["event_type"], result["outcome"], result["exit_code"]) == ("run_result", "completed", 0)
    assert result["answer"] == events[-2]["content"]


def test_run_json_names_what_a_person_is_asked(kipu_sqlite: CommandLine, work: Path) -> None:
    """The result of a parked run holds the approvals with tool, arguments and what they would change."""
    *_, result = kipu_sqlite.run("run", "write a.txt: x", "--json").lines
    (approval,) = result["approvals"]
    assert (result["exit_code"], approval["tool"], approval["arguments"]["path"]) == (11, "write_file", "a.txt")


def test_run_deltas_are_what_streamed(kipu_sqlite: CommandLine, work: Path) -> None:
    """With `--deltas` the pieces come too; joined they are the answer, and no log keeps them."""
    lines = kipu_sqlite.run("run", "hello", "--json", "--deltas").lines
    pieces = [line for line in lines if line["event_type"] == "text_delta"]
    assert "".join(piece["text"] for piece in pieces) == lines[-1]["answer"]
    assert len(pieces) > 3
    assert all("seq" not in piece for piece in pieces)


def test_run_in_a_worktree_leaves_the_directory_alone(kipu_sqlite: CommandLine, work: Path) -> None:
    """`--worktree` works on a branch of its own, below no directory of the user (B41)."""
    for words in (
        ["init", "-q", "-b", "main"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *words], cwd=work, check=True)
    assert kipu_sqlite.run("run", "write a.txt: x", "--yes", "--worktree").code == 0
    assert not (work / "a.txt").exists()
    workspace = kipu_sqlite.head(kipu_sqlite.ids()[0])["workspace"]
    assert (workspace["kind"], workspace["branch"]) == ("worktree", f"kipu/{kipu_sqlite.ids()[0]}")
    assert (Path(workspace["path"]) / "a.txt").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--resume", "x", "--session", "y"),
        ("--resume", "abcd", "a task"),
        ("--session", "abcd", "--title", "t", "a task"),
        ("--workspace", "not-there", "a task"),
        ("  ",),
        ("x", "--allow", "write_file("),
    ],
)
def test_run_refuses_words_that_do_not_go_together(
    kipu_sqlite: CommandLine, work: Path, *, words: tuple[str, ...]
) -> None:
    """Options that contradict each other are refused before anything is made."""
    ran = kipu_sqlite.run("run", *words)
    assert ran.code == ExitCode.USAGE
    assert not (work.parent / "sessions.db").exists()


def test_run_resume_needs_something_to_go_on_with(kipu_sqlite: CommandLine, work: Path) -> None:
    """An idle session has nothing to go on with, which is told with what to write instead."""
    kipu_sqlite.run("run", "hello")
    ran = kipu_sqlite.run("run", "--resume", kipu_sqlite.ids()[0])
    assert (ran.code, "no open turn" in ran.stderr) == (2, True)


def test_run_asks_for_its_helpers_too(kipu_sqlite: CommandLine, work: Path) -> None:
    """A helper's question ends the run as its own would; the decision is made there, and the first session is gone on with."""
    task = 'use delegate with {"task": "write a.txt: x"}'
    first = kipu_sqlite.run("run", task, "--json")
    (question,) = first.lines[-1]["approvals"]
    session_id = first.lines[-1]["session_id"]
    assert (first.code, question["tool"], question["session_id"] != session_id) == (11, "write_file", True)
    assert f"kipu run --resume {session_id}" in kipu_sqlite.run("approve", question["approval_id"]).stderr
    assert kipu_sqlite.run("run", "--resume", session_id).code == 0
    assert (work / "a.txt").read_text() == "x\n"
    assert kipu_sqlite.run("run", task.replace("a.txt", "b.txt"), "--yes").code == 0


def test_run_without_money_takes_no_step(kipu_sqlite: CommandLine, work: Path) -> None:
    """A limit of nothing is reached before the first model call, even of a model that costs nothing."""
    assert kipu_sqlite.run("run", "read a.txt", "--max-cost", "0").code == ExitCode.LIMIT
