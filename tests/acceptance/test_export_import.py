"""Sessions out of Kipu and into it again."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import ImportFormatError, SessionNotFoundError
from kipu.events.boundary import GenericEvent
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.interop.export_file import write_whole
from kipu.interop.export_jsonl import export_blobs, export_jsonl
from kipu.interop.import_events import import_events
from kipu.interop.report import ImportReport
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.ports.store import SessionQuery, StoredEvent
from kipu.testing.validators import validate
from kipu.wiring import open_manager

Opener = Callable[..., Awaitable[SessionManager]]


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Return a function that opens a manager over a named place of the test's kind of store."""
    opened: dict[str, SessionManager] = {}

    async def open_one(name: str = "store", **settings: Any) -> SessionManager:
        place = tmp_path / name
        url = {"memory": "memory://", "sqlite": f"sqlite:///{place}.db", "jsonl": f"jsonl:///{place}"}[request.param]
        opened[name] = await open_manager(url, **settings)
        return opened[name]

    yield open_one
    for manager in opened.values():
        await manager.close()


@pytest.fixture
async def manager(opener: Opener) -> SessionManager:
    return await opener()


def written(path: Path, *lines: object, raw: bytes = b"") -> Path:
    """Write JSON lines, and bytes behind them, to a file."""
    path.write_bytes(b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines) + raw)
    return path


def plain(number: int, event_type: str = "user_message", *, session: str = "sess-1", **fields: Any) -> dict[str, Any]:
    """Return an event line as a program without Kipu writes it (B10-B14)."""
    fields = fields or {"content": f"hello {number}", "metadata": {"user_id": "u1", "client": "web"}}
    moment = f"2026-01-02T03:04:{number:02d}"
    return {"event_id": f"e{number}", "event_type": event_type, "timestamp": moment, "session_id": session, **fields}


PLAIN = (
    plain(1),
    plain(2, "agent_message", content="let me see", reasoning="thinking", metadata={}),
    plain(3, "tool_call", tool_name="ls", tool_input={"path": "."}, tool_call_id="c1"),
    plain(4, "tool_result", tool_call_id="c1", result={"files": ["a", "b"]}, is_error=False, error_info=None),
    plain(5, "agent_message", content="two files"),
    plain(6, "mood_changed", mood="好", strength=0.5, nested={"none": None}),
)


async def whole(manager: SessionManager, session_id: str) -> list[StoredEvent]:
    return [stored async for stored in (await manager.open(session_id)).records()]


async def exported(session: Session, path: Path, **settings: Any) -> Path:
    await write_whole(path, export_jsonl(session, **settings))
    return path


def balanced(report: ImportReport) -> bool:
    return report.records == report.imported + report.raw + report.quarantined


async def rich(manager: SessionManager) -> Session:
    """Return a session with a turn, a big result, a picture, an unknown type and odd characters."""
    session = await manager.get_or_create("telegram:42")
    async with session.turn() as turn:
        await turn.add_events(
            [AgentMessageEvent(content="looking"), ToolCallEvent(tool_name="cat", tool_call_id="c1", tool_input={})]
        )
        await turn.add_event(ToolResultEvent(tool_call_id="c1", result="line\n" * 20_000))
    picture = base64.b64encode(b"\x89PNG" + bytes(40_000)).decode()
    await session.add_event(
        UserMessageEvent.model_validate(
            {
                "content": [
                    {"type": "text", "text": "see\u2028 \u0085"},
                    {"type": "media", "media_type": "image/png", "data": picture},
                ]
            }
        )
    )
    await session.add_event(
        GenericEvent.model_validate(
            {"event_type": "telepathy", "strength": 7, "nested": {"kept": [1, None, float("nan")]}}
        )
    )
    await session.set_metadata(title="A title", topic="x", tags=["t"])
    return session


