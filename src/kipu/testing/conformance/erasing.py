"""Requirements 155 to 169: erasure is total."""

from __future__ import annotations

from pathlib import Path

import orjson

from kipu.errors import BlobNotFoundError, LeaseLostError, SessionErasedError, SessionNotFoundError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Binding, EventStore, IndexEntry, Phrase, SearchQuery, SessionQuery
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import OWNER_B, TURN_TYPE, Subject, state_of, unchanged


async def fill(subject: Subject, store: EventStore, *, session_id: str, mark: str) -> str:
    """Put `mark` into every place a session can have, and return a blob's digest."""
    named = {"title": f"title-{mark}", "key": f"k:{mark}", "owner": mark, "members": {f"member-{mark}": "viewer"}}
    await subject.begin(store, session_id, **named, metadata={mark: mark}, tags=[mark])
    await store.bind(f"k:{mark}", session_id)
    for number in range(20):
        record = subject.record(
            f"{mark} {number}", turn_id=f"turn-{mark}", trace_id=mark, principal=mark, event_type=TURN_TYPE
        )
        patch = HeadPatch(previews=[(0, TURN_TYPE, mark)], merge={"metadata": {f"n{number}": mark}})
        await store.append(session_id, [record], head=patch, idempotency_key=f"{mark}-{number}")
    large = subject.record(body=orjson.dumps({"content": [mark] * 4000}))
    await store.append(session_id, [large], bind=Binding(f"alias:{mark}"))
    if subject.place.capabilities.search:
        entries = [IndexEntry(session_id, seq, (mark, f"x{mark}")) for seq in range(1, 22)]
        await store.index(entries, indexed={session_id: 21})
    await store.put_blob(session_id, mark.encode() * 100_000)
    return await store.put_blob(session_id, mark.encode())


def files_with(root: Path, mark: str) -> list[str]:
    """Return the files below `root` whose name or bytes hold `mark`."""
    needle = mark.encode()
    paths = [path for path in root.rglob("*") if path.is_file()]
    return [str(path.relative_to(root)) for path in paths if mark in str(path) or needle in path.read_bytes()]


async def expect_gone(subject: Subject, store: EventStore, *, session_id: str, mark: str, digest: str) -> None:
    """Say that nothing of the session can be had through the contract."""
    expect_equal(await store.head(session_id), None, what="the head")
    with expect_error(SessionNotFoundError, what="reading"):
        await store.read(session_id)
    with expect_error(SessionNotFoundError, SessionErasedError, what="claiming"):
        await store.claim(session_id, owner=OWNER_B, ttl_s=1)
    with expect_error(SessionNotFoundError, SessionErasedError, what="appending"):
        await subject.say(store, session_id)
    with expect_error(BlobNotFoundError, SessionNotFoundError, what="its blob"):
        await store.get_blob(session_id, digest)
    expect_equal(await store.resolve(f"k:{mark}"), None, what="its key")
    expect_equal(await store.resolve(f"alias:{mark}"), None, what="its other key")
    listed = {head.session_id for head in (await store.list(SessionQuery())).items}
    expect(session_id not in listed, "an erased session must not be listed")
    if subject.place.capabilities.search:
        expect_equal((await store.search(SearchQuery((Phrase((mark,)),)))).items, (), what="hits")


@requirement(155, "C20", "B27")
async def an_erased_session_is_nowhere(subject: Subject) -> None:
    """After `erase` head, log, blobs, keys, list and search have nothing of the session, and a receipt says what was removed."""
    store = await subject.open()
    mark = subject.canary()
    digest = await fill(subject, store, session_id="gone", mark=mark)
    receipt = await store.erase("gone", lease=await subject.claim(store, "gone"))
    await expect_gone(subject, store, session_id="gone", mark=mark, digest=digest)
    expect_equal((receipt.session_id, receipt.erased_at), ("gone", subject.clock.iso()), what="the receipt")
    expect(sum(receipt.removed.values()) > 0, f"the receipt must name what was removed: {dict(receipt.removed)}")


@requirement(156, "C20")
async def an_erased_id_is_not_used_again(subject: Subject) -> None:
    """`session_init` for an erased id is SessionErasedError, also after reopening where the store keeps anything."""
    store = await subject.open()
    await subject.begin(store, "gone")
    await store.erase("gone", lease=await subject.claim(store, "gone"))
    with expect_error(SessionErasedError, what="beginning it again"):
        await subject.begin(store, "gone")
    if subject.place.capabilities.persistent:
        store = await subject.reopen()
        with expect_error(SessionErasedError, what="beginning it again after reopening"):
            await subject.begin(store, "gone")
        expect_equal(await store.head("gone"), None, what="the head after reopening")


