"""Requirements 210 to 229: what cannot be read is never taken for what is not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kipu.errors import StoreError
from kipu.ports.store import EventStore, SessionQuery, StoredEvent
from kipu.testing.conformance.expectation import expect, expect_equal
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject, whole_log

_PAGE_BYTES = 4096


async def fill(subject: Subject) -> list[StoredEvent]:
    """Write one session of 200 kB, close, and return its log."""
    store = await subject.open()
    await subject.begin(store, "s1")
    for number in range(40):
        await subject.say(store, "s1", text=f"{number}." + subject.canary() * 100)
    log = await whole_log(store, "s1")
    await subject.close()
    return log


def spoil(root: Path, change: Callable[[bytearray], bytes]) -> dict[Path, bytes]:
    """Change every file that holds something and return what each was made to be."""
    spoiled = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size > 0:
            spoiled[path] = change(bytearray(path.read_bytes()))
            path.write_bytes(spoiled[path])
    return spoiled


def overwrite_middle(data: bytearray) -> bytes:
    """Return the bytes with a page's worth in the middle made meaningless."""
    at = len(data) // 2
    size = min(_PAGE_BYTES, len(data) - at)
    data[at : at + size] = os.urandom(size)
    return bytes(data)


def overwrite_all(data: bytearray) -> bytes:
    """Return as many meaningless bytes."""
    return os.urandom(len(data))


def nothing_but_zeros(data: bytearray) -> bytes:
    """Return as many zeros, as a power cut leaves them."""
    return bytes(len(data))


async def read_what_can_be(store: EventStore) -> tuple[list[StoredEvent], bool]:
    """Return the events that can still be read, and whether the store said that something is wrong."""
    said = bool(await store.verify())
    try:
        if await store.head("s1") is None:
            return [], said
        return await whole_log(store, "s1"), said
    except StoreError:
        return [], True


async def expect_honest(subject: Subject, truth: list[StoredEvent]) -> None:
    """Say that a spoiled store gives only true events, and names the damage where it gives fewer."""
    try:
        store = await subject.open()
        events, said = await read_what_can_be(store)
        listed = {head.session_id for head in (await store.list(SessionQuery())).items}
    except StoreError:
        return
    wrong = [event for event in events if event not in truth]
    expect(not wrong, f"events that were never written: {wrong[:2]}")
    if len(events) < len(truth) or "s1" not in listed:
        expect(said, f"{len(truth) - len(events)} events cannot be read, and nothing says so")


@requirement(210, "A50", "C16", "A53", needs=("files",))
async def damage_is_said(subject: Subject) -> None:
    """With a part of every file overwritten, the store gives only true events, and an error or a reported damage for the rest."""
    truth = await fill(subject)
    root = subject.place.root
    if root is None:
        raise AssertionError("a place with files has a root")
    spoil(root, overwrite_middle)
    await expect_honest(subject, truth)


@requirement(211, "A50", "C16", needs=("files",))
async def an_unreadable_store_is_not_an_empty_one(subject: Subject) -> None:
    """With every file made meaningless or zero, opening or reading is an error or a reported damage, never an empty store."""
    truth = await fill(subject)
    root = subject.place.root
    if root is None:
        raise AssertionError("a place with files has a root")
    for change in (nothing_but_zeros, overwrite_all):
        spoil(root, change)
        await expect_honest(subject, truth)
        await subject.close()


@requirement(212, "A50", "C16", "B21", needs=("files",))
async def nothing_unreadable_is_overwritten(subject: Subject) -> None:
    """Opening, reading and even beginning the same session again leaves the bytes of an unreadable store somewhere below its root."""
    await fill(subject)
    root = subject.place.root
    if root is None:
        raise AssertionError("a place with files has a root")
    spoiled = spoil(root, overwrite_all)
    largest = max(spoiled.values(), key=len)
    try:
        store = await subject.open()
        await read_what_can_be(store)
        await subject.begin(store, "s1")
    except (StoreError, AssertionError):
        pass
    except Exception as error:  # noqa: BLE001 - a refusal of another kind is judged by its name below
        expect_equal(type(error).__module__, "kipu.errors", what=f"the module of {type(error).__name__}")
    await subject.close()
    probe = largest[:200]
    kept = [path for path in root.rglob("*") if path.is_file() and probe in path.read_bytes()]
    expect(kept, "the unreadable bytes must still be there")
