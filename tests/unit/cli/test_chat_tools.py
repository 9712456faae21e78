"""`kipu chat` through a pipe as an agent: questions answered by lines, decisions later, files, rules, costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.command_line import CommandLine


def of_type(kipu: CommandLine, event_type: str) -> list[dict[str, Any]]:
    return [event for event in kipu.events(kipu.ids()[0]) if event["event_type"] == event_type]


def test_chat_in_a_pipe_takes_answers_from_its_lines(kipu: CommandLine) -> None:
    """`y` runs the call that was asked about, `n` with a reason does not; each once, before the next message (A20, C15)."""
    ran = kipu.chat("write a.txt: one", "y", "write b.txt: two", "n not that", "how many messages?")
    assert ran.code == 0
    assert (kipu.home / "a.txt").read_text() == "one\n"
    assert not (kipu.home / "b.txt").exists()
    assert "not that" in of_type(kipu, "tool_result")[1]["result"]
    assert "+one" in ran.stderr  # the diff that was decided about
    assert "3 from you" in ran.stdout


def test_chat_shows_mcp_servers_and_calls_their_tools(kipu_sqlite: CommandLine) -> None:
    """`/mcp` shows how each server stands, live and dead, with its tools; a call of one is asked about like any (C29)."""
    folder = kipu_sqlite.home / ".config/kipu"
    folder.mkdir(parents=True)
    server = Path(__file__).parents[2] / "acceptance/runtime/mcp_good_server.py"
    (folder / "config.toml").write_text(
        f"[mcp.good]\ncommand = {sys.executable!r}\nargs = [{str(server)!r}]\n\n[mcp.gone]\ncommand = '/nowhere/server'\n"
    )
    ran = kipu_sqlite.chat("hello", "/mcp", 'use mcp__good__add with {"a": 2, "b": 3}', "y", "/mcp")
    assert ran.code == 0
    assert "mcp__good__add" in ran.stdout
    assert "gone: " in ran.stdout
    assert "/nowhere/server" in ran.stdout
    assert [event["result"] for event in of_type(kipu_sqlite, "tool_result")] == ["5"]
    assert of_type(kipu_sqlite, "approval_decision")[0]["decision"] == "approved"


def test_chat_takes_up_a_session_whose_helper_asks(kipu_sqlite: CommandLine) -> None:
    """What a helper asks is seen from the session that it works for, in lists and in the chat that goes on with it (C15)."""
    ran = kipu_sqlite.run("run", 'use delegate with {"task": "write a.txt: one"}')
    assert ran.code == 11
    parent = next(each for each in kipu_sqlite.ids() if "kipu.parent" not in kipu_sqlite.head(each)["metadata"])
    (asked,) = kipu_sqlite.run("approvals", parent, "--json").json
    assert (asked["helper_of"], asked["tool"]) == (parent, "write_file")
    assert kipu_sqlite.run("status", parent, "--json").json["state"] == "parked"
    ran = kipu_sqlite.chat("y", options=("--resume", parent))
    assert "a turn waits for you to decide about a call" in ran.stderr
    assert (kipu_sqlite.home / "a.txt").read_text() == "one\n"
    outcomes = [each["outcome"] for each in kipu_sqlite.events(parent) if each["event_type"] == "turn_finished"]
    assert outcomes == ["completed"]


@pytest.mark.parametrize(
    "how", [["\\033]0;title\\007\\033[2J\\033[31mred"], ["\\033P+q544e\\033\\\\", "\\302\\233 31m"]]
)
def test_chat_shows_no_escape_sequences_of_a_command(kipu_sqlite: CommandLine, how: list[str]) -> None:
    """What a command prints to steer a terminal reaches neither the person's terminal nor the model as such (A19)."""
    ran = kipu_sqlite.chat(f"run `printf '{''.join(how)} done'`", "y")
    assert ran.code == 0
    assert not {"\x1b", "\x07", "\x9b"} & set(ran.stdout + ran.stderr)
    (result,) = of_type(kipu_sqlite, "tool_result")
    assert "done" in result["result"]
    assert not {"\x1b", "\x07", "\x9b"} & set(result["result"])


ASK = 'use ask_user with {"question": "tabs or spaces?", "choices": ["tabs", "spaces"]}'


def test_chat_answers_what_the_agent_asks(kipu: CommandLine) -> None:
    """The next line is the answer, whatever it says; a number is the choice of that place, `/answer` says it too (C13)."""
    ran = kipu.chat(ASK, "yes, but only in tests", ASK, "2", ASK, "/answer neither", ASK, "/deny")
    assert ran.code == 0
    assert "the agent asks: tabs or spaces? [1 tabs · 2 spaces]" in ran.stderr
    results = of_type(kipu, "tool_result")
    assert [event["result"] for event in results[:3]] == ["yes, but only in tests", "spaces", "neither"]
    assert results[3]["synthetic"] == "denied"


