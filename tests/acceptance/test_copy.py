"""Moving sessions from store to store."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from kipu.errors import CopyMismatchError, SessionErasedError, SessionNotFoundError, StoreUnavailableError
from kipu.events.boundary import GenericEvent, NoteEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import utc_text
from kipu.manager.copying import CopyProgress, CopyReport, copy_store
from kipu.manager.manager import SessionManager
from kipu.manager.replaying import difference
from kipu.ports.head import head_to_json
from kipu.ports.store import EventStore, Outcome, Record, SessionQuery, StoredEvent
from kipu.stores.host import SystemClock, SystemEntropy, this_process_owner
from kipu.wiring import open_store
from tests.servers import fresh_schema, postgres_url

KINDS = ("memory", "sqlite", "jsonl", "postgresql")
Opener = Callable[[str], Awaitable[EventStore]]


def url_of(kind: str, place: Path) -> str:
    if kind == "postgresql":
        return fresh_schema(postgres_url())
    return {"memory": "memory://", "sqlite": f"sqlite:///{place}.db", "jsonl": f"jsonl:///{place}"}[kind]


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    """Return a function that opens a store; all are closed at the end."""
    stores: list[EventStore] = []

    async def open_one(url: str) -> EventStore:
        store = await open_store(url)
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        await store.close()


def manager_of(store: EventStore) -> SessionManager:
    return SessionManager(store, clock=SystemClock(), entropy=SystemEntropy(), owner=this_process_owner("test"))


async def fill(store: EventStore) -> dict[str, str]:
    """Make sessions of every kind and return their ids by name."""
    manager = manager_of(store)
    chat = await manager.get_or_create("telegram:42")
    await chat.add_event(InstructionEvent(content="be brief"))
    async with chat.turn() as turn:
        await turn.add_events(
            [
                AgentMessageEvent(content="looking"),
                ToolCallEvent(tool_name="ls", tool_call_id="c1", tool_input={"a": 1}),
            ]
        )
        await turn.add_event(ToolResultEvent(tool_call_id="c1", result="x" * 100_000))
    await chat.add_event(UserMessageEvent(content="line \u2028 separator, 日本語, \u0085 and \\u2028"))
    await chat.pin(2)
    await chat.pin(2, on=False)
    await chat.pin(3)
    await chat.set_metadata(title="A chat", topic="files", tags=["a"])
    await chat.add_event(
        GenericEvent.model_validate({"event_type": "telepathy", "strength": 7, "nested": {"kept": [1, None]}})
    )
    await manager.add_alias("telegram:42;scope=group", "telegram:42")
    fork = await chat.fork(4)
    await fork.add_event(UserMessageEvent(content="another way"))
    grandchild = await fork.fork()
    await grandchild.add_event(UserMessageEvent(content="deeper"))
    old = await manager.get_or_create("cli:p")
    await old.add_event(UserMessageEvent(content="first"))
    new = await manager.new_session("cli:p")
    waiting = await manager.receive("slack:C1", UserMessageEvent(content="answer me", source_message_id="m1"))
    names = {"chat": chat, "fork": fork, "grandchild": grandchild, "old": old, "new": new}
    return {**{name: session.session_id for name, session in names.items()}, "waiting": waiting.session_id}


async def whole(store: EventStore, session_id: str) -> list[StoredEvent]:
    head = await store.head(session_id)
    assert head is not None
    events: list[StoredEvent] = []
    while events == [] or events[-1].seq < head.last_seq:
        events += await store.read(session_id, after=events[-1].seq if events else 0)
    return events


async def assert_same(source: EventStore, target: EventStore) -> int:
    """Assert that the target has what the source has, and return how many sessions that is."""
    page = await source.list(SessionQuery(limit=1000))
    for head in page.items:
        there = await target.head(head.session_id)
        assert there is not None
        assert difference(head_to_json(head), head_to_json(there)) is None
        assert there.last_seq == head.last_seq
        assert await whole(target, head.session_id) == await whole(source, head.session_id)
        digests = await source.blobs(head.session_id)
        assert await target.blobs(head.session_id) == digests
        for digest in digests:
            assert await target.get_blob(head.session_id, digest) == await source.get_blob(head.session_id, digest)
    assert len((await target.list(SessionQuery(limit=1000))).items) == len(page.items)
    return len(page.items)


async def copied(source: EventStore, target: EventStore, **settings: Any) -> CopyReport:
    return await copy_store(source, target, owner=this_process_owner("copy"), **settings)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(KINDS, KINDS)))
async def test_copy_moves_everything_in_every_direction(tmp_path: Path, opened: Opener, left: str, right: str) -> None:
    """Events, heads, keys, aliases, blobs and forks are the same in the target, whatever both are (C22, A21)."""
    source, target = await opened(url_of(left, tmp_path / "a")), await opened(url_of(right, tmp_path / "b"))
    names = await fill(source)
    report = await copied(source, target)
    assert await assert_same(source, target) == report.sessions == len(names)
    assert (report.skipped, report.notes, report.lost, report.unchanged) == ((), (), 0, 0)
    keys = {
        "telegram:42": names["chat"],
        "telegram:42;scope=group": names["chat"],
        "cli:p": names["new"],
        "slack:C1": names["waiting"],
    }
    assert {key: await target.resolve(key) for key in keys} == keys
    assert report.bindings == len(keys)
    manager = manager_of(target)
    grandchild = await manager.open(names["grandchild"])
    texts = [message["content"] for message in await grandchild.get_context_for_llm() if message["role"] == "user"]
    assert texts[-2:] == ["another way", "deeper"]
    due = await target.runnable(now="9999", limit=10)
    assert [head.session_id for head in due] == [names["waiting"]]


@pytest.mark.parametrize("kind", KINDS)
async def test_copy_run_again_adds_only_what_is_new(tmp_path: Path, opened: Opener, kind: str) -> None:
    """A second copy changes nothing; after new events it adds those, moves the keys that moved, and copies new sessions."""
    source, target = await opened(url_of(kind, tmp_path / "a")), await opened(url_of(kind, tmp_path / "b"))
    names = await fill(source)
    first = await copied(source, target)
    again = await copied(source, target)
    assert (again.events, again.blobs, again.bindings, again.unchanged) == (0, 0, 0, first.sessions)
    manager = manager_of(source)
    chat = await manager.open(names["chat"])
    await chat.add_events([UserMessageEvent(content=f"more {number}") for number in range(3)])
    fresh = await manager.new_session("cli:p")
    third = await copied(source, target)
    expired = 1  # the session that /new left says so
    assert (third.events, third.bindings) == (3 + 1 + expired, 1)
    assert await target.resolve("cli:p") == fresh.session_id
    await assert_same(source, target)


async def test_copy_leaves_a_session_alone_that_the_target_has_otherwise(tmp_path: Path, opened: Opener) -> None:
    """Other events under the same id are a mismatch, nothing of theirs is changed, and the others are copied."""
    source, target = await opened(url_of("sqlite", tmp_path / "a")), await opened("memory://")
    names = await fill(source)
    theirs = manager_of(target)
    await theirs.create_session(names["old"])
    await theirs.save_event(names["old"], UserMessageEvent(content="mine"))
    before = await whole(target, names["old"])
    with pytest.raises(CopyMismatchError) as caught:
        await copied(source, target)
    report: CopyReport = caught.value.report
    assert [(skipped.session_id, skipped.code) for skipped in report.skipped] == [(names["old"], "copy_mismatch")]
    assert report.sessions == len(names) - 1
    assert await whole(target, names["old"]) == before


async def test_copy_stops_where_the_target_went_on_by_itself(opened: Opener) -> None:
    """A session that was used in the target since is not written to from the source."""
    source, target = await opened("memory://"), await opened("memory://")
    names = await fill(source)
    await copied(source, target)
    await manager_of(target).save_event(names["chat"], UserMessageEvent(content="used here"))
    with pytest.raises(CopyMismatchError, match="events of its own"):
        await copied(source, target)
    await manager_of(source).save_event(names["chat"], UserMessageEvent(content="used there"))
    with pytest.raises(CopyMismatchError, match="another event_id"):
        await copied(source, target)


async def test_copy_does_not_bring_back_what_the_target_erased(opened: Opener) -> None:
    """A tombstone in the target stands, and one in the source is carried over: no id is used again by a move (C20, C22)."""
    source, target = await opened("memory://"), await opened("memory://")
    names = await fill(source)
    await manager_of(target).create_session(names["old"])
    await manager_of(target).delete_session(names["old"])
    await manager_of(source).delete_session(names["new"])
    report = await copied(source, target)
    assert [(skipped.session_id, skipped.code) for skipped in report.skipped] == [(names["old"], "session_erased")]
    assert await target.head(names["old"]) is None
    assert names["new"] in {each.session_id for each in await target.tombstones()}
    with pytest.raises(SessionErasedError):
        await manager_of(target).create_session(names["new"])
    assert (await copied(source, target)).erased == 0


async def test_copy_leaves_a_session_alone_that_was_erased_in_the_source(opened: Opener) -> None:
    """A session of the target whose id was erased in the source stays, and the report says what to do (C20)."""
    source, target = await opened("memory://"), await opened("memory://")
    names = await fill(source)
    await copied(source, target)
    await manager_of(source).delete_session(names["new"])
    report = await copied(source, target)
    assert await target.head(names["new"]) is not None
    assert report.notes == (f"session {names['new']} was erased in the source and is in the target; erase it there",)


async def test_copy_of_a_fork_takes_its_parents(opened: Opener) -> None:
    """Named sessions come with those they were forked from, and nothing else; an unknown one is an error (C11)."""
    source, target = await opened("memory://"), await opened("memory://")
    names = await fill(source)
    report = await copied(source, target, sessions=[names["grandchild"]])
    listed = {head.session_id for head in (await target.list(SessionQuery())).items}
    assert listed == {names["chat"], names["fork"], names["grandchild"]}
    assert report.sessions == 3
    with pytest.raises(SessionNotFoundError):
        await copied(source, target, sessions=["nobody"])


async def test_copy_leaves_keys_that_the_target_has_given_away(opened: Opener) -> None:
    """A key that leads to a session of the target's own stays there, and the report says so (A20)."""
    source, target = await opened("memory://"), await opened("memory://")
    await fill(source)
    own = await manager_of(target).get_or_create("telegram:42")
    report = await copied(source, target)
    assert await target.resolve("telegram:42") == own.session_id
    assert [note for note in report.notes if "telegram:42" in note and own.session_id in note]
    assert report.skipped == ()


