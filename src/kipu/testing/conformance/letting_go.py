"""Requirements 245 to 255: letting go of a session's events, and taking them back (B48)."""

from __future__ import annotations

import asyncio

from kipu.errors import ConflictError, LeaseLostError, SessionArchivedError, SessionNotFoundError
from kipu.ports.head import HeadPatch
from kipu.ports.store import EventStore, IndexEntry, Lease, Phrase, SearchQuery, SessionQuery, StoredEvent
from kipu.stores.wrapper import innermost
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import OWNER_B, TURN_TYPE, Subject, state_of, texts, unchanged, whole_log

BLOB = b"a blob of the session"
NOTE = {"of": "the conformance suite"}  # names no file: nobody can look into it


async def filled(subject: Subject, store: EventStore) -> Lease:
    """Make a session of six events with a key, retries, a blob and tags, and return its lease."""
    session_id = "s1"
    await subject.begin(store, session_id, title="the title", tags=["kept"], metadata={"a": 1})
    await store.bind(f"k:{session_id}", session_id)
    for number in range(4):
        patch = HeadPatch(add={"token_count": 0})
        await store.append(
            session_id,
            [subject.record(f"text {number}", tokens=7)],
            head=patch,
            idempotency_key=f"{session_id}-{number}",
        )
    lease = await subject.claim(store, session_id)
    await store.append(session_id, [subject.record("answer", event_type=TURN_TYPE)], token=lease.token)
    return lease


async def let_go(store: EventStore, lease: Lease) -> tuple[list[StoredEvent], list[bytes]]:
    """Put the session's events and a blob out of the store, and return them as the store that keeps them had them."""
    kept, session_id = innermost(store), lease.session_id
    await store.put_blob(session_id, BLOB)
    events, digests = await whole_log(kept, session_id), await kept.blobs(session_id)
    blobs = [await kept.get_blob(session_id, digest) for digest in digests]
    await store.offload(session_id, until=events[-1].seq, blobs=digests, archive=NOTE, lease=lease)
    return events, blobs


async def take_back(store: EventStore, lease: Lease, *, events: list[StoredEvent]) -> None:
    """Give the session its events again, in two halves."""
    half = len(events) // 2
    await store.reload(lease.session_id, events[:half], lease=lease)
    await store.reload(lease.session_id, events[half:], lease=lease, complete=True, archive=None)


@requirement(245, "B48", "A50")
async def what_was_let_go_is_never_read_as_absent(subject: Subject) -> None:
    """Reading into what `offload` let go of is SessionArchivedError in both directions, and never an empty page."""
    store = await subject.open()
    events, _ = await let_go(store, await filled(subject, store))
    for after, until, limit in ((0, None, 100), (2, None, 100), (0, 3, 100), (0, None, 1)):
        for backwards in (False, True):
            with expect_error(SessionArchivedError, what=f"reading after {after}, {limit} of them"):
                await store.read("s1", after=after, until=until, limit=limit, backwards=backwards)
    expect_equal(await store.read("s1", after=events[-1].seq), [], what="what is behind it")
    await subject.say(store, "s1", text="later")
    expect_equal(len(await store.read("s1", after=events[-1].seq)), 1, what="what came after it")
    expect_equal(len(await store.read("s1", limit=1, backwards=True)), 1, what="the newest event")
    with expect_error(SessionArchivedError, what="reading back into it"):
        await store.read("s1", limit=2, backwards=True)


@requirement(246, "B48", "A67")
async def the_head_stays(subject: Subject) -> None:
    """After `offload` head, list, keys and retries are as before, and the head says up to where, and what `archive` was."""
    store = await subject.open()
    lease = await filled(subject, store)
    before = await store.head("s1")
    outcomes, keys = await store.outcomes("s1"), await store.keys("s1")
    events, _ = await let_go(store, lease)
    after = await store.head("s1")
    if before is None or after is None:
        raise AssertionError("the head must stay")
    same = ("title", "tags", "metadata", "last_seq", "event_count", "token_count", "last_activity_at", "lease_token")
    for name in same:
        expect_equal(getattr(after, name), getattr(before, name), what=name)
    expect_equal((after.offloaded_seq, after.archive), (events[-1].seq, NOTE), what="the note")
    listed = (await store.list(SessionQuery(tags=frozenset({"kept"})))).items
    expect_equal([head.offloaded_seq for head in listed], [events[-1].seq], what="the listed head")
    expect_equal(await store.outcomes("s1"), outcomes, what="the outcomes")
    expect_equal(await store.keys("s1"), keys, what="the keys")
    again = await subject.say(store, "s1", idempotency_key="s1-2")
    expect(again.duplicate and again.first_seq == 4, "a retry must find its first outcome")
    expect_equal(await innermost(store).blobs("s1"), [], what="the blobs")
    expect_equal(await store.verify("s1"), [], what="damage")


