"""`kipu chat` through a pipe: sessions, commands, endings."""

from __future__ import annotations

import re

from tests.unit.cli.command_line import KIPU, CommandLine


def types(events: list[dict[str, object]]) -> list[object]:
    return [event["event_type"] for event in events]


def said(kipu: CommandLine) -> list[object]:
    events = kipu.events(kipu.ids()[0])
    return [event["content"] for event in events if event["event_type"] == "user_message"]


def test_chat_answers_each_line_in_a_turn_of_its_own(kipu: CommandLine) -> None:
    """Each piped line is stored, then consumed by its own turn with a recorded window and an answer (A24, A39, C5)."""
    ran = kipu.chat("hello", "how many messages?")
    assert ran.code == 0
    assert ran.stdout.splitlines()[0].startswith("demo model, no AI: hello!")
    assert "my window holds 3 messages" in ran.stdout
    events = kipu.events(kipu.ids()[0])
    turn = ["model_call", "agent_message", "turn_finished"]
    first = ["session_init", "metadata_changed", "user_message", "turn_started", "instruction", *turn]
    assert types(events) == [*first, "user_message", "turn_started", *turn]
    assert [event["consumes"] for event in events if event["event_type"] == "turn_started"] == [[3], [9]]
    assert {event["outcome"] for event in events if event["event_type"] == "turn_finished"} == {"completed"}


def test_chat_writes_answers_only_to_stdout(kipu_sqlite: CommandLine) -> None:
    """What is no answer (model, session, hints) goes to stderr, so that answers can be piped on."""
    ran = kipu_sqlite.chat("hello")
    assert ran.stdout.count("\n") == 1
    assert "demo" in ran.stderr
    assert kipu_sqlite.ids()[0] in ran.stderr


def test_chat_continues_the_newest_session_of_the_project(kipu: CommandLine) -> None:
    """`--continue` goes on with the same history and shows where it stands, also in a new process (A13, B2, B33)."""
    kipu.chat("my fish is called Wanda")
    ran = kipu.chat("what did I say about fish?", options=("--continue",))
    assert "my fish is called Wanda" in ran.stdout
    assert "> my fish is called Wanda" in ran.stderr
    assert len(kipu.ids()) == 1


def test_chat_begins_a_new_session_by_default(kipu_sqlite: CommandLine) -> None:
    """Without options a chat begins a session of its own; the one before stays as it is (B3, B44)."""
    kipu_sqlite.chat("first")
    kipu_sqlite.chat("second", options=("--new",))
    kipu_sqlite.chat("third")
    titles = [head["display_title"] for head in kipu_sqlite.run("ls", "--json").json]
    assert titles == ["third", "second", "first"]


def test_chat_keeps_projects_apart(kipu_sqlite: CommandLine) -> None:
    """A project's chat never continues another project's session, and never sees its messages (A4, A12)."""
    kipu_sqlite.chat("the cat is black", options=("--project", "a"))
    refused = kipu_sqlite.chat("x", options=("--project", "b", "--continue"))
    assert (refused.code, "[session_not_found]" in refused.stderr) == (3, True)
    kipu_sqlite.chat("the dog is white", options=("--project", "b"))
    ran = kipu_sqlite.chat("what did I say about cat?", options=("--project", "b", "--continue"))
    assert "you said nothing about cat" in ran.stdout
    assert {head["key"] for head in kipu_sqlite.run("ls", "--json").json} == {"cli:a", "cli:b"}


def test_chat_makes_no_session_without_a_message(kipu_sqlite: CommandLine) -> None:
    """Opening and leaving a chat stores nothing (situation 67a)."""
    assert kipu_sqlite.chat("", "/help", "/quit").code == 0
    assert kipu_sqlite.ids() == []


def test_chat_refuses_to_resume_what_is_not_there(kipu: CommandLine) -> None:
    """An unknown resume target is a typed error with its code, and never a new session (situation 45)."""
    for target in ("sess_00000000000000000000000000", "nothing like this", "../x"):
        ran = kipu.chat("hello", options=("--resume", target))
        assert ran.code == 3
        assert "[session_not_found]" in ran.stderr
        assert "Traceback" not in ran.stderr
    assert kipu.ids() == []


def test_chat_resumes_by_id_title_or_words(kipu: CommandLine) -> None:
    """`--resume` takes a whole id, the end of one, words of the title, or words that were said."""
    kipu.chat("about penguins", "/title Antarctic birds")
    kipu.chat("about camels")
    penguins = next(head for head in kipu.run("ls", "--json").json if head["title"] == "Antarctic birds")["session_id"]
    for target in ((penguins,), (penguins[-8:],), ("antarctic",), ("about", "penguins")):
        before = len(kipu.events(penguins))
        assert kipu.chat("hello again", options=("--resume", *target)).code == 0
        assert len(kipu.events(penguins)) > before
    assert penguins in kipu.chat("and again", options=(f"--resume={penguins}",)).stderr