async def test_copy_takes_events_that_do_not_validate(opened: Opener) -> None:
    """An event of a known type with a body that this version cannot read is copied byte for byte like the others (B15, EV-9)."""
    source, target = await opened("memory://"), await opened("memory://")
    manager = manager_of(source)
    session_id = await manager.create_session("odd")
    for event_type in ("user_message", "turn_started", "metadata_changed", "rewind"):
        record = Record(f"id-{event_type}", event_type, "2026-01-01T00:00:00.000000Z", b'{"content":17,"to_seq":"x"}')
        await source.append(session_id, [record])
    report = await copied(source, target)
    assert (report.skipped, report.events) == ((), 5)
    await assert_same(source, target)


class Between:
    """A store that lets something else happen to it before an append."""

    def __init__(self, store: EventStore, happen: Callable[[str, Any, dict[str, Any]], Awaitable[None]]) -> None:
        self._store = store
        self._happen = happen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, session_id: str, records: Any, **settings: Any) -> Any:
        await self._happen(session_id, records, settings)
        return await self._store.append(session_id, records, **settings)


async def long_session(store: EventStore) -> str:
    manager = manager_of(store)
    session_id = await manager.create_session("long")
    events = [NoteEvent(kind="n", data={"number": number}) for number in range(300)]
    await (await manager.open(session_id)).add_events([UserMessageEvent(content="?", queued=True), *events])
    return session_id


