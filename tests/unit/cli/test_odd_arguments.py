"""Words that are nearly numbers, paths or ids: commands and the chat name them, and nothing else happens."""

from __future__ import annotations

import pytest

from tests.unit.cli.command_line import CommandLine

# A digit to Python and no number; more digits than it reads; more than a store counts to.
ODD_NUMBERS = ("²", "9" * 5000, "9" * 30)


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=["superscript", "unreadable", "huge"])
def test_commands_refuse_numbers_that_are_none(kipu: CommandLine, number: str) -> None:
    """What is no number of an event, turn or port ends with an error and its code, and changes nothing."""
    kipu.chat("hello")
    before = kipu.events("cli:default")
    for words, code in {
        ("replay", "cli:default", "--turn", number): 2,
        ("replay", "cli:default", "--turn", "-" + number): 2,
        ("queue", "cli:default", "cancel", number): 4 if number == "9" * 30 else 2,
        ("pin", "cli:default", number): 2,
        ("window", "cli:default", "--max-tokens", number): 2,
        ("window", "cli:default", "--json", "--max-messages", number): 2,
        ("worker", "--health", f"localhost:{number}"): 2,
    }.items():
        ran = kipu.run(*words)
        assert (ran.code, ran.stdout) == (code, ""), words
        assert ran.stderr.startswith("error: "), words
    assert kipu.events("cli:default") == before


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=["superscript", "unreadable", "huge"])
def test_chat_goes_on_after_numbers_that_are_none(kipu_sqlite: CommandLine, number: str) -> None:
    """A slash command with such a number is refused, and the lines after it are answered."""
    names = ("switch", "rewind", "rewind to", "undo", "queue cancel")
    ran = kipu_sqlite.chat("hello", *(f"/{name} {number}" for name in names), "how many messages?")
    assert ran.code == 1
    assert ran.stderr.count("error: ") == len(names)
    assert "my window holds 3 messages" in ran.stdout
    assert len(kipu_sqlite.ids()) == 1


def test_chat_takes_a_long_number_as_an_answer(kipu_sqlite: CommandLine) -> None:
    """Digits that are the number of no choice are the answer in words (C13)."""
    ran = kipu_sqlite.chat('use ask_user with {"question": "how many?", "choices": ["one", "two"]}', "7" * 5000)
    assert ran.code == 0
    answers = [event for event in kipu_sqlite.events(kipu_sqlite.ids()[0]) if event["event_type"] == "tool_result"]
    assert str(answers[0]["result"]).startswith("7777")


@pytest.mark.parametrize(
    "words",
    [
        ("stats", ""),
        ("verify", ""),
        ("scan", ""),
        ("approvals", ""),
        ("receipts", ""),
        ("policy", "--session", ""),
        ("memory", "ls", "--session", ""),
        ("run", "--session", "", "hello"),
        ("run", "--resume", ""),
    ],
    ids=" ".join,
)
def test_an_empty_session_is_none_and_not_all(kipu_sqlite: CommandLine, words: tuple[str, ...]) -> None:
    """A variable that is not set names no session: it is not found, nothing is begun, and the whole store is not meant."""
    kipu_sqlite.chat("hello")
    before = kipu_sqlite.ids()
    ran = kipu_sqlite.run(*words)
    assert (ran.code, ran.stdout) == (3, "")
    assert "There is no session ''" in ran.stderr
    assert kipu_sqlite.ids() == before


@pytest.mark.parametrize("words", [("--store", "", "trash", "cli:default"), ("trash", "cli:default", "--store", "")])
def test_an_empty_store_is_not_the_default_one(kipu_sqlite: CommandLine, words: tuple[str, ...]) -> None:
    """`--store "$UNSET"` is refused, rather than that something is done to the store that is used without it."""
    kipu_sqlite.chat("hello")
    ran = kipu_sqlite.run(*words)
    assert (ran.code, "--store is empty" in ran.stderr) == (2, True)
    assert len(kipu_sqlite.ids()) == 1


@pytest.mark.parametrize("words", [("export", "--to", "all.zip"), ("erase", "--yes")])
def test_an_empty_person_is_nobody(kipu_sqlite: CommandLine, words: tuple[str, ...]) -> None:
    """`--person "$UNSET"` writes no archive that looks like one, and erases nothing."""
    kipu_sqlite.chat("hello")
    ran = kipu_sqlite.run(*words, "--person", "")
    assert (ran.code, "--person is empty" in ran.stderr) == (2, True)
    assert not (kipu_sqlite.home / "all.zip").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("export", "--all", "-o", ""),
        ("export", "cli:default", "--blobs="),
        ("archive", "cli:default", "--to", ""),
        ("unarchive", "cli:default", "--from", ""),
        ("verify", "--chain", "--save", ""),
        ("import", "some.jsonl", "--quarantine", ""),
        ("run", "--workspace", "", "hello"),
        ("run", "--model=", "hello"),
        ("chat", "--project", ""),
    ],
    ids=" ".join,
)
def test_an_empty_name_is_no_other_one(kipu_sqlite: CommandLine, words: tuple[str, ...]) -> None:
    """`--to "$UNSET"` is refused, rather than that files come where one stands, or another folder, project or model is used."""
    kipu_sqlite.chat("hello")
    before = kipu_sqlite.run("ls", "--json").json, sorted(kipu_sqlite.home.iterdir())
    ran = kipu_sqlite.run(*words, stdin="hello\n")
    assert (ran.code, "is empty; name it, or leave it out" in ran.stderr, ran.stdout) == (2, True, "")
    assert (kipu_sqlite.run("ls", "--json").json, sorted(kipu_sqlite.home.iterdir())) == before