def test_chat_names_the_candidates_when_several_fit(kipu_sqlite: CommandLine) -> None:
    """When several sessions fit, none is opened and all are named."""
    kipu_sqlite.chat("tea in the morning")
    kipu_sqlite.chat("tea in the evening")
    ran = kipu_sqlite.chat("x", options=("--resume", "tea"))
    assert ran.code == 2
    assert "[session_ambiguous]" in ran.stderr
    assert all(session_id in ran.stderr for session_id in kipu_sqlite.ids())


def test_chat_needs_a_terminal_to_pick_on(kipu_sqlite: CommandLine) -> None:
    """`--resume` alone, without a terminal, says what to do instead of waiting."""
    ran = kipu_sqlite.chat("x", options=("--resume",))
    assert (ran.code, "[input]" in ran.stderr) == (2, True)


def test_chat_refuses_contradicting_options(kipu_sqlite: CommandLine) -> None:
    """`--new --continue`, and words without `--resume`, are usage errors."""
    assert kipu_sqlite.chat(options=("--new", "--continue")).code == 2
    assert kipu_sqlite.chat(options=("hello there",)).code == 2


def test_chat_forks_switches_and_rewinds(kipu: CommandLine) -> None:
    """In one chat: fork, go on there, rewind it, switch back; the parent keeps its history and sees nothing of it (B4, C11)."""
    ran = kipu.chat(
        "the code word is heron", "/fork side", "forget birds", "/rewind", "how many messages?", "/sessions", "/switch 2",
        "what did I say about heron?", "what did I say about birds?",
    )  # fmt: skip
    assert ran.code == 0
    assert "my window holds 3 messages" in ran.stdout
    assert "the code word is heron" in ran.stdout
    assert "you said nothing about birds" in ran.stdout
    heads = {head["title"]: head for head in kipu.run("ls", "--json").json}
    parent, child = heads[None], heads["side"]
    assert (child["forked_from"], child["base_seq"]) == (parent["session_id"], 8)
    assert child["key"] == parent["key"] == "cli:default"
    assert "rewind" in types(kipu.events(child["session_id"]))
    assert "rewind" not in types(kipu.events(parent["session_id"]))


def test_chat_continues_the_fork_it_was_in(kipu_sqlite: CommandLine) -> None:
    """After a fork, `--continue` goes on with the fork, for it was used last."""
    kipu_sqlite.chat("hello", "/fork side", "in the fork")
    fork = next(head["session_id"] for head in kipu_sqlite.run("ls", "--json").json if head["title"] == "side")
    ran = kipu_sqlite.chat("more", options=("--continue",))
    assert fork in ran.stderr


def test_chat_new_begins_another_session(kipu_sqlite: CommandLine) -> None:
    """`/new` leaves the session listable and begins another with the next message."""
    kipu_sqlite.chat("one", "/new", "two", "/new Third", "three")
    titles = [head["display_title"] for head in kipu_sqlite.run("ls", "--json").json]
    assert titles == ["Third", "two", "one"]


def test_chat_shows_window_stats_title_and_model(kipu_sqlite: CommandLine) -> None:
    """`/window`, `/stats`, `/title` and `/model` show what is in force."""
    ran = kipu_sqlite.chat("hello", "/title Greetings", "/title", "/window", "/stats", "/model")
    assert "user: hello" in ran.stdout
    assert "3 messages" in ran.stdout
    assert "nothing was adjusted" in ran.stdout
    assert "Greetings" in ran.stdout.splitlines()
    assert "title: Greetings" in ran.stdout
    assert "demo; change it with /model NAME" in ran.stdout
    assert re.search(r"^types: .*user_message 1", ran.stdout, re.MULTILINE)
    assert "{" not in ran.stdout
    assert "statuses: active 1" in kipu_sqlite.chat("hello", "/stats all").stdout


def test_chat_refuses_a_title_that_is_too_long(kipu_sqlite: CommandLine) -> None:
    """A given title of more than 200 characters is refused before a session is made for it; a fork's own is shortened."""
    for command in ("/new ", "/title "):
        ran = kipu_sqlite.chat(command + "x" * 201)
        assert (ran.code, "[input]" in ran.stderr) == (1, True)
    assert kipu_sqlite.ids() == []
    kipu_sqlite.chat("hello", "/title " + "x" * 200, "/fork")
    titles = {head["title"] for head in kipu_sqlite.run("ls", "--json").json}
    assert titles == {"x" * 200, "x" * 192 + "… (fork)"}


