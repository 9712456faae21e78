"""Requirements 235 to 244: a fork takes over the events that it shares."""

from __future__ import annotations

from typing import Any

from kipu.errors import ConflictError, LeaseLostError, SessionExistsError, SessionNotFoundError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, EventStore, IndexEntry, Lease, Phrase, Record, SearchQuery
from kipu.testing.conformance.erasing import files_with
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject, texts, unchanged, whole_log

_BASE = 5


async def forked(subject: Subject, store: EventStore, *, own: int = 3) -> list[Record]:
    """Make a fork `child` of nothing, with `own` events behind its base; return records for what it shares."""
    await subject.begin(store, "child", base_seq=_BASE, forked_from="gone")
    for number in range(own - 1):
        await subject.say(store, "child", text=f"own {number}")
    first = subject.record("shared 0", event_type="session_init", tokens=7)
    return [first, *(subject.record(f"shared {number}", tokens=7) for number in range(1, _BASE))]


async def stand_alone(subject: Subject, store: EventStore, *, lease: Lease, **options: Any) -> Appended:
    """Append what makes the child's shared events its own."""
    patch = HeadPatch(set={"base_seq": 0, "forked_from": None})
    record = subject.record("alone", event_type="fork_detached")
    return await store.append("child", [record], head=patch, token=lease.token, **options)


@requirement(235, "C11", "C20")
async def adopted_events_become_own(subject: Subject) -> None:
    """Events taken in by `adopt` are the session's own, under their own seqs and counted, once a patch sets `base_seq` to 0."""
    store = await subject.open()
    records = await forked(subject, store)
    lease = await subject.claim(store, "child")
    expect_equal(await store.adopt("child", records[:2], lease=lease), 2, what="the end after the first two")
    expect_equal(await store.adopt("child", records[2:], after=2, lease=lease), _BASE, what="the end after all")
    before = await store.head("child")
    appended = await stand_alone(subject, store, lease=lease)
    events = await whole_log(store, "child")
    expect_equal([event.seq for event in events], list(range(1, appended.last_seq + 1)), what="the seqs")
    expect_equal([event.record for event in events[:_BASE]], records, what="the records that were taken in")
    backwards = await store.read("child", backwards=True, limit=appended.last_seq - 1)
    expect_equal(backwards, events[:0:-1], what="the log read backwards")
    expect_equal(await store.read("child", after=3, until=7), events[3:7], what="a page across the border")
    head = await store.head("child")
    if head is None or before is None:
        raise AssertionError("the child has a head")
    expect_equal((head.base_seq, head.forked_from, head.last_seq), (0, None, appended.last_seq), what="the head")
    expect_equal(head.event_count, before.event_count + _BASE + 1, what="the number of events")
    expect_equal(head.token_count, before.token_count + 7 * _BASE, what="the number of tokens")
    expect_equal(await store.verify("child"), [], what="damage")
    await subject.say(store, "child", text="on")
    expect_equal((await texts(store, "child"))[-2:], ["alone", "on"], what="what comes after")


@requirement(236, "C11")
async def adopted_events_are_out_of_sight(subject: Subject) -> None:
    """Until then nothing of them is seen: not in reads, heads, lists of damage or by a follower."""
    store = await subject.open()
    records = await forked(subject, store)
    lease = await subject.claim(store, "child")
    async with unchanged(store, "child"):
        await store.adopt("child", records[:4], lease=lease)
        expect_equal([event.seq for event in await store.read("child")], [6, 7, 8], what="own events")
        expect_equal(await store.verify("child"), [], what="damage")
    follower = store.follow("child", after=0)
    expect_equal((await anext(follower)).seq, _BASE + 1, what="the first event that a follower sees")


