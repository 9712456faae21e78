"""`kipu approvals`, `approve`, `deny`, `answer`, `grants`, `revoke`, `policy`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.cli.exit_code import ExitCode
from tests.unit.cli.command_line import CommandLine

pytestmark = pytest.mark.usefixtures("work")


def ask(kipu: CommandLine, name: str = "a.txt") -> tuple[str, str]:
    """Return the approval and the session of a turn that waits for a person."""
    assert kipu.run("run", f"write {name}: x").code == ExitCode.PARKED
    session_id = kipu.ids()[0]
    (pending,) = kipu.run("approvals", session_id, "--json").json
    return pending["approval_id"], session_id


def test_approvals_lists_what_waits_in_every_session(kipu: CommandLine) -> None:
    """Each question has its id, age, session, tool and what it would do, the oldest first (C15)."""
    first, _ = ask(kipu, "a.txt")
    second, session_id = ask(kipu, "b.txt")
    rows = [line.split("\t") for line in kipu.run("approvals").stdout.splitlines()]
    assert [(row[0], row[4], row[5]) for row in rows] == [
        (first, "write_file", "create a.txt: +1 -0 lines"),
        (second, "write_file", "create b.txt: +1 -0 lines"),
    ]
    assert [row["approval_id"] for row in kipu.run("approvals", session_id, "--json").json] == [second]


def test_approve_runs_the_call_once_somebody_goes_on(kipu: CommandLine, work: Path) -> None:
    """An approval from a process that runs no turn is kept, and says how to go on; then the call runs (C15)."""
    approval_id, session_id = ask(kipu)
    ran = kipu.run("approve", approval_id, "--reason", "looks right")
    assert (ran.code, ran.stdout) == (0, "")
    assert f"kipu run --resume {session_id}" in ran.stderr
    assert not (work / "a.txt").exists()
    assert kipu.run("run", "--resume", session_id).code == 0
    assert (work / "a.txt").read_text() == "x\n"


@pytest.mark.parametrize("part", [slice(0, 12), slice(-6, None)], ids=["start", "end"])
def test_approvals_are_named_by_a_unique_part(kipu_sqlite: CommandLine, part: slice) -> None:
    """The unique start or end of an id is enough, as for sessions."""
    approval_id, _ = ask(kipu_sqlite)
    decided = kipu_sqlite.run("deny", approval_id[part], "--json").json
    assert (decided["approval_id"], decided["decision"]) == (approval_id, "denied")


def test_approval_that_several_could_be_is_not_decided(kipu_sqlite: CommandLine) -> None:
    """A part that fits two approvals decides neither, and neither does one that fits none."""
    ask(kipu_sqlite, "a.txt")
    ask(kipu_sqlite, "b.txt")
    for text in ("appr_", "appr_nobody", "app"):
        ran = kipu_sqlite.run("approve", text)
        assert (ran.code, "[approval_not_found]" in ran.stderr) == (ExitCode.NOT_FOUND, True)
    assert len(kipu_sqlite.run("approvals", "--json").json) == 2


def test_first_decision_counts(kipu_sqlite: CommandLine) -> None:
    """A second decision is refused with who was first (C15)."""
    approval_id, _ = ask(kipu_sqlite)
    assert kipu_sqlite.run("deny", approval_id).code == 0
    ran = kipu_sqlite.run("approve", approval_id)
    assert (ran.code, "local has decided it already (denied)" in ran.stderr) == (ExitCode.NOT_FOUND, True)


def test_deny_tells_the_model_why(kipu_sqlite: CommandLine, work: Path) -> None:
    """A denied call never runs; the reason is its result (A42)."""
    approval_id, session_id = ask(kipu_sqlite)
    kipu_sqlite.run("deny", approval_id, "--reason", "not on a Friday")
    assert "not on a Friday" in kipu_sqlite.run("run", "--resume", session_id).stdout
    assert not (work / "a.txt").exists()


QUESTION = 'use ask_user with {"question": "tabs or spaces?", "choices": ["tabs", "spaces"]}'


def test_answer_gives_the_agent_words(kipu: CommandLine, work: Path) -> None:
    """A question is listed, told with the command that answers it, and its answer is what the agent goes on with (C13)."""
    ran = kipu.run("run", QUESTION)
    (pending,) = kipu.run("approvals", "--json").json
    assert (ran.code, pending["question"]) == (ExitCode.PARKED, "tabs or spaces?")
    assert f"kipu answer {pending['approval_id']} TEXT" in ran.stderr
    assert kipu.run("run", "--approve", "all", "--resume", pending["session_id"]).code == ExitCode.PARKED
    decided = kipu.run("answer", pending["approval_id"], "-", "--json", stdin="spaces, of course\n").json
    assert (decided["decision"], decided["answer"]) == ("answered", "spaces, of course\n")
    assert "spaces, of course" in kipu.run("run", "--resume", pending["session_id"]).stdout


def test_answer_to_a_call_says_what_to_do_instead(kipu_sqlite: CommandLine) -> None:
    """Words do not decide whether a call runs."""
    approval_id, _ = ask(kipu_sqlite)
    ran = kipu_sqlite.run("answer", approval_id, "why not")
    assert (ran.code, "approve or deny" in ran.stderr) == (ExitCode.USAGE, True)


def test_approve_with_other_arguments_runs_those(kipu_sqlite: CommandLine, work: Path) -> None:
    """A person may put other arguments in the call's place; the log keeps what was asked and what ran (C15)."""
    approval_id, session_id = ask(kipu_sqlite)
    for wrong in ("{", "[1]"):
        assert kipu_sqlite.run("approve", approval_id, "--arguments", wrong).code == ExitCode.USAGE
    changed = '{"path": "other.txt", "content": "y"}'
    assert kipu_sqlite.run("approve", approval_id, "--arguments", changed).code == 0
    assert kipu_sqlite.run("run", "--resume", session_id).code == 0
    assert [path.name for path in work.iterdir()] == ["other.txt"]


