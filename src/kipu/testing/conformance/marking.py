"""Requirements 260 to 275: a store whose sessions move to another one, or come from one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from kipu.errors import (
    ConflictError,
    SessionErasedError,
    StoreBeingFilledError,
    StoreMovedError,
)
from kipu.ports.head import HeadPatch
from kipu.ports.store import Binding, EventStore, IndexEntry, Lease, SessionQuery, StoreMark, Tombstone
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.jobs import append_until_refused
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.second_process import ended, start
from kipu.testing.conformance.subject import OWNER_A, OWNER_B, TURN_TYPE, Subject, text_of, texts, unchanged, whole_log

LEAVING = StoreMark(
    "leaving", "move-1", "other://日本/store", holder="host/boot/1/1/copy", since="2026-01-01T00:00:00Z"
)
CLOSED = replace(LEAVING, state="closed")
MOVED = replace(LEAVING, state="moved")
FILLING = replace(LEAVING, state="filling")


@requirement(260, "C22")
async def a_mark_is_kept_as_it_was_set(subject: Subject) -> None:
    """A store has no mark until one is set; `mark` gives every field of it, and None once it is taken away."""
    store = await subject.open()
    expect_equal(await store.mark(), None, what="the mark of a new store")
    await store.set_mark(LEAVING)
    expect_equal(await store.mark(), LEAVING, what="the mark")
    await store.set_mark(CLOSED, expected=LEAVING)
    expect_equal(await store.mark(), CLOSED, what="the next mark")
    await store.set_mark(None, expected=CLOSED)
    expect_equal(await store.mark(), None, what="the mark that was taken away")


@requirement(261, "C22")
async def a_mark_is_changed_only_from_what_was_seen(subject: Subject) -> None:
    """`set_mark` changes the mark only from what the caller expects, else it is ConflictError and the mark stays."""
    store = await subject.open()
    with expect_error(ConflictError):
        await store.set_mark(CLOSED, expected=LEAVING)
    await store.set_mark(LEAVING)
    for mark, expected in ((CLOSED, None), (None, None), (CLOSED, replace(LEAVING, holder="another"))):
        with expect_error(ConflictError, what=f"from {expected}"):
            await store.set_mark(mark, expected=expected)
    expect_equal(await store.mark(), LEAVING, what="the mark")


@requirement(262, "C22", "C14")
async def a_leaving_store_gives_no_lease(subject: Subject) -> None:
    """Of a store that is `leaving`, claims are StoreMovedError; whoever holds a session goes on, and messages arrive."""
    store = await subject.open()
    await subject.begin(store, "s1")
    lease = await subject.claim(store, "s1")
    await store.set_mark(LEAVING)
    for owner in (OWNER_A, OWNER_B):
        with expect_error(StoreMovedError, what=f"a claim of {owner}"):
            await store.claim("s1", owner=owner, ttl_s=15)
    lease = await store.renew(lease)
    await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=lease.token)
    await subject.say(store, "s1", bind=Binding("k"))
    await store.bind("k2", "s1")
    await subject.begin(store, "s2")
    await store.put_blob("s1", b"blob")
    expect(await store.release(lease), "a lease must be given back")
    expect_equal((await store.keys("s1"), len(await texts(store, "s1"))), (["k", "k2"], 3), what="the session then")


@requirement(263, "C22")
async def a_closed_store_stays_as_it_is(subject: Subject) -> None:
    """A store that is `closed` or `moved` refuses every change with StoreMovedError, and is read as ever."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.say(store, "s1", text="one", bind=Binding("k"))
    lease = await subject.claim(store, "s1")
    digest = await store.put_blob("s1", b"blob")
    await store.set_mark(CLOSED)
    await _refuses_all(subject, store, lease=lease, kind=StoreMovedError)
    await store.set_mark(MOVED, expected=CLOSED)
    await _refuses_all(subject, store, lease=lease, kind=StoreMovedError)
    expect_equal(await texts(store, "s1"), ["begin", "one"], what="the log")
    expect_equal(await store.get_blob("s1", digest), b"blob", what="the blob")
    expect_equal(await store.resolve("k"), "s1", what="the key")
    if store.describe().search:
        await store.index([IndexEntry("s1", 2, ("one",))], indexed={"s1": 2})  # what is about the index is not content
    expect(await store.release(lease), "a lease must be given back")
    await store.set_mark(None, expected=MOVED)
    await subject.say(store, "s1", text="two")
    expect_equal(await texts(store, "s1"), ["begin", "one", "two"], what="the log once the mark is gone")