async def test_copy_never_mixes_with_somebody_elses_events(opened: Opener) -> None:
    """An event that comes to the target in the middle of a copy ends it for that session, and stays the only stranger."""
    source, target = await opened("memory://"), await opened("memory://")
    session_id = await long_session(source)

    appends = itertools.count(1)

    async def arrive(session: str, *_: object) -> None:
        if next(appends) == 3:
            await manager_of(target).save_event(session, UserMessageEvent(content="me too"))

    report = await copied(source, cast("EventStore", Between(target, arrive)))
    assert [skipped.code for skipped in report.skipped] == ["conflict"]
    events, whole_source = await whole(target, session_id), await whole(source, session_id)
    assert events[:-1] == whole_source[: len(events) - 1]
    assert b"me too" in events[-1].record.body


async def test_copy_holds_a_session_until_it_is_whole(opened: Opener) -> None:
    """While a copy is under way nobody can start to work on what is there of a session; afterwards everybody can."""
    source, target = await opened("memory://"), await opened("memory://")
    session_id = await long_session(source)
    refused: list[bool] = []
    appends = itertools.count(1)

    async def claim(session: str, *_: object) -> None:
        if next(appends) > 1:
            refused.append(await target.claim(session, owner="worker", ttl_s=10) is None)
            assert await target.runnable(now=utc_text(datetime.now(UTC)), limit=10) == []

    await copied(source, cast("EventStore", Between(target, claim)))
    assert len(refused) >= 2
    assert all(refused)
    assert await target.claim(session_id, owner="worker", ttl_s=10) is not None


