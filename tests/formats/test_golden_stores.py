"""Golden stores: what any released version kept on disk still opens, whole (C18)."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kipu.errors import NewerFormatError
from kipu.events.conversation import ToolResultEvent, UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.security.key_file import key_line
from kipu.wiring import open_manager

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = {"sqlite-v1.db": "sqlite:///{}", "jsonl-v1": "jsonl:///{}"}
SEALED = {"sealed-v1/sessions.db": "sqlite:///{}", "sealed-v1/sessions": "jsonl:///{}"}
SEALED_KEY = bytes(range(32))
KINDS = [
    "session_init", "instruction", "user_message", "turn_started", "agent_message", "tool_call", "tool_result",
    "agent_message", "turn_finished", "from_elsewhere", "event_pinned", "user_message", "rewind", "metadata_changed",
]  # fmt: skip


class DayAfter:
    """The day after the golden stores were made: what is kept for a while is still kept."""

    def now_us(self) -> int:
        return 1_780_086_400_000_000


@pytest.fixture(params=sorted({**VERSIONS, **SEALED}))
async def golden(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SessionManager]:
    """Return a manager over a copy of a golden store; the sealed ones find their key in the environment."""
    source, copy = GOLDEN / request.param, tmp_path / Path(request.param).name
    if source.is_dir():
        shutil.copytree(source, copy)
    else:
        shutil.copy(source, copy)
    if request.param in SEALED:
        shutil.copy(f"{source}.keys", f"{copy}.keys")
        monkeypatch.setenv("KIPU_GOLDEN_KEY", key_line(SEALED_KEY).strip())
        monkeypatch.setenv("KIPU_KEY", "env:KIPU_GOLDEN_KEY")
    manager = await open_manager({**VERSIONS, **SEALED}[request.param].format(copy), clock=DayAfter())
    yield manager
    await manager.close()


async def test_golden_store_opens_with_everything_it_kept(golden: SessionManager) -> None:
    """A store of format 1 has its events, window, blob, pins, metadata, fork, binding, status and search (C18, B9)."""
    session = await golden.get_or_create("telegram:42")
    events = await session.get_full_history()
    assert [event.event_type for event in events] == KINDS
    assert [event.seq for event in events] == list(range(1, 15))
    assert (session.title, session.metadata["vars"], session.head.tags, session.head.pins) == (
        "Golden",
        {"n": 1},
        ("kept",),
        (5,),
    )
    result = events[6]
    assert isinstance(result, ToolResultEvent)
    assert result.blob is not None
    whole = await session.blob(result.blob.digest)
    assert hashlib.sha256(whole).hexdigest() == result.blob.digest
    context = await session.get_context_for_llm()
    assert [message["role"] for message in context] == ["system", "user", "assistant", "tool", "assistant"]
    arguments = json.loads(context[2]["tool_calls"][0]["function"]["arguments"])
    assert arguments == {"code": "a\u2028b"}
    (fork,) = await golden.list_sessions({"forked_from": session.session_id})
    forked = await golden.open(fork)
    assert (await forked.get_context_for_llm())[-1]["content"] == "another way"
    assert await golden.list_sessions({"status": "archived"}) != []
    assert {hit.seq for hit in (await golden.search("悬空", session_id=session.session_id)).items} == {3}
    assert await golden.store.verify() == []


async def test_golden_store_knows_what_it_was_told(golden: SessionManager) -> None:
    """A message delivered before the upgrade is a duplicate after it, and new events follow the old (C4, C18)."""
    message = UserMessageEvent(content="again", channel="telegram", source_message_id="m1", sender_id="u1")
    assert (await golden.receive("telegram:42", message)).duplicate
    session = await golden.get_or_create("telegram:42")
    assert (await session.add_event(UserMessageEvent(content="new"))).seq == 15


def test_every_store_format_has_a_golden_store() -> None:
    """The golden folder holds a store of each kind that keeps files, for each format (C18)."""
    assert {path.name for path in GOLDEN.iterdir()} == {*VERSIONS, "archive-v1", "sealed-v1", "events-v1.jsonl"}
    assert {path.name for path in (GOLDEN / "sealed-v1").iterdir()} == {
        "sessions.db", "sessions.db.keys", "sessions", "sessions.keys"
    }  # fmt: skip


async def test_a_newer_store_is_read_and_not_written(tmp_path: Path) -> None:
    """A folder of a newer format opens for reading, and writing is refused with what to do (C18, situation 71)."""
    folder = tmp_path / "newer"
    shutil.copytree(GOLDEN / "jsonl-v1", folder)
    (folder / "kipu.json").write_text((folder / "kipu.json").read_text().replace(":1", ":999").replace(": 1", ": 999"))
    manager = await open_manager(f"jsonl:///{folder}")
    session = await manager.open((await manager.list_sessions())[0])
    assert await session.get_full_history()
    with pytest.raises(NewerFormatError, match="999"):
        await session.add_event(UserMessageEvent(content="x"))
    await manager.close()
