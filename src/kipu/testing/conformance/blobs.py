"""Requirements 145 to 154: big values beside the log."""

from __future__ import annotations

import asyncio
import hashlib

from kipu.errors import BlobNotFoundError, SessionNotFoundError
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject


@requirement(145, "B1", "C6")
async def a_blob_comes_back(subject: Subject) -> None:
    """`put_blob` returns the SHA-256 of the bytes, and `get_blob` the bytes: empty, binary, and 5 MB."""
    store = await subject.open()
    await subject.begin(store, "s1")
    for data in (b"", b"\x00\xff\n\r\x1a" * 100, "日本".encode(), bytes(range(256)) * 20_000):
        digest = await store.put_blob("s1", data)
        expect_equal(digest, hashlib.sha256(data).hexdigest(), what="the digest")
        expect(await store.get_blob("s1", digest) == data, f"{len(data)} bytes must come back")


@requirement(146, "B1")
async def keeping_a_blob_twice_is_keeping_it_once(subject: Subject) -> None:
    """The same bytes kept again, one after the other or at once, are listed once."""
    store = await subject.open()
    await subject.begin(store, "s1")
    expect_equal(await store.blobs("s1"), [], what="the blobs of a new session")
    await asyncio.gather(*(store.put_blob("s1", b"same") for _ in range(5)))
    await store.put_blob("s1", b"same")
    other = await store.put_blob("s1", b"other")
    digests = [hashlib.sha256(b"same").hexdigest(), other]
    expect_equal(sorted(await store.blobs("s1")), sorted(digests), what="the blobs")


@requirement(147, "A50")
async def a_missing_blob_is_an_error(subject: Subject) -> None:
    """`get_blob` of a digest that was not kept, or is no digest, is BlobNotFoundError."""
    store = await subject.open()
    await subject.begin(store, "s1")
    for digest in ("0" * 64, "", "../../etc/passwd", "nonsense"):
        with expect_error(BlobNotFoundError, what=f"the digest {digest!r}"):
            await store.get_blob("s1", digest)


@requirement(148, "B38", "A20")
async def blobs_belong_to_their_session(subject: Subject) -> None:
    """A digest opens nothing in another session, also where both have kept the same bytes and one is gone."""
    store = await subject.open()
    for session_id in ("s1", "s2", "s3"):
        await subject.begin(store, session_id)
    digest = await store.put_blob("s1", b"shared")
    with expect_error(BlobNotFoundError, what="another session's blob"):
        await store.get_blob("s2", digest)
    await store.put_blob("s2", b"shared")
    await store.erase("s1", lease=await subject.claim(store, "s1"))
    expect_equal(await store.get_blob("s2", digest), b"shared", what="the blob of the session that stays")
    with expect_error(BlobNotFoundError, what="the blob in a third session"):
        await store.get_blob("s3", digest)


@requirement(149, "B1", "C2", needs=("persistent",))
async def blobs_survive_reopening(subject: Subject) -> None:
    """Blobs are there after the store was closed and opened, and `verify` misses none."""
    store = await subject.open()
    await subject.begin(store, "s1")
    digest = await store.put_blob("s1", b"kept")
    store = await subject.reopen()
    expect_equal(await store.get_blob("s1", digest), b"kept", what="the blob")
    expect_equal(await store.blobs("s1"), [digest], what="the list of blobs")
    expect_equal(await store.verify("s1"), [], what="damage")


@requirement(150, "B24", "A50")
async def a_blob_needs_its_session(subject: Subject) -> None:
    """`put_blob` into a session that does not exist is SessionNotFoundError and makes no session."""
    store = await subject.open()
    with expect_error(SessionNotFoundError, what="a blob into nothing"):
        await store.put_blob("ghost", b"x")
    expect_equal(await store.head("ghost"), None, what="the head")