async def test_two_copies_at_once_come_to_one(tmp_path: Path, opened: Opener) -> None:
    """Copies that run at the same time leave nothing doubled; run once more, everything is there."""
    source, target = await opened(url_of("sqlite", tmp_path / "a")), await opened(url_of("sqlite", tmp_path / "b"))
    other = await opened(url_of("sqlite", tmp_path / "b"))
    await fill(source)
    await long_session(source)
    await asyncio.gather(copied(source, target), copied(source, other))
    await copied(source, target)
    await assert_same(source, target)


async def test_copy_tells_how_far_it_is(opened: Opener) -> None:
    """Progress only grows, says from the first how much there is, and ends where everything is done."""
    source, target = await opened("memory://"), await opened("memory://")
    await fill(source)
    told: list[CopyProgress] = []
    report = await copied(source, target, progress=told.append)
    assert all(
        a.events_done <= b.events_done and a.sessions_done <= b.sessions_done for a, b in itertools.pairwise(told)
    )
    assert told[-1] == CopyProgress(report.sessions, report.sessions, report.events, report.events)
    assert {(each.sessions_total, each.events_total) for each in told} == {(report.sessions, report.events)}


async def test_copy_leaves_the_source_files_as_they_are(tmp_path: Path, opened: Opener) -> None:
    """Every file of the source has the same bytes afterwards."""
    writer = await open_store(url_of("jsonl", tmp_path / "a"))
    await fill(writer)
    await writer.close()

    def files() -> dict[str, str]:
        logs = [path for path in (tmp_path / "a").rglob("*") if path.is_file() and "index.sqlite" not in path.name]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in logs}

    before = files()
    source = await opened(url_of("jsonl", tmp_path / "a"))
    await copied(source, await opened("memory://"))
    assert files() == before


async def test_copy_puts_a_placeholder_where_a_record_is_lost(tmp_path: Path, opened: Opener) -> None:
    """A damaged line becomes a `damaged` event with its place and reason; all others are there under their numbers (C16)."""
    url = url_of("jsonl", tmp_path / "a")
    writer = await open_store(url)
    manager = manager_of(writer)
    session_id = await manager.create_session("broken")
    for number in range(2, 12):
        await manager.save_event(session_id, UserMessageEvent(content=f"event {number}"))
    await writer.close()
    segment = next((tmp_path / "a").rglob("000001.jsonl"))
    lines = segment.read_bytes().split(b"\n")
    for index in (0, 4, 5, 10):
        lines[index] = lines[index].replace(b'"event', b'"evXnt', 1)
    segment.write_bytes(b"\n".join(lines))
    source, target = await opened(url), await opened(url_of("sqlite", tmp_path / "b"))
    for _ in range(2):
        report = await copied(source, target)
        events = {stored.seq: stored.record for stored in await whole(target, session_id)}
        lost = {1, 5, 6}
        assert report.lost in {3, 4}  # the last line may count as a torn tail: then it was never there
        assert set(range(1, 11)) <= set(events)
        assert {seq for seq, record in events.items() if record.event_type == "damaged"} >= lost - {1}
        assert events[1].event_type == "session_init"
        assert orjson.loads(events[1].body)["origin"]["beginning"] == "lost"
        told = orjson.loads(events[5].body)
        places = [(damage.reason, damage.where, damage.offset) for damage in await source.verify(session_id)]
        assert (told["reason"], told["detail"]["where"], told["detail"]["offset"]) in places
        assert events[5].timestamp == events[6].timestamp == events[4].timestamp
        assert all(f"event {seq}".encode() in events[seq].body for seq in set(range(2, 11)) - lost)
    there, head = await target.head(session_id), await source.head(session_id)
    assert there is not None
    assert head is not None
    assert difference(head_to_json(head), head_to_json(there), counted=False) is None


