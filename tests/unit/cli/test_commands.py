"""The commands on sessions, over SQLite and JSONL files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.command_line import CommandLine


def talk(kipu: CommandLine, *lines: str) -> str:
    """Chat in a new session and return its id."""
    assert kipu.chat(*lines).code == 0
    return kipu.ids()[0]


def test_ls_lists_the_newest_first(kipu: CommandLine) -> None:
    """`ls --json` is a list of objects with `session_id`, the most recently active first; piped text is one line each."""
    first, second = talk(kipu, "one"), talk(kipu, "two")
    listed = kipu.run("ls", "--json").json
    assert [head["session_id"] for head in listed] == [second, first]
    lines = kipu.run("ls").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == [second, first]
    assert [line.split("\t")[-1] for line in lines] == ["two", "one"]
    assert len(kipu.run("ls", "-n", "1", "--json").json) == 1


def test_ls_of_an_empty_store_is_an_empty_list(kipu: CommandLine) -> None:
    """No session is no error: JSON is an empty list, and the hint goes to stderr."""
    kipu.chat()
    ran = kipu.run("ls", "--json")
    assert (ran.code, ran.json) == (0, [])
    assert "kipu chat" in kipu.run("ls").stderr


def test_ls_filters(kipu: CommandLine) -> None:
    """Sessions are filtered by status, tag, key, setting, activity and pin (B26, B37)."""
    first, second = talk(kipu, "one"), talk(kipu, "two")
    kipu.run("tag", first, "birds", "draft")
    kipu.run("pin", second)
    kipu.chat("three", options=("--project", "other", "--model", "demo"))
    third = kipu.ids()[0]
    for options, expected in {
        ("--tag", "birds"): {first},
        ("--tag", "birds", "--tag", "nothing"): set(),
        ("--key", "cli:other"): {third},
        ("--key", "cli:*"): {first, second, third},
        ("--meta", "model=demo"): {third},
        ("--pinned",): {second},
        ("--status", "expired"): {first},
        ("--since", "2999-01-01T00:00:00Z"): set(),
        ("--before", "2999-01-01T00:00:00Z"): {first, second, third},
    }.items():
        assert {head["session_id"] for head in kipu.run("ls", "--json", *options).json} == expected, options


@pytest.mark.parametrize("options", [("--status", "gone"), ("--since", "yesterday"), ("--meta", "model"), ("-n", "0")])
def test_ls_refuses_filters_that_mean_nothing(kipu_sqlite: CommandLine, options: tuple[str, ...]) -> None:
    """A filter that cannot be read is a usage error, not an empty list."""
    assert kipu_sqlite.run("ls", *options).code == 2


def test_show_gives_facts_and_transcript(kipu: CommandLine) -> None:
    """`show` has facts and what was said; `--events` every event; `--json` the stored fields."""
    session_id = talk(kipu, "hello there")
    shown = kipu.run("show", session_id).stdout
    assert session_id in shown
    assert "hello there" in shown
    assert "demo model, no AI" in shown
    assert "turn_started" in kipu.run("show", session_id, "--events").stdout
    events = kipu.run("show", session_id, "--json", "--last", "2").json["events"]
    assert [(event["seq"], event["event_type"]) for event in events] == [(7, "agent_message"), (8, "turn_finished")]
    assert all(event["timestamp"].endswith("Z") for event in events)


def test_sessions_are_named_by_id_part_or_key(kipu: CommandLine) -> None:
    """A whole id, its unique end or its key name a session; what fits none or several is refused with its own code."""
    first, second = talk(kipu, "one"), talk(kipu, "two")
    assert kipu.run("show", first[-6:], "--json").json["session_id"] == first
    assert kipu.run("show", "cli:default", "--json").json["session_id"] == second
    assert kipu.run("show", "sess_").code == 2
    for unknown in ("sess_zzzz", "x", "cli:none", "a:b:;", "CON", "../x", "x" * 300, "é"):
        ran = kipu.run("show", unknown)
        assert (ran.code, "[session_not_found]" in ran.stderr) == (3, True), unknown


def test_search_finds_words_in_english_and_chinese(kipu: CommandLine) -> None:
    """What was just said is found, two Chinese characters too; what was not said is not."""
    session_id = talk(kipu, "the heron stands in the water", "我喜欢观察水鸟")
    found = kipu.run("search", "heron", "water", "--json").json
    assert {hit["session_id"] for hit in found} == {session_id}
    assert any(hit["event_type"] == "user_message" for hit in found)
    assert "水鸟" in kipu.run("search", "水鸟").stdout
    assert kipu.run("search", "鸟水", "--json").json == []
    assert kipu.run("search", "heron", "--session", session_id, "-n", "1").stdout.count("\n") == 1
    assert kipu.run("search", "?!").code == 2


def test_fork_and_rewind_print_what_they_made(kipu: CommandLine) -> None:
    """`fork` prints the new id, sharing events without copying; `rewind` undoes turns and removes nothing (C11, A26)."""
    parent = talk(kipu, "one", "two")
    child = kipu.run("fork", parent, "--at", "8", "--title", "side").stdout.strip()
    head = kipu.head(child)
    assert (head["forked_from"], head["base_seq"], head["title"]) == (parent, 8, "side")
    assert [event["seq"] for event in head["events"]] == list(range(1, 10))
    before = kipu.events(parent)
    undone = kipu.run("rewind", parent, "--json").json
    assert undone["to_seq"] == 9
    assert kipu.events(parent)[: len(before)] == before
    assert "two" not in kipu.run("window", parent).stdout
    assert kipu.run("rewind", parent, "--turns", "9").code == 2
    assert kipu.run("rewind", parent, "--to", "4").code == 2
    assert kipu.run("fork", parent, "--at", "999").code == 2


def test_labels_change_and_show(kipu: CommandLine) -> None:
    """Titles, tags and pins are changed durably; the answer shows the session as it is now."""
    session_id = talk(kipu, "hello")
    assert kipu.run("rename", session_id, "Greetings", "--json").json["title"] == "Greetings"
    assert kipu.run("rename", session_id, "", "--json").json["display_title"] == "hello"
    assert kipu.run("tag", session_id, "a", "b", "--json").json["tags"] == ["a", "b"]
    assert kipu.run("tag", session_id, "c", "--json", "--", "-a").json["tags"] == ["b", "c"]
    assert kipu.run("pin", session_id, "--json").json["pinned"] is True
    assert kipu.run("pin", session_id, "2", "--json").json["pins"] == [2]
    assert kipu.run("pin", session_id, "2", "--off", "--json").json["pins"] == []
    assert kipu.run("pin", session_id, "99").code == 2


def test_window_shows_what_the_model_is_shown(kipu: CommandLine) -> None:
    """`window` has messages, tokens and adjustments, for every target and under other bounds (C8)."""
    session_id = talk(kipu, "hello", "how many messages?")
    window = kipu.run("window", session_id, "--json").json
    assert [message["role"] for message in window["messages"]] == ["system", *["user", "assistant"] * 2]
    assert window["tokens"] > 0
    assert window["adjustments"] == []
    assert window["policy"] == kipu.run("replay", session_id, "--json").json["window"]["policy"]
    for target in ("openai_chat", "openai_responses", "anthropic", "gemini"):
        assert "hello" in kipu.run("window", session_id, "--target", target, "--json").stdout
        assert "hello" in kipu.run("window", session_id, "--target", target).stdout
    assert "hello" not in kipu.run("window", session_id, "--max-messages", "2").stdout.splitlines()[0]
    assert kipu.run("window", session_id, "--target", "nobody").code == 2


@pytest.mark.parametrize("target", ["neutral", "openai_chat", "openai_responses", "anthropic", "gemini"])
def test_window_shows_the_instruction_once(kipu_sqlite: CommandLine, target: str) -> None:
    """The system prompt is shown once, also where the target keeps it apart from the messages (C8)."""
    import asyncio

    from kipu import InstructionEvent, UserMessageEvent, open_manager

    async def fill() -> None:
        async with await open_manager(kipu_sqlite.store) as manager:
            session = await manager.get_or_create("cli:default")
            await session.add_events([InstructionEvent(content="Be brief."), UserMessageEvent(content="hi")])

    asyncio.run(fill())
    shown = kipu_sqlite.run("window", "cli:default", "--target", target).stdout
    assert (shown.count("Be brief."), shown.count("hi\n")) == (1, 1)


def test_replay_checks_the_digest_of_a_past_call(kipu: CommandLine) -> None:
    """`replay` renders what the model was shown then, not now, and its digest is the recorded one (C6)."""
    session_id = talk(kipu, "hello", "and now?")
    first = kipu.run("replay", session_id, "--turn", "1", "--json").json
    assert first["matches"] is True
    assert first["digest"] == first["window"]["digest"]
    assert [message["content"][0]["text"] for message in first["messages"]][1:] == ["hello"]
    assert "and now?" in kipu.run("replay", session_id).stdout
    assert [each["matches"] for each in kipu.run("replay", session_id, "--all", "--json").json] == [True, True]
    assert kipu.run("replay", session_id, "--turn", "7").code == 2


def test_replay_ends_with_1_when_the_digest_differs(kipu: CommandLine) -> None:
    """A call whose digest the log does not give is an error with its code."""
    session_id = talk(kipu, "hello")
    lines = kipu.run("export", session_id).stdout.splitlines()
    changed = [line.replace('"content":"hello"', '"content":"HELLO"') for line in lines]
    (kipu.home / "changed.jsonl").write_text("\n".join(changed) + "\n")
    other = kipu.run("import", str(kipu.home / "changed.jsonl"), "--as-new").stdout.strip()
    ran = kipu.run("replay", other)
    assert (ran.code, "[replay_mismatch]" in ran.stderr) == (1, True)


def test_trash_hides_and_restore_brings_back(kipu: CommandLine) -> None:
    """Trash takes what other commands take, hides without removing, and can be undone (situation 67a)."""
    session_id = talk(kipu, "hello")
    events = kipu.events(session_id)
    assert kipu.run("trash", session_id[-8:], "--json").json["status"] == "trashed"
    assert f"{session_id} is already trashed" in kipu.run("trash", session_id).stderr
    assert kipu.ids() == []
    assert [head["session_id"] for head in kipu.run("ls", "--status", "trashed", "--json").json] == [session_id]
    assert kipu.run("restore", session_id).code == 0
    assert kipu.ids() == [session_id]
    assert kipu.events(session_id)[: len(events)] == events


def test_erase_removes_for_good(kipu: CommandLine) -> None:
    """Erasing asks first, refuses while forks need the events, and then leaves nothing to be found (B27, B46)."""
    session_id = talk(kipu, "a very secret word")
    child = kipu.run("fork", session_id).stdout.strip()
    assert kipu.run("erase", session_id, stdin="n\n").code == 1
    for text in (child[-8:], "cli:default"):
        ran = kipu.run("erase", text, "--yes")
        assert (ran.code, "whole id" in ran.stderr, "sess_" in ran.stderr) == (2, True, True)
    assert len(kipu.ids()) == 2
    ran = kipu.run("erase", session_id, "--yes")
    assert (ran.code, "[session_forked]" in ran.stderr, child in ran.stderr) == (4, True, True)
    assert kipu.run("erase", session_id, "--yes", "--cascade", "--json").json["erased"] is True
    assert kipu.ids() == []
    assert kipu.run("erase", session_id, "--yes").code == 3
    assert kipu.run("search", "secret", "--json").json == []


def test_stats_count_store_and_session(kipu: CommandLine) -> None:
    """`stats` counts the store from its heads, and a session by its events."""
    session_id = talk(kipu, "hello")
    store = kipu.run("stats", "--json").json
    assert (store["sessions"], store["events"], store["statuses"]) == (1, 8, {"active": 1})
    session = kipu.run("stats", session_id, "--json").json
    assert session["types"]["agent_message"] == 1
    assert session["model_usage"]["output_tokens"] > 0
    assert "durability" in kipu.run("stats").stdout


def test_export_writes_lines_markdown_and_html(kipu: CommandLine) -> None:
    """Exports hold everything that was said; HTML has no scripts, and control characters are not obeyed (situation 65)."""
    session_id = talk(kipu, "<script>alert(1)</script> \x1b[2J")
    lines = [json.loads(line) for line in kipu.run("export", session_id).stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, 9))
    page = kipu.home / "page.html"
    assert kipu.run("export", session_id, "-o", str(page)).code == 0
    text = page.read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text
    assert "\x1b" not in kipu.run("export", session_id, "-f", "markdown").stdout
    record = kipu.run("export", session_id, "-o", str(kipu.home / "s.md"), "--json").json
    assert (record["format"], record["bytes"]) == ("markdown", (kipu.home / "s.md").stat().st_size)


def test_export_of_all_sessions_and_import_elsewhere(kipu: CommandLine) -> None:
    """Every session as one file each; importing them elsewhere gives the same events, and twice adds nothing (B58)."""
    ids = {talk(kipu, "one"), talk(kipu, "two")}
    folder = kipu.home / "out"
    assert len(kipu.run("export", "--all", "-o", str(folder), "--json").json) == 2
    other = CommandLine(kipu.home, f"sqlite:///{kipu.home / 'other.db'}")
    files = sorted(map(str, folder.iterdir()))
    reports = other.run("import", *files, "--json").json
    assert all(report["records"] == report["imported"] == report["added"] for report in reports)
    assert set(other.ids()) == ids
    for session_id in ids:
        assert [event["event_id"] for event in other.events(session_id)] == [
            event["event_id"] for event in kipu.events(session_id)
        ]
    assert [report["added"] for report in other.run("import", *files, "--json").json] == [0, 0]


def test_import_accounts_for_every_line(kipu: CommandLine) -> None:
    """Plain event lines come in without seq or checksum, unknown types are kept, and records add up (B10–B14, B28, B29)."""
    plain = kipu.home / "plain.jsonl"
    stamp = {"timestamp": "2026-01-01T00:00:00Z", "session_id": "given"}
    events = [
        {"event_id": "a", "event_type": "user_message", "content": "hi", "metadata": {"user_id": "u"}, **stamp},
        {"event_id": "b", "event_type": "tool_call", "tool_name": "t", "tool_input": {}, "tool_call_id": "c", **stamp},
        {"event_id": "c", "event_type": "tool_result", "tool_call_id": "c", "result": 1, "is_error": False, **stamp},
        {"event_id": "d", "event_type": "moon_phase", "phase": "full", **stamp},
    ]
    lines = [json.dumps(event).encode() for event in events]
    plain.write_bytes(b"\n".join([lines[0], b"{oops", *lines[1:], b"\xff\xfe\x00\n"]))
    before = plain.read_bytes()
    ran = kipu.run("import", str(plain), "--json")
    report = ran.json
    assert report["records"] == 6 == report["imported"] + report["raw"] + report["quarantined"]
    assert report["imported"] == 4
    assert ran.stderr.count(str(plain)) >= 2
    assert plain.read_bytes() == before
    kept = [event for event in kipu.events("given") if event["event_type"] == "moon_phase"]
    assert kept[0]["phase"] == "full"
    assert kipu.run("import", str(kipu.home / "missing.jsonl")).code == 2


def test_copy_moves_a_store_and_goes_on(kipu: CommandLine) -> None:
    """`copy` makes the other store the same, adds only what is new when run again, and leaves the source alone (C22)."""
    session_id = talk(kipu, "hello")
    target = f"jsonl:///{kipu.home / 'copy'}"
    first = kipu.run("copy", kipu.store, target, "--json").json
    assert (first["sessions"], first["events"], first["skipped"]) == (1, 8, [])
    kipu.chat("more", options=("--continue",))
    assert kipu.run("copy", kipu.store, target, "--json").json["events"] == 5
    copied = CommandLine(kipu.home, target)
    assert copied.events(session_id) == kipu.events(session_id)
    assert copied.run("replay", session_id, "--all").code == 0
    assert kipu.run("copy", kipu.store, kipu.store).code == 2
    assert kipu.run("copy", f"sqlite:///{kipu.home / 'none.db'}", target).code == 3
    assert not (kipu.home / "none.db").exists()


def test_verify_ends_with_1_where_damage_is(tmp_path: Path) -> None:
    """A sound store verifies with 0; a damaged line is reported with its place, and the exit code says so (A53, C16)."""
    kipu = CommandLine(tmp_path, f"jsonl:///{tmp_path / 'files'}")
    session_id = talk(kipu, "hello")
    assert kipu.run("verify", "--json").json["damages"] == []
    segment = tmp_path / "files" / session_id / "000001.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b"hello", b"jello", 1))
    ran = kipu.run("verify", "--json")
    assert ran.code == 1
    assert ran.json["damages"][0]["offset"] is not None
    assert session_id in kipu.run("verify", session_id).stdout


def test_verify_tells_a_store_that_cannot_be_opened_as_damage(tmp_path: Path) -> None:
    """Where nothing can be opened, `verify` says why as a damage; it does not tell to run itself (A53)."""
    kipu = CommandLine(tmp_path, f"jsonl:///{tmp_path / 'files'}")
    session_id = talk(kipu, "hello")
    (tmp_path / "files" / "kipu.json").write_text("{}")
    assert "run `kipu verify`" in kipu.run("ls").stderr
    for words in (("verify",), ("verify", session_id)):
        ran = kipu.run(*words)
        assert (ran.code, "kipu.json" in ran.stdout, "1 damaged" in ran.stderr) == (1, True, True)
        assert "run `kipu verify`" not in ran.stdout + ran.stderr
        assert kipu.run(*words, "--json").json["damages"][0]["reason"] == "unreadable"


def test_conformance_prints_the_matrix(kipu_sqlite: CommandLine) -> None:
    """`conformance` runs numbered requirements against a fresh store of the kind, and ends with 0 when all hold (C25)."""
    report = kipu_sqlite.run("conformance", "sqlite:///unused.db", "-r", "ST-1", "-r", "ST-2", "--json").json
    assert [(finding["id"], finding["outcome"]) for finding in report["findings"]] == [
        ("ST-1", "passed"),
        ("ST-2", "passed"),
    ]
    assert "ST-1" in kipu_sqlite.run("conformance", "memory://", "-r", "ST-1").stdout
    assert kipu_sqlite.run("conformance", "memory://", "-r", "ST-none").code == 2
    assert kipu_sqlite.run("conformance", "nonsense").code == 2