def test_always_is_listed_holds_and_can_be_taken_back(kipu: CommandLine) -> None:
    """An `always` for the project covers its next session until it is revoked, which holds from the next call on (C15)."""
    approval_id, session_id = ask(kipu)
    kipu.run("approve", approval_id, "--always", "project")
    kipu.run("run", "--resume", session_id)
    (grant,) = kipu.run("grants", "--json").json
    assert (grant["tool"], grant["subject"], grant["scope"]) == ("write_file", "a.txt", "project")
    again = kipu.run("run", "write a.txt: x")
    assert again.code == 0
    assert kipu.run("revoke", grant["grant_id"][-8:]).code == 0
    assert kipu.run("grants").stdout == ""
    assert kipu.run("run", "write a.txt: x").code == ExitCode.PARKED


def test_always_for_a_session_is_listed_and_taken_back_too(kipu_sqlite: CommandLine) -> None:
    """A grant that one session keeps is found in the list over all of them."""
    approval_id, session_id = ask(kipu_sqlite)
    kipu_sqlite.run("approve", approval_id, "--always", "session")
    (grant,) = kipu_sqlite.run("grants", "--json").json
    assert (grant["scope"], grant["target"]) == ("session", session_id)
    assert kipu_sqlite.run("revoke", "grant_nobody").code == ExitCode.NOT_FOUND
    assert kipu_sqlite.run("revoke", grant["grant_id"]).code == 0
    assert kipu_sqlite.run("grants", "--json").json == []


def test_policy_says_what_would_be_decided_and_why(kipu_sqlite: CommandLine) -> None:
    """`kipu policy check` gives the answer an agent would get, with the layer it comes from; also before any session (A19)."""
    config = Path(kipu_sqlite.environment["HOME"]) / ".config" / "kipu" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[policy]\nallow = ["shell(git status*)"]\ndeny = ["shell(git push*)"]\n')
    answers = {
        command: kipu_sqlite.run("policy", "check", "shell", command, "--json").json
        for command in ("git status -s", "git push --force", "ls && git push", "ls")
    }
    assert [(one["answer"], one["layer"]) for one in answers.values()] == [
        ("allow", "user"),
        ("deny", "user"),
        ("deny", "user"),
        ("ask", "default"),
    ]
    assert "user\tdeny\tshell\tgit push*\t\n" in kipu_sqlite.run("policy").stdout
    assert kipu_sqlite.run("policy", "check", "no_such_tool", "x").code == ExitCode.USAGE
    assert not Path(kipu_sqlite.environment["HOME"], "sessions.db").exists()


def test_policy_of_a_session_counts_its_grants(kipu_sqlite: CommandLine) -> None:
    """Within a session, what somebody allowed for good is said to be allowed, and by which grant."""
    approval_id, session_id = ask(kipu_sqlite)
    kipu_sqlite.run("approve", approval_id, "--always", "session")
    asked = ("policy", "--session", session_id, "check", "write_file")
    assert kipu_sqlite.run(*asked, "a.txt").stdout.startswith("allow: local allowed it for the session")
    assert kipu_sqlite.run(*asked, "b.txt").stdout.startswith("ask:")