def test_what_stands_behind_two_dashes_names_nothing(kipu_sqlite: CommandLine) -> None:
    """There a word is a word: the task is `--to`, and what follows it is refused as a second one by its own words."""
    ran = kipu_sqlite.run("run", "--", "--to", "")
    assert (ran.code, "is empty" in ran.stderr) == (2, False)


def test_ls_does_not_say_that_there_are_no_sessions_where_none_is_like_that(kipu_sqlite: CommandLine) -> None:
    """A filter that leaves nothing is told from a store that holds nothing (B26)."""
    kipu_sqlite.chat("hello")
    assert "no sessions yet" not in kipu_sqlite.run("ls", "--tag", "birds").stderr
    assert "no session is like that" in kipu_sqlite.run("ls", "--status", "trashed").stderr


def test_help_shows_words_in_brackets(kipu_sqlite: CommandLine) -> None:
    """The tables of the settings that a command needs are named in its help, and in the list of all commands."""
    listed = " ".join(kipu_sqlite.run("--help").stdout.replace("│", " ").split())
    for command, table in {"gc": "[retention]", "reveal": "[redaction_rules]"}.items():
        assert table in listed
        assert table in kipu_sqlite.run(command, "--help").stdout


def test_paths_that_lead_to_nobodys_home_are_errors(kipu_sqlite: CommandLine) -> None:
    """`~name` of nobody is named in an error with its next step: in options, URLs and the chat, which goes on."""
    for words in (
        ("chat", "--workspace", "~nobody-at-all"),
        ("ls", "--store", "sqlite:///~nobody-at-all/a.db"),
        ("archive", "cli:default", "--to", "~nobody-at-all/x"),
        ("key", "init", "file:~nobody-at-all/key"),
    ):
        kipu_sqlite.chat("hello")
        ran = kipu_sqlite.run(*words)
        assert (ran.code, "~nobody-at-all" in ran.stderr, "set HOME" in ran.stderr) == (2, True, True), words
    ran = kipu_sqlite.chat("hello", "/cwd ~nobody-at-all", "how many messages?")
    assert (ran.code, "[configuration]" in ran.stderr, "my window holds 3 messages" in ran.stdout) == (1, True, True)


@pytest.mark.parametrize("url", ["sqlite:///a%00b.db", "jsonl:////tmp/%00"])
def test_a_store_url_with_a_null_character_is_refused(kipu_sqlite: CommandLine, url: str) -> None:
    """What no file system takes as a path is no store URL."""
    ran = kipu_sqlite.run("ls", "--store", url)
    assert (ran.code, "[store_url]" in ran.stderr) == (2, True)


def _asked(kipu: CommandLine) -> str:
    events = kipu.events(kipu.ids()[0])
    return str(next(event["approval_id"] for event in events if event["event_type"] == "approval_request"))


def test_chat_takes_no_letter_for_the_end_of_an_id(kipu_sqlite: CommandLine) -> None:
    """A part of an id has four characters, in the chat too: fewer allow nothing, and answer as what they say (C15)."""
    kipu_sqlite.chat("write a.txt: one")
    ran = kipu_sqlite.chat(f"/approve {_asked(kipu_sqlite)[-1]}", options=("--continue",))
    assert (ran.code, "[approval_not_found]" in ran.stderr) == (1, True)
    assert not (kipu_sqlite.home / "a.txt").exists()
    assert kipu_sqlite.chat(f"/approve {_asked(kipu_sqlite)[-5:]}", options=("--continue",)).code == 0
    assert (kipu_sqlite.home / "a.txt").read_text() == "one\n"
    kipu_sqlite.chat('use ask_user with {"question": "which letter?"}')
    letter = _asked(kipu_sqlite)[-1]
    assert kipu_sqlite.chat(f"/answer {letter}", options=("--continue",)).code == 0
    results = [event["result"] for event in kipu_sqlite.events(kipu_sqlite.ids()[0]) if "result" in event]
    assert results == [letter]


def test_a_path_that_the_system_refuses_is_said_and_the_chat_goes_on(kipu_sqlite: CommandLine) -> None:
    """What the system says of a file is an error of the one command (C16)."""
    ran = kipu_sqlite.chat("hello", f"/cwd {'x' * 5000}", "how many messages?")
    assert "name too long" in ran.stderr.lower()
    assert "my window holds 3 messages" in ran.stdout