@requirement(157, "C20", "C3")
async def erasing_needs_the_lease(subject: Subject) -> None:
    """`erase` with a lease that was lost is LeaseLostError, and everything of the session stands."""
    store = await subject.open()
    await fill(subject, store, session_id="s1", mark=subject.canary())
    old = await subject.claim(store, "s1", ttl_s=15)
    subject.clock.advance(15.1)
    new = await subject.claim(store, "s1", owner=OWNER_B)
    async with unchanged(store, "s1"):
        with expect_error(LeaseLostError, what="erasing with a lost lease"):
            await store.erase("s1", lease=old)
    await store.erase("s1", lease=new)
    with expect_error(SessionNotFoundError, what="erasing what is erased"):
        await store.erase("s1", lease=new)


@requirement(158, "C20", "B58", needs=("files",))
async def no_byte_is_left(subject: Subject) -> None:
    """After `erase` no file of the store holds a byte sequence of the session, while it is open and after it was closed."""
    root = subject.place.root
    if root is None:
        raise AssertionError("a place with files has a root")
    store = await subject.open()
    await subject.begin(store, "stays")
    mark = subject.canary()
    await fill(subject, store, session_id="gone", mark=mark)
    expect(files_with(root, mark), "the mark must be in some file before the erasure, or the scan proves nothing")
    await subject.say(store, "stays", text="beside it")
    await store.erase("gone", lease=await subject.claim(store, "gone"))
    expect_equal(files_with(root, mark), [], what="files that hold the mark while the store is open")
    await subject.say(store, "stays", text="after it")
    await subject.close()
    expect_equal(files_with(root, mark), [], what="files that hold the mark after closing")


@requirement(159, "C20", "A26")
async def erasing_one_leaves_the_others(subject: Subject) -> None:
    """Erasing one session changes no other: log, head, blobs, keys, retries and hits stand."""
    store = await subject.open()
    stays, goes = subject.canary(), subject.canary()
    digest = await fill(subject, store, session_id="stays", mark=stays)
    await fill(subject, store, session_id="gone", mark=goes)
    before = await state_of(store, "stays")
    await store.erase("gone", lease=await subject.claim(store, "gone"))
    expect_equal(await state_of(store, "stays"), before, what="the other session")
    expect_equal(await store.resolve(f"k:{stays}"), "stays", what="its key")
    expect_equal(await store.get_blob("stays", digest), stays.encode(), what="its blob")
    retry = await subject.say(store, "stays", idempotency_key=f"{stays}-3")
    expect(retry.duplicate, "a retry into the other session must still be known")
    if subject.place.capabilities.search:
        hits = (await store.search(SearchQuery((Phrase((stays,)),), limit=100))).items
        expect_equal(len(hits), 21, what="its hits")
    expect_equal(await store.verify(), [], what="damage")


@requirement(160, "C20", "C16", needs=("persistent",))
async def an_erasure_survives_reopening(subject: Subject) -> None:
    """After reopening the session is still nowhere, and nothing is called damaged."""
    store = await subject.open()
    mark = subject.canary()
    await subject.begin(store, "stays")
    digest = await fill(subject, store, session_id="gone", mark=mark)
    await store.erase("gone", lease=await subject.claim(store, "gone"))
    store = await subject.reopen()
    await expect_gone(subject, store, session_id="gone", mark=mark, digest=digest)
    expect_equal(await store.verify(), [], what="damage")


@requirement(161, "C20", "C3", needs=("shared",))
async def an_attached_writer_brings_nothing_back(subject: Subject) -> None:
    """A store object that had the session open when another erased it is refused, and makes nothing of it again."""
    one, two = await subject.open(), await subject.open()
    mark = subject.canary()
    digest = await fill(subject, one, session_id="gone", mark=mark)
    await subject.say(two, "gone", text=mark)
    expect(await two.read("gone", limit=5), "the other store must have had it open")
    lease = await subject.claim(one, "gone")
    await one.erase("gone", lease=lease)
    with expect_error(SessionErasedError, SessionNotFoundError, LeaseLostError, what="the attached writer's append"):
        await two.append("gone", [subject.record(mark, event_type=TURN_TYPE)], token=lease.token)
    with expect_error(SessionErasedError, SessionNotFoundError, what="the attached writer's message"):
        await subject.say(two, "gone", text=mark)
    with expect_error(SessionErasedError, what="the attached writer's beginning"):
        await subject.begin(two, "gone")
    with expect_error(SessionErasedError, SessionNotFoundError, what="its blob"):
        await two.put_blob("gone", mark.encode())
    await expect_gone(subject, two, session_id="gone", mark=mark, digest=digest)
    root = subject.place.root
    if subject.place.capabilities.files and root is not None:
        expect_equal(files_with(root, mark), [], what="files that hold the mark")