_SCRIPT = """
import asyncio, sys
from kipu.manager.copying import copy_store
from kipu.stores.host import this_process_owner
from kipu.wiring import open_store

async def main():
    source, target = await open_store(sys.argv[1]), await open_store(sys.argv[2])
    def tell(done):
        print(done.events_done, flush=True)
    await copy_store(source, target, owner=this_process_owner("copy"), progress=tell)
    print("done", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(("left", "right"), [("sqlite", "jsonl"), ("jsonl", "sqlite")])
async def test_copy_killed_in_the_middle_goes_on(tmp_path: Path, opened: Opener, left: str, right: str) -> None:
    """A copy process killed at any point and run again ends with the same sessions, none doubled, none lost (C16, C22)."""
    urls = [url_of(left, tmp_path / "a"), url_of(right, tmp_path / "b")]
    source = await opened(urls[0])
    await fill(source)
    manager = manager_of(source)
    for number in range(6):
        session_id = await manager.create_session(f"long-{number}")
        await (await manager.open(session_id)).add_events(
            [NoteEvent(kind="n", data={"number": index, "text": "y" * 300}) for index in range(400)]
        )
    kills = 0
    for wanted in (0, 500, 900, 1500, 2100):
        process = subprocess.Popen([sys.executable, "-c", _SCRIPT, *urls], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() != "done" and int(line) >= wanted:
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
                break
        process.stdout.close()
        process.wait()
    assert kills == 5
    target = await opened(urls[1])
    await copied(source, target)
    await assert_same(source, target)


# ---- arrivals -------------------------------------------------------------------------------------------------------


def message(number: int, text: str = "hello") -> UserMessageEvent:
    return UserMessageEvent(content=text, source_message_id=f"m{number}")


async def outcomes_of(store: EventStore) -> dict[str, list[Outcome]]:
    heads = (await store.list(SessionQuery(limit=1000))).items
    return {head.session_id: await store.outcomes(head.session_id) for head in heads}


@pytest.mark.parametrize(("left", "right"), list(itertools.product(KINDS, KINDS)))
async def test_copy_lets_the_target_know_what_arrived(tmp_path: Path, opened: Opener, left: str, right: str) -> None:
    """A message delivered again after the move, also under a key that /new has moved on, is a duplicate there (C4, C22)."""
    source, target = await opened(url_of(left, tmp_path / "a")), await opened(url_of(right, tmp_path / "b"))
    await fill(source)
    before = manager_of(source)
    session = await before.get_or_create("slack:C9")
    first = await before.receive("slack:C9", message(1))
    await session.add_event(NoteEvent(kind="n", data={"between": True}))
    second = await before.receive("slack:C9", message(2))
    await before.new_session("slack:C9")
    third = await before.receive("slack:C9", message(3))
    edited = await before.receive("slack:C9", message(3, "edited"), revision="1")
    await copied(source, target)
    assert await outcomes_of(target) == await outcomes_of(source)
    await assert_same(source, target)
    after = manager_of(target)
    for number, place in ((1, first), (2, second), (3, third)):
        assert await after.receive("slack:C9", message(number)) == place._replace(duplicate=True)
    assert await after.receive("slack:C9", message(3, "edited"), revision="1") == edited._replace(duplicate=True)
    await assert_same(source, target)
    fresh = await after.receive("slack:C9", message(4))
    assert (fresh.duplicate, fresh.session_id, fresh.first_seq) == (False, third.session_id, edited.last_seq + 1)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(KINDS, KINDS)))
async def test_copy_keeps_batches_with_a_key_whole(tmp_path: Path, opened: Opener, left: str, right: str) -> None:
    """A batch with a key is one append in the target, however it lies in what is read at once (C2, C22)."""
    source, target = await opened(url_of(left, tmp_path / "a")), await opened(url_of(right, tmp_path / "b"))
    manager = manager_of(source)
    session = await manager.open(await manager.create_session("batches"))
    sizes = [3, 70, 1, 700, 1, 1, 1100]
    for number, size in enumerate(sizes):
        notes = [NoteEvent(kind="n", data={"number": index}) for index in range(size)]
        await session.append(notes, idempotency_key=f"batch {number}" if number != 2 else None)
    sizes_written: dict[str, int] = {}

    async def see(_: str, records: Any, settings: dict[str, Any]) -> None:
        if settings["idempotency_key"] is not None:
            sizes_written[settings["idempotency_key"]] = len(records)

    await copied(source, cast("EventStore", Between(target, see)))
    assert sizes_written == {f"batch {number}": size for number, size in enumerate(sizes) if number != 2}
    assert await target.outcomes("batches") == await source.outcomes("batches")
    await assert_same(source, target)


@pytest.mark.parametrize("kind", KINDS)
async def test_copy_that_goes_on_takes_keys_with_it(tmp_path: Path, opened: Opener, kind: str) -> None:
    """A copy that stopped anywhere and was run again, and one run again later, leaves every arrival known (C4, C16, C22)."""
    source, target = await opened(url_of(kind, tmp_path / "a")), await opened(url_of(kind, tmp_path / "b"))
    manager = manager_of(source)
    places = [await manager.receive("slack:C9", message(number)) for number in range(5)]
    appends = itertools.count(1)

    async def stop(*_: object) -> None:
        if next(appends) % 2 == 0:
            raise StoreUnavailableError(store="target", reason="it is gone")

    for _ in range(4):
        with contextlib.suppress(StoreUnavailableError):
            await copied(source, cast("EventStore", Between(target, stop)))
    await copied(source, target)
    places.append(await manager.receive("slack:C9", message(5)))
    await copied(source, target)
    assert await outcomes_of(target) == await outcomes_of(source)
    after = manager_of(target)
    for number, place in enumerate(places):
        assert await after.receive("slack:C9", message(number)) == place._replace(duplicate=True)
    await assert_same(source, target)


async def test_copy_says_where_the_target_knew_a_message_before(opened: Opener) -> None:
    """A message that reached the target before its session was copied stays the known one; the history is copied whole (C4)."""
    source, target = await opened("memory://"), await opened("memory://")
    there = await manager_of(source).receive("slack:C9", message(1))
    here = await manager_of(target).receive("slack:C9", message(1))
    report = await copied(source, target)
    assert [note for note in report.notes if f"event {there.first_seq} is in {here.session_id}" in note]
    assert report.skipped == ()
    assert await whole(target, there.session_id) == await whole(source, there.session_id)
    assert await manager_of(target).receive("slack:C9", message(1)) == here._replace(duplicate=True)


@pytest.mark.parametrize("kind", KINDS)
async def test_copy_lets_every_key_lead_where_it_leads(tmp_path: Path, opened: Opener, kind: str) -> None:
    """Keys that no event tells of lead to the copied session too; one that moved on does not (C22, A21)."""
    source, target = await opened(url_of(kind, tmp_path / "a")), await opened(url_of(kind, tmp_path / "b"))
    manager = manager_of(source)
    ids = [await manager.create_session(name) for name in ("one", "two")]
    await source.bind("cli:silent", "one")
    await source.bind("cli:moved", "one")
    await source.bind("cli:moved", "two", expected="one")
    report = await copied(source, target)
    assert report.bindings == 2
    assert [await target.keys(session_id) for session_id in ids] == [["cli:silent"], ["cli:moved"]]