def test_chat_says_what_is_wrong_and_goes_on(kipu_sqlite: CommandLine) -> None:
    """A bad command or model name is said with its code, the chat goes on, and a piped chat ends with 1."""
    ran = kipu_sqlite.chat("/nope", "/rewind", "/switch nowhere", "/model nonsense", "hello", "/rewind x", "/rewind 9")
    assert ran.code == 1
    assert ran.stdout.startswith("demo model, no AI: hello!")
    assert ran.stderr.count("error:") == 6
    assert "[model_name]" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_chat_sends_text_that_begins_with_a_slash(kipu_sqlite: CommandLine) -> None:
    """`//text` is the message `/text`."""
    kipu_sqlite.chat("//etc/hosts is a file")
    assert kipu_sqlite.ids()
    assert kipu_sqlite.run("ls", "--json").json[0]["display_title"] == "/etc/hosts is a file"


def test_chat_gives_programs_one_json_line_per_turn(kipu_sqlite: CommandLine) -> None:
    """With `--json`, stdout is JSON lines only: one per turn and one per command."""
    ran = kipu_sqlite.chat("hello", "/title T", "/sessions", "/stats", "/window", "/help", "bye", options=("--json",))
    assert [line.get("command", "turn") for line in ran.lines] == [
        "turn", "title", "sessions", "stats", "window", "help", "turn",
    ]  # fmt: skip
    first = ran.lines[0]
    assert first["outcome"] == "completed"
    assert first["answer"].startswith("demo model, no AI: hello!")
    assert first["session_id"] == kipu_sqlite.ids()[0]
    assert first["error"] is None


def test_chat_keeps_the_chosen_model_with_the_session(kipu_sqlite: CommandLine) -> None:
    """A model chosen by name is a setting of the session and comes back when it is resumed (B37)."""
    kipu_sqlite.chat("hello", options=("--model", "demo"))
    kipu_sqlite.environment["KIPU_MODEL"] = "openai:never-there"
    ran = kipu_sqlite.chat("and now?", options=("--continue",))
    assert (ran.code, ran.stdout.startswith("demo model")) == (0, True)


def test_chat_shows_control_characters_instead_of_obeying(kipu_sqlite: CommandLine) -> None:
    """Escape sequences in what was said are kept in the log and written out on the screen (situation 65)."""
    ran = kipu_sqlite.chat("\x1b[2J\x07evil")
    assert "\x1b" not in ran.stdout
    assert "\\x1b[2J" in ran.stdout
    assert said(kipu_sqlite) == ["\x1b[2J\x07evil"]


def test_chat_takes_bytes_that_are_no_text(kipu_sqlite: CommandLine) -> None:
    """Piped bytes that are not UTF-8 become the replacement character; the chat goes on."""
    ran = kipu_sqlite.run("chat", stdin=b"caf\xe9 \xff\nhello\n")
    assert ran.code == 0
    assert said(kipu_sqlite) == ["caf\ufffd \ufffd", "hello"]


def test_chat_works_over_memory(kipu_sqlite: CommandLine) -> None:
    """A chat over memory:// answers and leaves nothing behind."""
    ran = kipu_sqlite.chat("hello", options=("--store", "memory://"))
    assert ran.stdout.startswith("demo model")
    assert list(kipu_sqlite.home.iterdir()) == []


def test_chat_answers_what_was_left_waiting_first(kipu_sqlite: CommandLine) -> None:
    """A message that was stored but not answered is said to wait, and is answered before the next one (A39, C5)."""
    import asyncio

    from kipu import UserMessageEvent, open_manager

    async def leave_waiting() -> None:
        async with await open_manager(kipu_sqlite.store) as manager:
            await manager.receive("cli:default", UserMessageEvent(content="what is my name?", channel="cli"))

    asyncio.run(leave_waiting())
    ran = kipu_sqlite.chat("hello", options=("--continue",))
    assert "one message waits" in ran.stderr
    answers = ran.stdout.splitlines()
    assert "my window you said nothing about name" in answers[0]
    assert answers[1].startswith("demo model, no AI: hello!")


def test_chat_in_a_pipe_ends_with_130_on_ctrl_c(kipu_sqlite: CommandLine) -> None:
    """Ctrl-C ends a piped chat at once, while it waits for a line or just after an answer, with 130 and no traceback."""
    import signal
    import subprocess

    chat = subprocess.Popen(
        [*KIPU, "chat"], env=kipu_sqlite.process_environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.write("hello\n")
    chat.stdin.flush()
    assert chat.stdout.readline().startswith("demo model")
    chat.send_signal(signal.SIGINT)
    _, said = chat.communicate(timeout=60)
    assert chat.returncode == 130
    assert "Traceback" not in said
    assert kipu_sqlite.events(kipu_sqlite.ids()[0])[-1]["event_type"] == "turn_finished"
