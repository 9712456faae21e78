"""What a move carries while its source is used, and what it leaves where it is."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kipu.errors import InputError, MoveStoppedError, SessionErasedError, StoreMovedError
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.manager.manager import SessionManager
from kipu.manager.moving import StoreMove, cancel_move
from kipu.manager.store_tail import StoreTail
from kipu.ports.store import EventStore, StoreMark
from kipu.stores.host import SystemClock, SystemEntropy, SystemLiveness, this_process_owner
from kipu.stores.times import iso_from_us
from kipu.stores.wrapper import WrappedStore
from kipu.wiring import open_store
from tests.acceptance.moving.kit import assert_same, ran, until
from tests.servers import fresh_schema, postgres_url
from tests.valkey_servers import fresh_prefix, valkey_url

PAIRS = [
    ("sqlite", "postgresql"),
    ("postgresql", "sqlite"),
    ("jsonl", "postgresql"),
    ("postgresql", "jsonl"),
    ("memory", "sqlite"),
    ("memory", "postgresql"),
    ("sqlite", "jsonl"),
    ("jsonl", "sqlite"),
]
Opener = Callable[[str], Awaitable[EventStore]]


def url_of(kind: str, place: Path) -> str:
    if kind == "postgresql":
        return fresh_schema(postgres_url(), archive=f"{place}.archive")
    return {
        "memory": f"memory://?archive={place}.archive",
        "sqlite": f"sqlite:///{place}.db",
        "jsonl": f"jsonl:///{place}",
    }[kind]


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    """Return a function that opens a store; all are closed at the end."""
    stores: list[EventStore] = []

    async def open_one(url: str) -> EventStore:
        stores.append(await open_store(url))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


def manager_of(store: EventStore) -> SessionManager:
    return SessionManager(store, clock=SystemClock(), entropy=SystemEntropy(), owner=this_process_owner("test"))


async def _marked(store: EventStore) -> None:
    """Wait until the store says that it moves."""
    while await store.mark() is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


class _CancelledAtMark(WrappedStore):
    """Set a mark of this state, and tell whoever set it only that they were cancelled meanwhile."""

    def __init__(self, inner: EventStore, state: str) -> None:
        super().__init__(inner)
        self.state = state
        self.was_set = False

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None = None) -> None:
        """Set it, seen through."""
        await self.inner.set_mark(mark, expected=expected)
        if mark is not None and mark.state == self.state:
            self.was_set = True
            raise asyncio.CancelledError


async def nothing() -> None:
    """Carry nothing beside the sessions."""


@asynccontextmanager
async def moving(
    source: EventStore, target: EventStore, *, names: tuple[str, str] = ("the://source", "the://target")
) -> AsyncIterator[tuple[StoreMove, StoreTail]]:
    """Begin a move and copy everything once."""
    owner, clock = this_process_owner("copy"), SystemClock()
    tail = StoreTail(source, target, owner=owner)
    work = StoreMove(
        source,
        target,
        names=names,
        tail=tail,
        owner=owner,
        liveness=SystemLiveness(),
        move=os.urandom(8).hex(),
        now=lambda: iso_from_us(clock.now_us()),
        beside=nothing,
    )
    try:
        assert await work.begin() == "begun"
        await work.copy()
        yield work, tail
    finally:
        await tail.end()


async def begun(manager: SessionManager) -> dict[str, str]:
    """Make sessions of every kind, before the move."""
    chat = await manager.get_or_create("telegram:1")
    await chat.add_event(UserMessageEvent(content="搜索中文 and English"))
    async with chat.turn() as turn:
        call = ToolCallEvent(tool_name="ls", tool_call_id="c1", tool_input={})
        await turn.add_events([AgentMessageEvent(content="looking"), call])
        await turn.add_event(ToolResultEvent(tool_call_id="c1", result="x" * 100_000))
    fork = await chat.fork(3)
    await fork.add_event(UserMessageEvent(content="another way"))
    old = await manager.get_or_create("cli:old")
    await old.add_event(UserMessageEvent(content="kept for later"))
    doomed = await manager.get_or_create("cli:doomed")
    await doomed.add_event(UserMessageEvent(content="to be erased"))
    heir = await doomed.fork()
    await heir.add_event(UserMessageEvent(content="stays"))
    await manager.receive("slack:C1", UserMessageEvent(content="answer me", source_message_id="m1"))
    quiet = await manager.get_or_create("cli:quiet")
    sessions = {"quiet": quiet, "chat": chat, "fork": fork, "old": old, "doomed": doomed, "heir": heir}
    return {name: session.session_id for name, session in sessions.items()}


async def gone_on(manager: SessionManager, names: dict[str, str]) -> None:
    """Use the store in every way, while it is followed."""
    chat = await manager.open(names["chat"])
    await chat.set_metadata(title="一个标题", topic="files", tags=["a", "b"])
    await chat.pin(2)
    async with chat.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="y" * 90_000))
    await chat.share("eve")
    await manager.add_alias("telegram:1;scope=group", "telegram:1")
    await manager.new_session("cli:old")
    fresh = await manager.get_or_create("telegram:99")
    await fresh.add_event(UserMessageEvent(content="new while it moves"))
    await (await fresh.fork()).add_event(UserMessageEvent(content="a fork of it"))
    await manager.receive("slack:C1", UserMessageEvent(content="again", source_message_id="m2"))
    await manager.store.bind("by:hand", names["quiet"])
    await SessionArchives(manager).archive(names["fork"])
    await manager.delete_session(names["doomed"], detach=True)


@pytest.mark.parametrize(("left", "right"), PAIRS)
async def test_a_move_carries_what_changes_while_it_copies(
    tmp_path: Path, opened: Opener, left: str, right: str
) -> None:
    """Events, titles, pins, members, keys, blobs, forks, archives and erasures of meanwhile are in the target at the end (C22)."""
    source, target = await opened(url_of(left, tmp_path / "a")), await opened(url_of(right, tmp_path / "b"))
    manager = manager_of(source)
    names = await begun(manager)
    async with moving(source, target) as (work, tail):
        await gone_on(manager, names)
        done = await work.cut_over(wait_s=1.0)
        assert tail.report.skipped == ()
    assert done.open_turns == 0
    with pytest.raises(StoreMovedError):
        await manager.receive("slack:C1", UserMessageEvent(content="too late", source_message_id="m3"))
    assert await assert_same(source, target) == 10  # the account of erasures among them
    after = manager_of(target)
    assert await target.resolve("by:hand") == names["quiet"]
    assert (await after.receive("slack:C1", UserMessageEvent(content="again", source_message_id="m2"))).duplicate
    with pytest.raises(SessionErasedError):
        await after.create_session(names["doomed"])
    heir = await after.open(names["heir"])
    assert heir.head.base_seq == 0
    found = await after.search("中文")
    assert names["chat"] in {hit.session_id for hit in found.items}
    async with (await after.open(names["chat"])).turn() as turn:
        await turn.add_event(AgentMessageEvent(content="goes on"))
    head = await source.head(names["chat"])
    there = await target.head(names["chat"])
    assert head is not None
    assert there is not None
    assert there.lease_token > head.lease_token


async def test_a_move_waits_for_running_turns_and_cuts_those_that_do_not_end(tmp_path: Path, opened: Opener) -> None:
    """A turn that ends in time ends in the source; one that does not goes on in the target, and is refused here (C22, C14)."""
    source, target = await opened(f"sqlite:///{tmp_path}/a.db"), await opened(f"sqlite:///{tmp_path}/b.db")
    manager = manager_of(source)
    short, long = await manager.get_or_create("cli:short"), await manager.get_or_create("cli:long")
    let_go = asyncio.Event()

    async def end_in_time() -> None:
        async with short.turn() as turn:
            await let_go.wait()
            await turn.add_event(AgentMessageEvent(content="done in time"))

    async def go_on() -> None:
        async with long.turn() as turn:
            await asyncio.Event().wait()
            await turn.add_event(AgentMessageEvent(content="never"))

    turns = [asyncio.ensure_future(end_in_time()), asyncio.ensure_future(go_on())]
    try:
        async with moving(source, target) as (work, _):
            await until(lambda: bool(short.head.open_turn and long.head.open_turn))
            moved = asyncio.ensure_future(work.cut_over(wait_s=1.0))
            await _marked(source)
            let_go.set()
            done = await moved
        assert done.open_turns == 1
    finally:
        turns[1].cancel()
        ends = await asyncio.gather(*turns, return_exceptions=True)
    assert ends[0] is None
    events = await target.read(short.session_id)
    assert b"done in time" in b"".join(event.record.body for event in events)
    head = await target.head(long.session_id)
    assert head is not None
    assert (head.open_turn is not None, head.lease_owner) == (True, None)


async def test_a_move_that_finds_a_difference_leaves_the_source_in_use(tmp_path: Path, opened: Opener) -> None:
    """Where a session cannot be copied nothing is cut over: the source takes what comes, and the error names it (C22)."""
    source, target = await opened(f"sqlite:///{tmp_path}/a.db"), await opened("memory://")
    manager = manager_of(source)
    names = await begun(manager)
    theirs = manager_of(target)
    await theirs.create_session(names["old"])
    await theirs.save_event(names["old"], UserMessageEvent(content="mine"))
    async with moving(source, target) as (work, tail):
        with pytest.raises(MoveStoppedError, match=names["old"]):
            await work.cut_over(wait_s=0.0)
        assert [skipped.session_id for skipped in tail.report.skipped] == [names["old"]]
        assert await source.mark() is None
        await manager.receive("slack:C1", UserMessageEvent(content="still here", source_message_id="m9"))


async def test_a_move_that_is_interrupted_leaves_the_source_in_use(tmp_path: Path, opened: Opener) -> None:
    """Ctrl-C while turns are waited for takes the mark away again (C22)."""
    source, target = await opened(f"sqlite:///{tmp_path}/a.db"), await opened(f"jsonl:///{tmp_path}/b")
    manager = manager_of(source)
    session = await manager.get_or_create("cli:long")
    async with moving(source, target) as (work, _), session.turn():
        moved = asyncio.ensure_future(work.cut_over(wait_s=60.0))
        await _marked(source)
        moved.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moved
        assert await source.mark() is None
    await manager.receive("cli:x", UserMessageEvent(content="still here"))


@pytest.mark.parametrize("state", ["leaving", "closed"])
async def test_a_move_that_is_interrupted_as_a_mark_is_set_takes_it_away(opened: Opener, state: str) -> None:
    """A change is seen through when its caller is cancelled: Ctrl-C at that moment leaves the source in use too (C22)."""
    source, target = _CancelledAtMark(await opened("memory://"), state), await opened("memory://")
    manager = manager_of(source)
    await manager.receive("cli:x", UserMessageEvent(content="before"))
    async with moving(source, target) as (work, _):
        with pytest.raises(asyncio.CancelledError):
            await work.cut_over(wait_s=1.0)
    assert source.was_set
    assert await source.mark() is None
    await manager.receive("cli:x", UserMessageEvent(content="still here"))


async def test_a_target_with_sessions_of_its_own_is_not_filled(opened: Opener) -> None:
    """A store that others use is not taken from them: a move wants a place of its own (C22)."""
    source, target = await opened("memory://"), await opened("memory://")
    await begun(manager_of(source))
    await manager_of(target).get_or_create("cli:theirs")
    with pytest.raises(InputError, match="sessions of its own"):
        async with moving(source, target):
            pass
    assert (await source.mark(), await target.mark()) == (None, None)


@pytest.mark.parametrize(("one", "other"), [("sqlite", "postgresql"), ("jsonl", "sqlite"), ("postgresql", "jsonl")])
async def test_a_store_that_has_moved_can_be_moved_back(tmp_path: Path, opened: Opener, one: str, other: str) -> None:
    """What was written since comes along, and the store that it came from is in use again (C22)."""
    here, there = await opened(url_of(one, tmp_path / "a")), await opened(url_of(other, tmp_path / "b"))
    names = await begun(manager_of(here))
    async with moving(here, there) as (work, _):
        await work.cut_over(wait_s=1.0)
    await gone_on(manager_of(there), names)
    async with moving(there, here, names=("the://target", "the://source")) as (work, _):
        await work.cut_over(wait_s=1.0)
    await assert_same(there, here)
    await manager_of(here).receive("slack:C1", UserMessageEvent(content="here again", source_message_id="m3"))
    with pytest.raises(StoreMovedError):
        await manager_of(there).receive("slack:C1", UserMessageEvent(content="too late"))


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "postgresql", "valkey"])
async def test_a_store_under_two_names_is_not_filled_from_itself(tmp_path: Path, opened: Opener, kind: str) -> None:
    """Named by a link or with another setting it is refused, and written as before; a mark left by a kill can be taken away (C22)."""
    (tmp_path / "link").symlink_to(tmp_path)
    on_server = {"postgresql": fresh_schema(postgres_url()), "valkey": fresh_prefix(valkey_url())}
    url = on_server.get(kind) or url_of(kind, tmp_path / "a")
    other = f"{on_server[kind]}&connections=2" if kind in on_server else url_of(kind, tmp_path / "link" / "a")
    source, target = await opened(url), await opened(other)
    manager = manager_of(source)
    chat = await manager.get_or_create("cli:here")
    with pytest.raises(InputError, match="the same"):
        async with moving(source, target):
            pass
    assert (await source.mark(), await target.mark()) == (None, None)
    await chat.add_event(UserMessageEvent(content="still here"))
    await target.set_mark(StoreMark("filling", "a-move", "the://source", holder="killed", since="2026-01-01T00:00:00Z"))
    assert await cancel_move(source, target, names=("the://source", "the://target"))
    await chat.add_event(UserMessageEvent(content="here again"))


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """Name a key that is in the environment."""
    monkeypatch.setenv("KIPU_TEST_KEY", base64.b64encode(os.urandom(32)).decode())
    return "encrypt=env:KIPU_TEST_KEY"


async def test_an_encrypted_store_is_not_made_plain_without_being_asked(tmp_path: Path, key: str) -> None:
    """Copied or moved to a store that is not encrypted it wants --decrypt; to an encrypted one it stays sealed (C20, C22)."""
    sealed, again = f"sqlite:///{tmp_path}/a.db?{key}", f"jsonl:///{tmp_path}/b?{key}"
    plain = f"jsonl:///{tmp_path}/c"
    secret = "the-canary-that-nobody-reads"
    home = tmp_path / "home"
    home.mkdir()
    manager = manager_of(await open_store(sealed))
    await (await manager.get_or_create("cli:s")).add_event(UserMessageEvent(content=secret))
    await manager.close()
    kept = dict(os.environ)
    for words in ((), ("--cut-over",)):
        code, _, errors = await ran("copy", sealed, plain, *words, home=home, more=kept)
        assert (code, "copy_unseals" in errors) == (5, True), errors
    assert not _holds(tmp_path, secret)
    assert (await ran("copy", sealed, again, home=home, more=kept))[0] == 0
    assert not _holds(tmp_path, secret)
    assert (await ran("copy", sealed, plain, "--decrypt", home=home, more=kept))[0] == 0
    assert _holds(tmp_path / "c", secret)


def _holds(folder: Path, text: str) -> bool:
    return any(text.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())