async def test_export_comes_back_as_it_was(opener: Opener, tmp_path: Path) -> None:
    """Ids, times, types, numbers, unknown fields, order and blobs are the same after export and import (B9, B29, C23)."""
    first, second = await opener("a"), await opener("b")
    session = await rich(first)
    path = await exported(session, tmp_path / "out.jsonl", inline_blobs=True)
    report = await import_events(second, path)
    assert (report.raw, report.quarantined, report.records) == (0, 0, session.head.last_seq)
    assert report.sessions[0].session_id == session.session_id
    before, after = await whole(first, session.session_id), await whole(second, session.session_id)
    assert [event.record[:3] for event in after] == [event.record[:3] for event in before]
    assert [event.seq for event in after] == [event.seq for event in before]
    assert [json.loads(event.record.body) for event in after[1:]] == [
        json.loads(event.record.body) for event in before[1:]
    ]
    assert [event.record.tokens for event in after] == [event.record.tokens for event in before]
    copy = await second.open(session.session_id)
    for digest in await first.store.blobs(session.session_id):
        assert await copy.blob(digest) == await session.blob(digest)
    assert await copy.get_context_for_llm() == await session.get_context_for_llm()
    assert (copy.title, copy.head.tags) == ("A title", ("t",))
    assert copy.head.origin is not None
    assert copy.head.origin["digest"] == report.digest
    again = await exported(copy, tmp_path / "again.jsonl", inline_blobs=True)
    assert path.read_bytes().split(b"\n")[1:] == again.read_bytes().split(b"\n")[1:]