async def _refuses_all(subject: Subject, store: EventStore, *, lease: Lease, kind: type[Exception]) -> None:
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "an append": lambda: subject.say(store, "s1"),
        "an append under a lease": lambda: store.append(
            "s1", [subject.record(event_type=TURN_TYPE)], token=lease.token
        ),
        "a new session": lambda: subject.begin(store, "s9"),
        "a claim": lambda: store.claim("s1", owner=OWNER_A, ttl_s=15),
        "a renewal": lambda: store.renew(lease),
        "a binding": lambda: store.bind("k9", "s1"),
        "a binding with an append": lambda: subject.say(store, "s1", bind=Binding("k9")),
        "a blob": lambda: store.put_blob("s1", b"another"),
        "an erasure": lambda: store.erase("s1", lease=lease),
        "letting go": lambda: store.offload("s1", until=2, blobs=(), archive={}, lease=lease),
        "burying": lambda: store.bury([Tombstone("s8", "2026-01-01T00:00:00Z")]),
    }
    async with unchanged(store, "s1"):
        for what, call in calls.items():
            with expect_error(kind, what=what):
                await call()
    expect_equal(await store.head("s9"), None, what="the new session")
    expect_equal(await store.resolve("k9"), None, what="the new key")
    expect_equal(await store.tombstones(), [], what="the tombstones")


@requirement(264, "C22", needs=("shared",))
async def a_store_that_is_filled_is_nobody_elses(subject: Subject) -> None:
    """A store that is `filling` refuses every change with StoreBeingFilledError to all but the store object that set the mark."""
    store, other = await subject.open(), await subject.open()
    await subject.begin(other, "s1")
    await subject.say(other, "s1", text="one", bind=Binding("k"))
    lease = await subject.claim(other, "s1")
    await store.set_mark(FILLING)
    await _refuses_all(subject, other, lease=lease, kind=StoreBeingFilledError)
    await subject.begin(store, "s2")
    await store.append("s1", [subject.record("filled")])
    await store.bind("k2", "s1")
    mine = await subject.claim(store, "s2")
    await store.erase("s2", lease=mine)
    expect_equal(await texts(other, "s1"), ["begin", "one", "filled"], what="the log as the other sees it")
    await other.set_mark(replace(FILLING, holder="another"), expected=FILLING)  # whoever goes on with it
    await subject.say(other, "s1", text="two")
    await other.set_mark(None, expected=replace(FILLING, holder="another"))
    await subject.say(store, "s1", text="three")
    expect_equal(len(await texts(store, "s1")), 5, what="the events once the mark is gone")


@requirement(265, "C22", "C2")
async def nothing_is_written_once_it_is_closed(subject: Subject) -> None:
    """Of appends made while a store is closed, each was refused or is read when `set_mark` has returned; so are new sessions."""
    store = await subject.open()
    await _closes_under_way(subject, [store], marker=store)


@requirement(266, "C22", "C2", needs=("shared",))
async def closing_holds_between_stores(subject: Subject) -> None:
    """The same of appends through other store objects at the same place, whatever they remember of its sessions."""
    stores = [await subject.open() for _ in range(3)]
    await _closes_under_way(subject, stores, marker=await subject.open())


async def _closes_under_way(subject: Subject, stores: list[EventStore], *, marker: EventStore) -> None:
    for number in range(4):
        await subject.begin(marker, f"s{number}")
    acknowledged: list[tuple[str, int, str]] = []

    async def write(store: EventStore, name: str) -> None:
        number = 0
        while True:
            session_id = f"s{number % 4}"
            if number % 5 == 4:
                session_id = f"{name}-{number}"
                await subject.begin(store, session_id)
                acknowledged.append((session_id, 1, "begin"))
            said = await subject.say(store, session_id, text=f"{name}.{number}")
            acknowledged.append((session_id, said.first_seq, f"{name}.{number}"))
            number += 1
            await asyncio.sleep(0)

    writers = [asyncio.ensure_future(write(store, f"w{at}")) for at, store in enumerate(stores * 3)]
    while len(acknowledged) < 60:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await marker.set_mark(CLOSED)
    # As whoever moves the store does: some of what it acknowledged has not been told its writer yet.
    listed = (await marker.list(SessionQuery(limit=1000))).items
    there = {
        (head.session_id, event.seq, text_of(event))
        for head in listed
        for event in await whole_log(marker, head.session_id)
    }
    ended = await asyncio.wait_for(asyncio.gather(*writers, return_exceptions=True), timeout=60)
    for each in ended:
        expect(isinstance(each, StoreMovedError), f"a writer must end with StoreMovedError, not {each!r}")
    lost = set(acknowledged) - there
    expect(not lost, f"acknowledged and not read once it was closed: {sorted(lost)[:3]}")
    for number in range(4):
        found = {(f"s{number}", event.seq, text_of(event)) for event in await whole_log(marker, f"s{number}")}
        expect(found <= there, f"written to s{number} after it was closed: {sorted(found - there)[:3]}")