@requirement(247, "B48", "A56")
async def what_comes_back_is_as_it_was(subject: Subject) -> None:
    """After `reload` every event has its seq and its bytes again, what arrived meanwhile stands behind, and the head is whole."""
    store = await subject.open()
    lease = await filled(subject, store)
    digest = await store.put_blob("s1", BLOB)
    before = await state_of(store, "s1")
    events, blobs = await let_go(store, lease)
    await subject.say(store, "s1", text="later")
    await take_back(store, lease, events=events)
    for blob in blobs:
        await innermost(store).put_blob("s1", blob)
    expect_equal(await store.get_blob("s1", digest), BLOB, what="the blob")
    expect_equal((await whole_log(store, "s1"))[: len(events)], before[1], what="the events")
    expect_equal((await texts(store, "s1"))[-1], "later", what="what arrived meanwhile")
    head = await store.head("s1")
    expect(head is not None and (head.offloaded_seq, head.archive) == (0, None), "the head must say that it is back")
    expect_equal(await store.verify("s1"), [], what="damage")
    await subject.say(store, "s1", text="last")
    backwards = await store.read("s1", limit=3, backwards=True)
    expect_equal([event.seq for event in backwards], [8, 7, 6], what="the newest over the border")


@requirement(248, "B48", "C16")
async def a_half_reload_is_not_seen(subject: Subject) -> None:
    """Until it is `complete` nothing of a reload is seen, and taking the same events again changes nothing."""
    store = await subject.open()
    lease = await filled(subject, store)
    events, _ = await let_go(store, lease)
    await store.reload("s1", events[:3], lease=lease)
    with expect_error(SessionArchivedError, what="reading a half"):
        await store.read("s1", limit=2)
    head = await store.head("s1")
    expect(head is not None and head.offloaded_seq == events[-1].seq, "the head must not say that it is back")
    await store.reload("s1", events[:4], lease=lease)
    await store.reload("s1", events, lease=lease, complete=True, archive=NOTE)
    expect_equal(await whole_log(innermost(store), "s1"), events, what="the events")
    head = await store.head("s1")
    expect_equal(head.archive if head else None, NOTE, what="the note that was given")


@requirement(249, "B48", "C3")
async def letting_go_is_refused_where_it_is_not_due(subject: Subject) -> None:
    """A lost lease, an event that arrived since, an unknown session and foreign events are refused, and nothing changes."""
    store = await subject.open()
    old = await filled(subject, store)
    subject.clock.advance(16)
    new = await subject.claim(store, "s1", owner=OWNER_B)
    async with unchanged(store, "s1"):
        with expect_error(LeaseLostError, what="letting go with a lost lease"):
            await store.offload("s1", until=6, blobs=[], archive=NOTE, lease=old)
        with expect_error(ConflictError, what="letting go of less than all"):
            await store.offload("s1", until=5, blobs=[], archive=NOTE, lease=new)
        with expect_error(ConflictError, what="taking back what was never let go of"):
            await store.reload("s1", await whole_log(innermost(store), "s1"), lease=new)
    with expect_error(SessionNotFoundError, what="letting go of an unknown session"):
        await store.offload("unknown", until=1, blobs=[], archive=NOTE, lease=new)
    events, _ = await let_go(store, new)
    with expect_error(LeaseLostError, what="taking back with a lost lease"):
        await store.reload("s1", events, lease=old)
    with expect_error(ConflictError, what="taking back more than was let go of"):
        await store.reload("s1", [events[0]._replace(seq=7)], lease=new)
    await store.offload("s1", until=6, blobs=[], archive=NOTE, lease=new)  # once more is harmless
    await take_back(store, new, events=events)
    expect_equal(await whole_log(innermost(store), "s1"), events, what="the events")


@requirement(250, "B48", needs=("persistent",))
async def letting_go_survives_reopening(subject: Subject) -> None:
    """After reopening the head, the keys and the retries of such a session are there, and so are its events once they are back."""
    store = await subject.open()
    lease = await filled(subject, store)
    events, _ = await let_go(store, lease)
    await subject.say(store, "s1", text="later")
    before = await store.head("s1")
    store = await subject.reopen()
    expect_equal(await store.head("s1"), before, what="the head")
    with expect_error(SessionArchivedError, what="reading after reopening"):
        await store.read("s1")
    expect((await subject.say(store, "s1", idempotency_key="s1-3")).duplicate, "a retry must be known after reopening")
    expect_equal(await store.verify(), [], what="damage")
    lease = await subject.claim(store, "s1")
    await store.reload("s1", events[:2], lease=lease)
    store = await subject.reopen()
    await take_back(store, await subject.claim(store, "s1"), events=events)
    store = await subject.reopen()
    expect_equal((await whole_log(innermost(store), "s1"))[:-1], events, what="the events")
    expect_equal((await texts(store, "s1"))[-1], "later", what="what arrived meanwhile")
    expect_equal(await store.verify(), [], what="damage when they are back")