async def test_export_keeps_one_event_on_one_line(manager: SessionManager, tmp_path: Path) -> None:
    """Lines are lines for every reader, whatever separators stand in the text (B8, situation 9)."""
    session = await rich(manager)
    path = await exported(session, tmp_path / "out.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == session.head.last_seq
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == list(range(1, len(lines) + 1))
    assert all({"event_id", "event_type", "timestamp", "session_id"} <= set(event) for event in events)


async def test_blobs_beside_the_export_are_found_again(opener: Opener, tmp_path: Path) -> None:
    """Blobs written beside come back with the import; one that is not what its name says is left out (EV-12)."""
    first, second = await opener("a"), await opener("b")
    session = await rich(first)
    path = await exported(session, tmp_path / "out.jsonl")
    assert b"inline_blobs" not in path.read_bytes()
    assert await export_blobs(session, directory=tmp_path / "out.jsonl.blobs") == 2
    digests = await first.store.blobs(session.session_id)
    (tmp_path / "out.jsonl.blobs" / digests[0]).write_bytes(b"something else")
    await import_events(second, path)
    assert await second.store.blobs(session.session_id) == digests[1:]


async def test_plain_event_lines_become_a_session(manager: SessionManager, tmp_path: Path) -> None:
    """Events as the format describes them are read without seq, checksum or envelope, and render for a model (B10-B14)."""
    report = await import_events(manager, written(tmp_path / "plain.jsonl", *PLAIN))
    assert (report.records, report.imported, report.raw, report.quarantined) == (6, 6, 0, 0)
    session = await manager.open("sess-1")
    events = [event async for event in session.events()]
    assert [event.event_type for event in events] == ["session_init", *(line["event_type"] for line in PLAIN)]
    assert [event.event_id for event in events[1:]] == [line["event_id"] for line in PLAIN]
    assert [event.timestamp.isoformat() for event in events[1:] if event.timestamp] == [
        f"{line['timestamp']}+00:00" for line in PLAIN
    ]
    assert events[6].model_extra == {"mood": "好", "strength": 0.5, "nested": {"none": None}}
    assert events[1].normalised == [{"path": "/timestamp", "kind": "zone", "original": "'2026-01-02T03:04:01'"}]
    messages = await session.get_context_for_llm()
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert validate("openai_chat", {"messages": messages}, may_end_with_model=True) == []
    assert session.head.owner == manager.principal.id


async def test_lines_of_several_sessions_are_told_apart(manager: SessionManager, tmp_path: Path) -> None:
    """Interleaved sessions each get their own lines in order (B7, B38)."""
    lines = [plain(number, session=f"s{number % 3}") for number in range(12)]
    report = await import_events(manager, written(tmp_path / "many.jsonl", *lines))
    assert sorted((session.source_session_id, session.events) for session in report.sessions) == [
        ("s0", 4), ("s1", 4), ("s2", 4),
    ]  # fmt: skip
    for name in ("s0", "s1", "s2"):
        events = await whole(manager, name)
        assert [event.record.event_id for event in events[1:]] == [f"e{n}" for n in range(12) if f"s{n % 3}" == name]


async def test_importing_twice_adds_nothing(opener: Opener, tmp_path: Path) -> None:
    """The same file again, also after a restart, also with lines that have no ids or times, adds no event."""
    manager = await opener()
    bare = [{"event_type": "user_message", "content": f"no id {n % 2}", "session_id": "Bare Name"} for n in range(4)]
    path = written(tmp_path / "plain.jsonl", *PLAIN, *bare, raw=b"not json\n\xff\xfe\n")
    first = await import_events(manager, path)
    assert first.added == 6 + 1 + 4 + 1 + 1  # two beginnings, and the note of the line that is no JSON
    heads = {head.session_id: head.last_seq for head in (await manager.list(SessionQuery())).items}
    path.touch()
    second = await import_events(manager, path)
    assert (second.added, second.records, second.imported) == (0, first.records, first.imported)
    assert {head.session_id: head.last_seq for head in (await manager.list(SessionQuery())).items} == heads
    assert first.quarantine == second.quarantine
    assert second.quarantine is not None
    assert len(second.quarantine.read_bytes().splitlines()) == second.quarantined == 1


async def test_a_file_that_has_grown_is_gone_on_with(manager: SessionManager, tmp_path: Path) -> None:
    """What a longer file has more is added behind what was imported before."""
    await import_events(manager, written(tmp_path / "log.jsonl", *PLAIN[:3]))
    report = await import_events(manager, written(tmp_path / "log.jsonl", *PLAIN))
    assert report.added == 3
    assert [event.record.event_id for event in await whole(manager, "sess-1")][1:] == [
        line["event_id"] for line in PLAIN
    ]


async def test_an_existing_session_is_never_changed(manager: SessionManager, tmp_path: Path) -> None:
    """Other events under an id that exists become a session of their own, once; the first stays as it is (B21, C16)."""
    await manager.create_session("sess-1")
    await manager.save_event("sess-1", UserMessageEvent(content="mine"))
    before = await whole(manager, "sess-1")
    path = written(tmp_path / "plain.jsonl", *PLAIN)
    first = await import_events(manager, path)
    assert await whole(manager, "sess-1") == before
    other = first.sessions[0].session_id
    assert other != "sess-1"
    assert (await manager.open(other)).head.last_seq == 7
    again = await import_events(manager, path)
    assert (again.added, again.sessions[0].session_id) == (0, other)
    session = await manager.open(other)
    await session.add_event(UserMessageEvent(content="I go on here"))
    assert (await import_events(manager, path)).added == 0
    grown = await import_events(manager, written(tmp_path / "plain.jsonl", *PLAIN, plain(7)))
    assert grown.sessions[0].session_id not in {other, "sess-1"}
    assert (await manager.open(grown.sessions[0].session_id)).head.last_seq == 8
    assert (await manager.open(other)).head.last_seq == session.head.last_seq


async def test_an_export_adds_nothing_where_it_came_from(manager: SessionManager, tmp_path: Path) -> None:
    """Importing a session's own export finds every event there; with as_new it becomes another session."""
    session = await rich(manager)
    path = await exported(session, tmp_path / "out.jsonl")
    report = await import_events(manager, path)
    assert (report.added, report.imported) == (0, session.head.last_seq)
    more = plain(9, session=session.session_id, seq=session.head.last_seq + 1, content="forged")
    path.write_bytes(path.read_bytes() + json.dumps(more).encode())
    longer = await import_events(manager, path)
    assert longer.sessions[0].session_id != session.session_id
    assert (await manager.open(session.session_id)).head.last_seq == longer.records - 1
    assert longer.added == longer.records
    path = await exported(session, tmp_path / "out.jsonl")
    fresh = await import_events(manager, path, as_new=True)
    assert fresh.added == session.head.last_seq
    assert fresh.sessions[0].session_id != session.session_id


async def test_a_fork_comes_back_as_a_fork(opener: Opener, tmp_path: Path) -> None:
    """A fork's export brings its parent's shared events, and the fork is joined to them again (C11)."""
    first, second = await opener("a"), await opener("b")
    parent = await rich(first)
    fork = await parent.fork(4)
    await fork.add_event(UserMessageEvent(content="another way"))
    path = await exported(fork, tmp_path / "fork.jsonl")
    report = await import_events(second, path)
    assert balanced(report)
    assert report.raw + report.quarantined == 0
    copy = await second.open(fork.session_id)
    assert (copy.head.forked_from, copy.head.base_seq) == (parent.session_id, 4)
    assert await copy.get_context_for_llm() == await fork.get_context_for_llm()
    third = await opener("c")
    own = [line for line in path.read_bytes().splitlines(keepends=True) if fork.session_id.encode() in line]
    alone = tmp_path / "alone.jsonl"
    alone.write_bytes(b"".join(own[-2:]))
    await import_events(third, alone)
    copy = await third.open(fork.session_id)
    assert (copy.head.forked_from, copy.head.base_seq, copy.head.last_seq) == (None, 4, 6)
    assert [message["content"] for message in await copy.get_context_for_llm()] == ["another way"]


async def test_a_fork_never_goes_further_than_its_parent(manager: SessionManager, tmp_path: Path) -> None:
    """A fork from an event that the parent here does not have yet shares nothing of what is said there later (C11, C19)."""
    eve = Principal("eve")
    parent = await rich(manager)
    await parent.share("eve", role="viewer")
    init = {
        "seq": 1_001,
        "event_id": "x1",
        "event_type": "session_init",
        "timestamp": "2026-01-01T00:00:00Z",
        "session_id": "ahead",
        "forked_from": {"session_id": parent.session_id, "seq": 1_000},
    }
    await import_events(manager, written(tmp_path / "ahead.jsonl", init), principal=eve)
    await parent.revoke("eve")
    await parent.add_event(UserMessageEvent(content="now that eve is gone"))
    ahead = await manager.open("ahead", principal=eve)
    assert ahead.head.forked_from is None
    assert "now that eve is gone" not in str(await ahead.get_full_history(principal=eve))


async def test_an_import_cannot_reach_another_persons_sessions(manager: SessionManager, tmp_path: Path) -> None:
    """A file owns nothing by saying so: not a session, not a parent to read from, not a tenant, not a lease (A20, C19)."""
    eve = Principal("eve")
    session = await rich(manager)
    init = {
        "seq": 5,
        "event_id": "x1",
        "event_type": "session_init",
        "timestamp": "2026-01-01T00:00:00Z",
        "session_id": "stolen",
        "owner": "local",
        "tenant": "other",
        "forked_from": {"session_id": session.session_id, "seq": 4},
        "inherited": {
            "owner": "local",
            "lease_owner": "me",
            "lease_until": "9999",
            "status": "trashed",
            "waiting": [1],
        },
    }
    path = written(tmp_path / "evil.jsonl", init, plain(6, session=session.session_id))
    report = await import_events(manager, path, principal=eve)
    ids = {item.source_session_id: item.session_id for item in report.sessions}
    stolen = await manager.open(ids["stolen"], principal=eve)
    assert (stolen.head.forked_from, stolen.head.owner, stolen.head.tenant) == (None, "eve", "")
    assert (stolen.head.lease_owner, stolen.head.status, stolen.head.waiting) == (None, "active", ())
    assert await stolen.get_context_for_llm(principal=eve) == []
    assert ids[session.session_id] != session.session_id
    with pytest.raises(SessionNotFoundError):
        await manager.open(session.session_id, principal=eve)
    report = await import_events(manager, await exported(session, tmp_path / "copy.jsonl"), principal=eve)
    assert report.sessions[0].session_id not in ids.values()
    assert report.added == report.imported == session.head.last_seq


def test_utf16_is_said_to_be_what_it_is(tmp_path: Path) -> None:
    """A file in UTF-16 is refused by name, not taken apart into nonsense."""
    from kipu.interop.source_line import SourceFile

    path = tmp_path / "wide.jsonl"
    path.write_bytes('{"event_type":"note"}\n'.encode("utf-16"))
    with pytest.raises(ImportFormatError, match="UTF-16"):
        SourceFile(path)


async def test_store_segments_are_read(opener: Opener, tmp_path: Path) -> None:
    """The lines of Kipu's own JSONL store import as the events they hold, without the store's own fields (C18, C23)."""
    writer = await open_manager(f"jsonl:///{tmp_path}/files")
    session = await rich(writer)
    before = await whole(writer, session.session_id)
    await writer.close()
    segment = next((tmp_path / "files").rglob("000001.jsonl"))
    data = segment.read_bytes()
    manager = await opener()
    report = await import_events(manager, segment, quarantine=tmp_path / "q.jsonl")
    assert (report.raw, report.quarantined) == (0, 0)
    after = await whole(manager, session.session_id)
    assert [event.record[:4] for event in after[1:]] == [event.record[:4] for event in before[1:]]
    flipped = tmp_path / "flipped.jsonl"
    flipped.write_bytes(data.replace(b"looking", b"lookinG", 1))
    other = await opener("other")
    report = await import_events(other, flipped)
    assert (report.raw, report.imported) == (1, len(before) - 1)
    assert [problem.reason for problem in report.problems] == ["its checksum is wrong"]
    assert [event.seq for event in await whole(other, session.session_id)] == [event.seq for event in before]