def test_chat_names_the_command_that_answers_a_question_left_open(kipu_sqlite: CommandLine) -> None:
    """At the end of its lines a chat says how the question is answered from elsewhere, and the next chat asks it again."""
    ran = kipu_sqlite.chat(ASK)
    approval_id = of_type(kipu_sqlite, "approval_request")[0]["approval_id"]
    assert (ran.code, f"kipu answer {approval_id} TEXT" in ran.stderr) == (11, True)
    assert "the agent asks: tabs or spaces?" in kipu_sqlite.chat("tabs", options=("--continue",)).stderr
    assert of_type(kipu_sqlite, "tool_result")[0]["result"] == "tabs"


def test_chat_in_a_pipe_leaves_a_question_open_at_its_end(kipu: CommandLine) -> None:
    """Without an answer the turn stays parked, its approval is named, the code says so; the next chat decides it (C15)."""
    ran = kipu.chat("write a.txt: one")
    assert ran.code == 11
    approval_id = of_type(kipu, "approval_request")[0]["approval_id"]
    assert f"kipu approve {approval_id}" in ran.stderr
    again = kipu.chat("y", options=("--continue",))
    assert again.code == 0
    assert "a turn waits for you" in again.stderr
    assert (kipu.home / "a.txt").read_text() == "one\n"
    assert [event["outcome"] for event in of_type(kipu, "turn_finished")] == ["completed"]


def test_chat_decides_by_id_and_all(kipu_sqlite: CommandLine) -> None:
    """`/approve all` and `/deny ID WHY` decide like answers; an unknown id is said (A44)."""
    kipu_sqlite.chat("write a.txt: one")
    approval_id = of_type(kipu_sqlite, "approval_request")[0]["approval_id"]
    ran = kipu_sqlite.chat("/approve appr_nothing", f"/deny {approval_id} too early", options=("--continue",))
    assert (ran.code, "[approval_not_found]" in ran.stderr) == (1, True)
    assert of_type(kipu_sqlite, "approval_decision")[0]["reason"] == "too early"
    ran = kipu_sqlite.chat("write a.txt: two", "/approve all", options=("--continue",))
    assert (kipu_sqlite.home / "a.txt").read_text() == "two\n"


def test_chat_keeps_what_is_no_answer_as_the_next_message(kipu_sqlite: CommandLine) -> None:
    """A line that answers nothing while a person is asked waits as a message, and is said to (C12)."""
    ran = kipu_sqlite.chat("write a.txt: one", "how many messages?", "y")
    assert "waits as your next message" in ran.stderr
    assert "my window holds" in ran.stdout
    assert (kipu_sqlite.home / "a.txt").exists()


def test_chat_runs_a_call_with_changed_arguments(kipu_sqlite: CommandLine) -> None:
    """`e TEXT` puts the text in the place of what the model wrote; the log has both (C15)."""
    kipu_sqlite.chat("write a.txt: one", "e two words")
    assert (kipu_sqlite.home / "a.txt").read_text() == "two words\n"
    assert of_type(kipu_sqlite, "tool_call")[0]["tool_input"]["content"] == "one\n"
    assert of_type(kipu_sqlite, "approval_decision")[0]["arguments"]["content"] == "two words\n"


def test_chat_asks_no_more_after_always(kipu_sqlite: CommandLine) -> None:
    """`a` allows the same call in this session only; another session asks again (C15, A19)."""
    ran = kipu_sqlite.chat("run `echo hi`", "a", "run `echo hi`", "/new", "run `echo hi`", "n")
    assert ran.stderr.count("allow?") == 2
    assert ran.stdout.count("ended with exit code 0") >= 1


def test_chat_gives_programs_questions_as_json(kipu_sqlite: CommandLine) -> None:
    """With `--json` a question is one line, its answer the next line of stdin, and a parked end says what waits."""
    ran = kipu_sqlite.chat("write a.txt: one", "y", "write b.txt: two", options=("--json",))
    kinds = [next(iter(line)) if "question" in line else line["outcome"] for line in ran.lines]
    assert kinds == ["question", "completed", "question", "parked"]
    assert ran.lines[0]["question"]["shown"]["diff"].endswith("+one\n")
    assert ran.lines[1]["calls"][0]["tool"] == "write_file"
    assert ran.lines[3]["questions"][0]["approval_id"] == ran.lines[2]["question"]["approval_id"]