@requirement(237, "C11", "C3")
async def adopting_is_refused_where_it_does_not_fit(subject: Subject) -> None:
    """A gap, more than the base, a lost lease and an unknown session are refused; repeating is harmless and adds nothing."""
    store = await subject.open()
    records = await forked(subject, store)
    old = await subject.claim(store, "child", ttl_s=15)
    subject.clock.advance(15.1)
    lease = await subject.claim(store, "child")
    with expect_error(LeaseLostError, what="adopting with a lost lease"):
        await store.adopt("child", records[:1], lease=old)
    with expect_error(ConflictError, what="leaving a gap"):
        await store.adopt("child", records[1:2], after=1, lease=lease)
    with expect_error(ConflictError, what="going beyond the base"):
        await store.adopt("child", [*records, subject.record("too much")], lease=lease)
    with expect_error(SessionNotFoundError, LeaseLostError, what="a session that is not there"):
        await store.adopt("nobody", records[:1], lease=lease)
    expect_equal(await store.adopt("child", lease=lease), 0, what="the end before anything was taken in")
    expect_equal(await store.adopt("child", records[:3], lease=lease), 3, what="the end")
    expect_equal(await store.adopt("child", records[:3], lease=lease), 3, what="the end after repeating")
    expect_equal(await store.adopt("child", records[1:4], after=1, lease=lease), 4, what="the end after overlapping")
    with expect_error(ConflictError, what="standing alone with a gap"):
        await stand_alone(subject, store, lease=lease)
    expect_equal(await store.adopt("child", records, lease=lease), _BASE, what="the end after all")
    await stand_alone(subject, store, lease=lease)
    expect_equal((await texts(store, "child"))[:_BASE], [f"shared {n}" for n in range(_BASE)], what="the events")


@requirement(238, "C11", needs=("persistent",))
async def adopted_events_survive_reopening(subject: Subject) -> None:
    """What was taken in goes on after reopening where it was, and what became own stays, whatever cache was lost."""
    store = await subject.open()
    records = await forked(subject, store)
    lease = await subject.claim(store, "child")
    await store.adopt("child", records[:3], lease=lease)
    store = await subject.reopen()
    expect_equal(await store.adopt("child", lease=lease), 3, what="the end after reopening")
    await store.adopt("child", records[3:], after=3, lease=lease)
    await stand_alone(subject, store, lease=lease)
    before = (await store.head("child"), await whole_log(store, "child"))
    store = await subject.reopen()
    expect_equal((await store.head("child"), await whole_log(store, "child")), before, what="head and log")
    expect_equal(await store.verify(), [], what="damage")


@requirement(239, "C11", "B60")
async def adopted_events_are_searched(subject: Subject) -> None:
    """What became own waits to be indexed, is found when it was, and comes after what is newer."""
    subject.need("search")
    store = await subject.open()
    records = await forked(subject, store)
    lease = await subject.claim(store, "child")
    await store.index([IndexEntry("child", _BASE + 2, ("word",))], indexed={"child": _BASE + 3})
    await store.adopt("child", records, lease=lease)
    await stand_alone(subject, store, lease=lease)
    head = await store.head("child")
    expect_equal(head and head.indexed_seq, 0, what="how far it is indexed")
    entries = [IndexEntry("child", seq, ("word",)) for seq in range(1, _BASE + 4)]
    await store.index(entries, indexed={"child": _BASE + 4})
    first = await store.search(SearchQuery((Phrase(("word",)),), limit=4))
    rest = await store.search(SearchQuery((Phrase(("word",)),), limit=10, cursor=first.cursor))
    found = [hit.seq for hit in (*first.items, *rest.items)]
    expect_equal(sorted(found), list(range(1, _BASE + 4)), what="the hits")


@requirement(240, "C11", "C22")
async def a_beginning_may_stand_inside(subject: Subject) -> None:
    """`session_init` for a session there is needs its lease, as when a fork that stands alone is copied; else it exists already."""
    store = await subject.open()
    await subject.begin(store, "s1")
    with expect_error(SessionExistsError, what="beginning again"):
        await subject.begin(store, "s1")
    lease = await subject.claim(store, "s1")
    init = subject.record("its own beginning", event_type="session_init")
    await store.append("s1", [init], token=lease.token, expected_seq=1)
    expect_equal(await texts(store, "s1"), ["begin", "its own beginning"], what="the events")


@requirement(241, "C20", "C11", needs=("files",))
async def an_erasure_takes_adopted_events_too(subject: Subject) -> None:
    """Erasing a session takes what it had taken in with it, out of sight or not."""
    root = subject.place.root
    if root is None:
        raise AssertionError("a place with files has a root")
    for alone in (False, True):
        store = await subject.open()
        mark, name = subject.canary(), f"child{int(alone)}"
        await subject.begin(store, name, base_seq=2, forked_from="gone")
        lease = await subject.claim(store, name)
        shared = [subject.record(mark, turn_id=mark) for _ in range(2)]
        await store.adopt(name, shared, lease=lease)
        expect(files_with(root, mark), "the mark must be in some file before")
        if alone:
            patch = HeadPatch(set={"base_seq": 0, "forked_from": None})
            await store.append(name, [subject.record("alone")], head=patch, token=lease.token)
        await store.erase(name, lease=lease)
        expect_equal(files_with(root, mark), [], what="files that hold the mark")
        await subject.close()
