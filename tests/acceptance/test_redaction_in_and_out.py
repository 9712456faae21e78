"""What comes in from files and goes out to files loses its secrets, and what is stored already is found."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kipu.events.content import TextPart
from kipu.events.conversation import AgentMessageEvent, ToolResultEvent, UserMessageEvent
from kipu.interop.import_events import import_events
from kipu.wiring import open_manager, open_redactor
from tests.unit.cli.command_line import CommandLine

KNOWN = "zebra-Quartz-77-lantern"
TOKEN = "ghp_" + "Zk3vQ8mW1xT6yB9nC4rL7pD2sF5gH0jAbXeU"
BIG = "word " * 9_000 + TOKEN + " word" * 9_000


async def old_session(url: str) -> str:
    """Write a session with secrets in it, as one was before they were taken out."""
    async with await open_manager(url) as manager:
        session = await manager.open(await manager.create_session(title=f"deploy {TOKEN}"))
        await session.add_events(
            [
                UserMessageEvent(content=f"key {TOKEN}"),
                AgentMessageEvent(content=[TextPart(text=f"uses {TOKEN} & <b>")], reasoning=f"think {TOKEN}"),
                ToolResultEvent(tool_call_id="c1", result=BIG),
            ]
        )
        return session.session_id


def bytes_below(folder: Path) -> bytes:
    """Return everything that is in any file."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("ending", ["jsonl", "md", "html"])
async def test_export_leaves_secrets_out_unless_told_otherwise(tmp_path: Path, ending: str) -> None:
    """No form of export holds a secret that was stored before; `--no-redact` gives what is stored (C21)."""
    line = CommandLine(tmp_path, f"sqlite:///{tmp_path}/s.db")
    session_id = await old_session(line.store)
    for name, more in (("clean", ()), ("raw", ("--no-redact",))):
        folder = tmp_path / name
        folder.mkdir()
        ran = await asyncio.to_thread(
            line.run, "export", session_id, "-o", str(folder / f"a.{ending}"), "--blobs", str(folder / "blobs"), *more
        )
        assert ran.code == 0, ran.stderr
    assert TOKEN.encode() not in bytes_below(tmp_path / "clean")
    assert b"[redacted:github-token]" in bytes_below(tmp_path / "clean")
    assert TOKEN.encode() in bytes_below(tmp_path / "raw")


async def test_redacted_export_is_imported_whole(tmp_path: Path) -> None:
    """Events name the blobs that go with them by what these are without secrets, so an import finds them (C21, B41)."""
    line = CommandLine(tmp_path, f"sqlite:///{tmp_path}/s.db")
    session_id = await old_session(line.store)
    file, blobs = tmp_path / "a.jsonl", tmp_path / "blobs"
    ran = await asyncio.to_thread(line.run, "export", session_id, "-o", str(file), "--blobs", str(blobs))
    assert ran.code == 0
    async with await open_manager("memory://") as manager:
        await import_events(manager, file, blobs=blobs)
        session = await manager.open(session_id)
        (result,) = [event for event in await session.get_full_history() if isinstance(event, ToolResultEvent)]
        assert result.blob is not None
        whole = (await session.blob(result.blob.digest)).decode()
    assert "word [redacted:github-token] word" in whole
    noted = [json.loads(text).get("normalised") for text in file.read_text().splitlines()]
    assert any(note["rule"] == "github-token" for notes in noted for note in notes or () if note["kind"] == "redacted")


async def test_import_takes_secrets_out_and_adds_nothing_twice(tmp_path: Path) -> None:
    """Lines, blobs beside them and unreadable text lose their secrets on the way in; the same file again adds nothing (C21, B39)."""
    source = CommandLine(tmp_path, f"sqlite:///{tmp_path}/old.db")
    session_id = await old_session(source.store)
    file, blobs = tmp_path / "a.jsonl", tmp_path / "blobs"
    ran = await asyncio.to_thread(
        source.run, "export", session_id, "--no-redact", "-o", str(file), "--blobs", str(blobs)
    )
    assert ran.code == 0
    with file.open("a") as lines:
        lines.write(
            json.dumps({"event_type": "user_message", "content": f"b {KNOWN}", "session_id": session_id}) + "\n"
        )
        lines.write(f"no json, but {KNOWN}\n")
    target = tmp_path / "new"
    async with await open_manager(f"jsonl:///{target}", redactor=open_redactor(known=[KNOWN])) as manager:
        first = await import_events(manager, file, blobs=blobs)
        again = await import_events(manager, file, blobs=blobs)
        session = await manager.open(session_id)
        (result,) = [event for event in await session.get_full_history() if isinstance(event, ToolResultEvent)]
        assert result.blob is not None
        assert "word [redacted:github-token] word" in (await session.blob(result.blob.digest)).decode()
        assert session.title == "deploy [redacted:github-token]"
    assert first.added > 0
    assert again.added == 0
    assert TOKEN.encode() not in bytes_below(target)
    assert KNOWN.encode() not in bytes_below(target)


async def test_scan_names_the_event_of_a_blob_and_what_can_be_done(tmp_path: Path) -> None:
    """A secret in a big result is found at its event; people are told how to go on; nothing shows the secret (C21)."""
    line = CommandLine(tmp_path, f"sqlite:///{tmp_path}/s.db")
    session_id = await old_session(line.store)
    ran = await asyncio.to_thread(line.run, "scan", "--json")
    assert ran.code == 1
    blobs = [row for row in ran.json["found"] if row["event_type"] == "blob"]
    assert [(row["session_id"], row["seq"], row["rule"]) for row in blobs] == [(session_id, 4, "github-token")]
    told = await asyncio.to_thread(line.run, "scan")
    assert told.code == 1
    assert "kipu erase" in told.stderr
    assert TOKEN not in told.stdout + told.stderr + ran.stdout


async def test_scan_knows_the_secrets_of_the_configuration(tmp_path: Path) -> None:
    """Scanning looks also for what the configuration names as secret, and for one's own patterns (C21, B57)."""
    line = CommandLine(tmp_path, f"sqlite:///{tmp_path}/s.db")
    async with await open_manager(line.store) as manager:
        session = await manager.open(await manager.create_session())
        await session.add_event(UserMessageEvent(content="the tool said plain-words-0nly and ACME-1234"))
    assert (await asyncio.to_thread(line.run, "scan")).code == 0
    config = tmp_path / ".config" / "kipu" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        '[credentials.tool]\nKEY = "plain-words-0nly"\n[redaction_rules.patterns]\nticket = "ACME-[0-9]+"\n'
    )
    ran = await asyncio.to_thread(line.run, "scan", "--json")
    assert ran.code == 1
    assert {row["rule"] for row in ran.json["found"]} == {"known-secret", "ticket"}