def test_chat_undoes_turns_and_their_files(kipu: CommandLine) -> None:
    """`/diff` shows what changed, `/undo` takes the turn and its files back, `/rewind` alone leaves files (C11, A19)."""
    ran = kipu.chat(
        "write a.txt: one", "y", "/diff", "/undo", "/diff", "how many messages?", "write b.txt: two", "y", "/rewind",
    )  # fmt: skip
    assert ran.code == 0
    assert "+one" in ran.stdout
    assert "files brought back: a.txt" in ran.stderr
    assert "no file differs" in ran.stderr
    assert "my window holds 2 messages" in ran.stdout or "1 from you" in ran.stdout
    assert not (kipu.home / "a.txt").exists()
    assert (kipu.home / "b.txt").exists()


def test_chat_shows_rules_and_narrows_them(kipu_sqlite: CommandLine) -> None:
    """`/policy deny` holds from the next call on, `allow` is a grant that never beats it, both can be taken back (A19)."""
    ran = kipu_sqlite.chat(
        "/policy allow shell(echo *)", "run `echo free`", "/policy deny shell(echo *)", "run `echo bound`",
        "/policy", "/policy drop shell(echo *)", "run `echo again`", "/policy allow nonsense(",
    )  # fmt: skip
    assert "allow?" not in ran.stderr
    results = of_type(kipu_sqlite, "tool_result")
    assert [result["is_error"] for result in results] == [False, True, False]
    assert "deny shell(echo *)" in ran.stdout
    assert "grant_" in ran.stdout
    assert (ran.code, "[configuration]" in ran.stderr) == (1, True)


def test_chat_says_what_was_used(kipu_sqlite: CommandLine) -> None:
    """`/cost` has the last turn and the session: what is free is $0, and the tokens are counted (A72)."""
    ran = kipu_sqlite.chat("hello", "hello again", "/cost")
    assert "last turn: $0.0000" in ran.stdout
    assert "2 turns" in ran.stdout


def test_chat_lists_tools_and_servers(kipu_sqlite: CommandLine) -> None:
    """`/tools` names each tool with its policy; `/mcp` says where servers are configured."""
    ran = kipu_sqlite.chat("hello", "/tools", "/mcp", "/queue", "/cwd")
    assert "read_file\tallow" in ran.stdout
    assert "write_file\task" in ran.stdout
    assert "no MCP server is configured" in ran.stderr
    assert f"{kipu_sqlite.home} (directory, present)" in ran.stdout


def test_chat_works_in_its_own_directory_where_asked(kipu_sqlite: CommandLine) -> None:
    """`--workspace private` gives a new session a directory of its own; `--workspace DIR` one that is there (B41)."""
    kipu_sqlite.chat("write a.txt: one", "y", options=("--workspace", "private"))
    assert not (kipu_sqlite.home / "a.txt").exists()
    (found,) = kipu_sqlite.home.rglob("a.txt")
    assert kipu_sqlite.ids()[0] in found.parts
    place = kipu_sqlite.home / "place"
    place.mkdir()
    kipu_sqlite.chat("write b.txt: two", "y", options=("--workspace", str(place)))
    assert (place / "b.txt").exists()
    refused = kipu_sqlite.chat("x", options=("--workspace", "/nowhere/at/all"))
    assert (refused.code, "[input]" in refused.stderr) == (2, True)