@requirement(267, "C22", "C2", needs=("multi_process",))
async def closing_holds_between_processes(subject: Subject) -> None:
    """The same of appends of other processes: what they have acknowledged before their refusal is read."""
    store = await subject.open()
    for number in range(4):
        await subject.begin(store, f"s{number}")
    ids = [f"s{number}" for number in range(4)]
    writers = [await start(append_until_refused, subject.place, name=str(n), session_ids=ids) for n in range(2)]
    try:
        written = 0
        while written < 60:
            await asyncio.sleep(0.005)
            heads = [await store.head(each) for each in ids]
            written = sum(head.last_seq for head in heads if head is not None)
        await store.set_mark(CLOSED)
        there = {(each, event.seq, text_of(event)) for each in ids for event in await whole_log(store, each)}
    finally:
        endings = [await asyncio.wait_for(ended(writer), timeout=60) for writer in writers]
    for ending in endings:
        expect_equal((ending.code, ending.told[-1]), (0, "store_moved"), what=f"a writer's end ({ending.errors})")
        lost = [told for told in ending.told[:-1] if tuple(told) not in there]
        expect(not lost, f"acknowledged and not read once it was closed: {lost[:3]}")


@requirement(268, "C22", needs=("persistent",))
async def a_mark_survives_reopening(subject: Subject) -> None:
    """A mark is there after the store was closed and opened, and refuses; one that was taken away is not."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await store.set_mark(CLOSED)
    store = await subject.reopen()
    expect_equal(await store.mark(), CLOSED, what="the mark")
    with expect_error(StoreMovedError):
        await subject.say(store, "s1")
    await store.set_mark(None, expected=CLOSED)
    store = await subject.reopen()
    expect_equal(await store.mark(), None, what="the mark that was taken away")
    await subject.say(store, "s1")


@requirement(270, "C20", "C22")
async def tombstones_tell_every_erased_id(subject: Subject) -> None:
    """`tombstones` gives the ids that were erased, with the time, sorted and page by page, and no other."""
    store = await subject.open()
    for name in ("c", "a", "stays", "b"):
        await subject.begin(store, name)
    expect_equal(await store.tombstones(), [], what="the tombstones before")
    receipts = {name: await store.erase(name, lease=await subject.claim(store, name)) for name in ("c", "a", "b")}
    first = await store.tombstones(limit=2)
    expect_equal([each.session_id for each in first], ["a", "b"], what="the first page")
    rest = await store.tombstones(after="b", limit=2)
    expect_equal([each.session_id for each in rest], ["c"], what="the rest")
    expect(all(each.erased_at for each in [*first, *rest]), "the time must be told")
    expect_equal({each.erased_at[:16] for each in first}, {receipts["a"].erased_at[:16]}, what="the time")


@requirement(271, "C20", "C22")
async def a_buried_id_is_taken(subject: Subject) -> None:
    """An id that was buried is SessionErasedError to begin; one that there is a session of is left alone, and twice is once."""
    store = await subject.open()
    await subject.begin(store, "there")
    buried = [Tombstone("gone", "2026-01-01T00:00:00.000000Z"), Tombstone("there", "2026-01-01T00:00:00.000000Z")]
    await store.bury(buried)
    await store.bury(buried)
    await store.bury([])
    await subject.begin(store, "erased")
    receipt = await store.erase("erased", lease=await subject.claim(store, "erased"))
    await store.bury([buried[0]._replace(session_id="erased")])
    with expect_error(SessionErasedError):
        await subject.begin(store, "gone")
    await subject.say(store, "there")
    expect_equal(await store.head("gone"), None, what="the head of a buried id")
    erased = Tombstone("erased", receipt.erased_at)
    expect_equal(await store.tombstones(), [erased, buried[0]], what="the tombstones")


@requirement(272, "C20", "C22", needs=("persistent",))
async def a_buried_id_stays_taken(subject: Subject) -> None:
    """A buried id is taken after the store was closed and opened, and nothing is called damaged by it."""
    store = await subject.open()
    await subject.begin(store, "s1")
    buried = Tombstone("gone", "2026-01-01T00:00:00.000000Z")
    await store.bury([buried])
    store = await subject.reopen()
    expect_equal(await store.tombstones(), [buried], what="the tombstones")
    with expect_error(SessionErasedError):
        await subject.begin(store, "gone")
    expect_equal(await store.verify(), [], what="the damage")


@requirement(273, "C3", "C22")
async def a_patch_moves_the_next_token(subject: Subject) -> None:
    """Once a patch has set `lease_token`, the next lease's token is above it: leases here go on where those elsewhere ended."""
    store = await subject.open()
    record = subject.record("begin", event_type="session_init")
    await store.append("s1", [record], head=subject.first_patch(lease_token=7))
    lease = await subject.claim(store, "s1")
    expect_equal(lease.token, 8, what="the token of the first lease")
    await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=8)
    await store.release(lease)
    await store.append("s1", [subject.record("more")], head=HeadPatch(set={"lease_token": 30}))
    expect_equal((await subject.claim(store, "s1", owner=OWNER_B)).token, 31, what="the token after that")