@requirement(251, "B48", "C3", needs=("shared",))
async def another_store_object_sees_it(subject: Subject) -> None:
    """A store object that had the session open sees at once that its events went, and that they came back."""
    one, two = await subject.open(), await subject.open()
    lease = await filled(subject, one)
    expect_equal(len(await two.read("s1")), 6, what="the events before")
    events, _ = await let_go(one, lease)
    with expect_error(SessionArchivedError, what="reading in the other one"):
        await two.read("s1")
    await subject.say(two, "s1", text="from the other")
    await take_back(one, lease, events=events)
    for store in (one, two):
        expect_equal((await whole_log(innermost(store), "s1"))[:6], events, what="the events")
        expect_equal((await texts(store, "s1"))[-1], "from the other", what="what arrived meanwhile")
    await subject.say(two, "s1", text="and after it")
    expect_equal((await texts(one, "s1"))[-1], "and after it", what="the newest")


@requirement(252, "B48", needs=("search",))
async def what_was_let_go_is_still_found(subject: Subject) -> None:
    """A search finds events that were let go of, before and after they come back, and terms of them can still be taken in."""
    store = await subject.open()
    lease = await filled(subject, store)
    await store.index([IndexEntry("s1", 2, ("early",))], indexed={"s1": 3})
    events, _ = await let_go(store, lease)
    await store.index([IndexEntry("s1", 4, ("late",))], indexed={"s1": 6})
    await subject.say(store, "s1", text="newer")
    await store.index([IndexEntry("s1", 7, ("late",))], indexed={"s1": 7})
    for is_back in (False, True):
        if is_back:
            await take_back(store, lease, events=events)
        hits = (await store.search(SearchQuery((Phrase(("early",)),)))).items
        expect_equal([hit.seq for hit in hits], [2], what="what was indexed before")
        hits = (await store.search(SearchQuery((Phrase(("late",)),)))).items
        expect_equal([hit.seq for hit in hits], [7, 4], what="what was indexed after")


@requirement(253, "B48", "C16")
async def nobody_has_news_of_what_comes_back(subject: Subject) -> None:
    """Whoever follows every session is given nothing of a reload, and the next event after it."""
    store = await subject.open()
    lease = await filled(subject, store)
    events, _ = await let_go(store, lease)
    news = store.follow()
    await take_back(store, lease, events=events)
    await subject.say(store, "s1", text="new")
    event = await anext(news)
    expect_equal(event.seq, 7, what="the first event that the follower is given")


@requirement(254, "B48", "A56")
async def it_goes_as_often_as_one_likes(subject: Subject) -> None:
    """A session that came back can be let go of again, with what is new, and comes back whole again."""
    store = await subject.open()
    lease = await filled(subject, store)
    for round_number in range(3):
        before = await store.head("s1")
        events, _ = await let_go(store, lease)
        await take_back(store, lease, events=events)
        after = await store.head("s1")
        expect_equal(await whole_log(innermost(store), "s1"), events, what=f"the events of round {round_number}")
        expect_equal(after and after.event_count, before and before.event_count, what="the count")
        await subject.say(store, "s1", text=f"round {round_number}", idempotency_key=f"round-{round_number}")
    expect((await subject.say(store, "s1", idempotency_key="round-0")).duplicate, "every retry must be known")


@requirement(255, "B48", "A50")
async def a_page_is_of_one_moment(subject: Subject) -> None:
    """While events go and come back, a page is whole or SessionArchivedError, never a part of it and never empty."""
    store = await subject.open()
    lease = await filled(subject, store)
    done = asyncio.Event()

    async def look() -> None:
        while not done.is_set():
            for backwards in (False, True):
                try:
                    page = await store.read("s1", limit=4, backwards=backwards)
                except SessionArchivedError:
                    continue
                expect_equal(len(page), 4, what="the events of a page")
            await asyncio.sleep(0)

    looking = [asyncio.ensure_future(look()) for _ in range(3)]
    try:
        for _ in range(12):
            events, _ = await let_go(store, lease)
            await asyncio.sleep(0)
            await take_back(store, lease, events=events)
            await asyncio.sleep(0)
    finally:
        done.set()
        await asyncio.gather(*looking)