def test_chat_works_in_a_worktree_of_its_own(kipu_sqlite: CommandLine) -> None:
    """`--worktree` leaves the repository's own files alone: the session has a branch named after it (B41)."""
    git = ["git", "-C", str(kipu_sqlite.home), "-c", "user.name=n", "-c", "user.email=n@localhost"]
    (kipu_sqlite.home / "code.txt").write_text("first\n")
    for words in (["init", "-q", "-b", "main"], ["add", "code.txt"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    ran = kipu_sqlite.chat("write new.txt: one", "y", options=("--worktree",))
    assert f"on the branch kipu/{kipu_sqlite.ids()[0]}" in ran.stderr
    assert not (kipu_sqlite.home / "new.txt").exists()
    worktree = Path(of_type(kipu_sqlite, "metadata_changed")[0]["set"]["kipu.workspace"]["path"])
    assert (worktree / "new.txt").exists()
    assert (worktree / "code.txt").read_text() == "first\n"


def test_chat_says_when_its_directory_is_gone(kipu_sqlite: CommandLine) -> None:
    """A session whose directory was removed says so when it is resumed, and `/cwd` gives it another (B41)."""
    place, other = kipu_sqlite.home / "place", kipu_sqlite.home / "other"
    place.mkdir()
    other.mkdir()
    kipu_sqlite.chat("hello", options=("--workspace", str(place)))
    place.rmdir()
    ran = kipu_sqlite.chat("list files", f"/cwd {other}", "list files", options=("--continue",))
    assert f"the directory {place} is gone" in ran.stderr
    assert "[workspace_missing]" in ran.stderr
    assert f"works in {other}" in ran.stderr
    assert [event["outcome"] for event in of_type(kipu_sqlite, "turn_finished")] == ["completed", "failed", "completed"]


def test_chat_hides_its_own_files_from_tools(kipu_sqlite: CommandLine) -> None:
    """Where the store lies in the directory that the agent works in, no tool reads it (A19, A65)."""
    kipu_sqlite.chat("hello", "read sessions.db")
    (result,) = of_type(kipu_sqlite, "tool_result")
    assert result["is_error"]
    assert "SQLite" not in str(result["result"])


@pytest.mark.parametrize("rule", ['deny = ["write_file"]', 'allow = ["write_file"]'])
def test_a_projects_own_rules_only_narrow_until_they_are_trusted(kipu_sqlite: CommandLine, rule: str) -> None:
    """Of a project's `.kipu/config.toml` denials count at once, allows only after `/trust`, and not once it changed (A19)."""
    (kipu_sqlite.home / ".kipu").mkdir()
    file = kipu_sqlite.home / ".kipu" / "config.toml"
    file.write_text(f"[policy]\n{rule}\n")
    ran = kipu_sqlite.chat("write a.txt: one", "n")
    assert "not trusted" in ran.stderr
    assert ("allow?" in ran.stderr) == rule.startswith("allow")
    assert not (kipu_sqlite.home / "a.txt").exists()
    ran = kipu_sqlite.chat("/trust", "write a.txt: one")
    assert (kipu_sqlite.home / "a.txt").exists() == rule.startswith("allow")
    assert "allow?" not in ran.stderr
    file.write_text(file.read_text() + "# changed\n")
    ran = kipu_sqlite.chat("write b.txt: one", "n")
    assert ("allow?" in ran.stderr) == rule.startswith("allow")


def test_rules_and_limits_of_the_configuration_are_in_force(kipu_sqlite: CommandLine) -> None:
    """`[policy]` and `[limits]` of the user's file hold for every session; a mistake in them is named (A19, A72)."""
    folder = kipu_sqlite.home / ".config" / "kipu"
    folder.mkdir(parents=True)
    file = folder / "config.toml"
    file.write_text('[policy]\nallow = ["write_file"]\ndeny = ["shell"]\n[limits]\nmax_steps = 2\n')
    ran = kipu_sqlite.chat("write a.txt: one", "run `echo hi`", "list files and read a.txt")
    assert "allow?" not in ran.stderr
    assert (kipu_sqlite.home / "a.txt").exists()
    assert "its limit is 2" in ran.stderr
    limits = ("max_steps = -1", "max_steps = '5'", "max_cost_usd = nan", "steps = 1")
    for wrong in ("[policy]\nalow = []\n", "policy = 3\n", *(f"[limits]\n{limit}\n" for limit in limits)):
        file.write_text(wrong)
        refused = kipu_sqlite.chat("hello")
        assert (refused.code, "[configuration]" in refused.stderr) == (2, True), wrong


def test_chat_sessions_do_not_take_up_what_nobody_asked_for(kipu_sqlite: CommandLine) -> None:
    """Looking at a session with a broken-off turn begins nothing; `/retry` goes on with it (C14)."""
    import asyncio

    from kipu import UserMessageEvent, open_manager
    from kipu.events.turn import TurnStartedEvent

    async def break_off() -> None:
        async with await open_manager(kipu_sqlite.store) as manager:
            session = await manager.get_or_create("cli:default")
            message = await session.add_event(UserMessageEvent(content="hello", channel="cli", queued=True))
            async with session.holding():
                await session.add_event(TurnStartedEvent(turn_id="turn_dead", consumes=[message.seq]))

    asyncio.run(break_off())
    ran = kipu_sqlite.chat("/title", options=("--continue",))
    assert "a turn was broken off" in ran.stderr
    assert of_type(kipu_sqlite, "turn_finished") == []
    assert kipu_sqlite.chat("/retry", options=("--continue",)).stdout.startswith("demo model, no AI: hello!")
    assert [event["turn_id"] for event in of_type(kipu_sqlite, "turn_finished")] == ["turn_dead"]
