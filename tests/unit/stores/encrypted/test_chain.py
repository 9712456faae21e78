"""The keyed chain: what it finds that single seals do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import ConflictError, StoreUrlError
from kipu.ports.head import HeadPatch, head_to_json
from kipu.ports.store import Record, SessionQuery, StoredEvent
from kipu.security.key_vault import SqliteVault
from kipu.security.keys import KeyRing
from kipu.stores.chain_anchor import anchor_of, set_back
from kipu.stores.chain_link import ChainBreak, link_of
from kipu.stores.chain_verification import verify_chain
from kipu.stores.chained import ChainedStore
from kipu.stores.encrypted import EncryptedStore
from kipu.stores.memory import MemoryStore
from kipu.stores.wrapper import innermost
from kipu.testing.conformance.subject import whole_log
from kipu.testing.fakes import FakeClock, FakeLiveness
from kipu.wiring import open_store
from tests.unit.stores.encrypted.kit import keys, opened, subject

Change = Callable[[list[Record]], list[Record]]


async def chained(url: str = "memory://?chain=on") -> tuple[EncryptedStore, ChainedStore]:
    """Return an encrypted store and the chained one in it."""
    store = await opened(url)
    inner = store.inner
    assert isinstance(inner, ChainedStore)
    return store, inner


async def filled(store: EncryptedStore) -> None:
    """Begin a session and say eight things, in batches of two."""
    say = subject()
    await say.begin(store, "s1", title="t")
    for number in range(4):
        await store.append("s1", [say.record(f"{number} a"), say.record(f"{number} b")])


async def break_after(change: Change, head: Callable[[dict[str, Any]], None] = lambda row: None) -> ChainBreak | None:
    """Return what the chain says of a log that somebody rewrote as `change` and `head` do, numbering it anew."""
    store, inner = await chained()
    await filled(store)
    records = [event.record for event in await inner.inner.read("s1")]
    row = head_to_json((await inner.inner.list(SessionQuery())).items[0])
    changed = change(records)
    head(row)
    forged = await MemoryStore.open(clock=FakeClock(), liveness=FakeLiveness())
    patch = HeadPatch(set={name: row[name] for name in ("title", "metadata", "created_at")})
    await forged.append("s1", changed, head=patch)
    ring = store.store_keys
    assert isinstance(ring, KeyRing)
    return await verify_chain(forged, "s1", keys=ring)


def _stripped(record: Record) -> Record:
    return record._replace(body=record.body[record.body.index(b'"$body":') + 8 : -1])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda log: log, None),
        (lambda log: [*log[:4], log[5], log[4], *log[6:]], (5, "reordered")),
        (lambda log: [*log[:4], *log[5:]], (5, "dropped")),
        (lambda log: [log[0], *log[2:]], (2, "dropped")),
        (lambda log: log[:7], (8, "cut")),
        (lambda log: log[:1], (2, "cut")),
        (lambda log: [*log[:3], log[3]._replace(body=log[3].body[:-3] + b'A"}}'), *log[4:]], (4, "altered")),
        (lambda log: [*log[:3], log[3]._replace(tokens=7), *log[4:]], (4, "altered")),
        (lambda log: [*log[:3], log[3]._replace(principal="admin"), *log[4:]], (4, "altered")),
        (lambda log: [*log[:3], _stripped(log[3]), *log[4:]], (4, "altered")),
        (lambda log: [*log[:4], log[2], *log[4:]], (5, "reordered")),
    ],
)
async def test_a_chain_names_the_first_change(change: Change, expected: tuple[int, str] | None) -> None:
    """Reordered, dropped, cut, altered, unlinked and repeated events are named by their number; a whole log is not (C20, EN-20, EN-21)."""
    found = await break_after(change)
    assert (found and (found.seq, found.kind)) == expected


async def test_a_head_without_its_tag_is_found() -> None:
    """A head whose last tag was removed or altered is named, so that a cut tail cannot be hidden so (C20, EN-21)."""

    def removed(row: dict[str, Any]) -> None:
        del row["metadata"]["$chain"]

    def altered(row: dict[str, Any]) -> None:
        tip = row["metadata"]["$chain"]
        row["metadata"]["$chain"] = tip[:-9] + ("B" if tip[-9] == "A" else "A") + tip[-8:]

    assert await break_after(lambda log: log, removed) == ChainBreak("s1", 1, "head")
    assert await break_after(lambda log: log, altered) == ChainBreak("s1", 9, "head")


@pytest.mark.parametrize("seal", ["", ".", ".old"])
async def test_a_tail_that_was_cut_to_fit_is_found(seal: str) -> None:
    """A tail cut together with a head whose link is that of the last event left is found: only the key makes a head's link (C20, EN-20)."""
    left: list[Record] = []

    def cut(log: list[Record]) -> list[Record]:
        left[:] = log[:7]
        return left

    def fitted(row: dict[str, Any]) -> None:
        last = link_of(StoredEvent(7, "s1", left[-1]))
        assert last is not None
        old = row["metadata"]["$chain"].rpartition(".")[2]
        row["metadata"]["$chain"] = last.text() + seal.replace("old", old)

    assert await break_after(cut, fitted) == ChainBreak("s1", 7, "head")


@pytest.mark.parametrize("change", ["removed", "fitted"])
async def test_a_break_is_not_mended_by_what_follows(change: str) -> None:
    """What is appended to a session whose head's link was taken away or forged stands, and the break is still found (C20, EN-21)."""
    store, inner = await chained()
    await filled(store)
    memory = innermost(inner)
    assert isinstance(memory, MemoryStore)
    kept = memory._sessions["s1"]
    last = link_of(kept.events[6])
    assert last is not None
    kept.events.pop()
    if change == "removed":
        metadata = {name: value for name, value in kept.row["metadata"].items() if name != "$chain"}
    else:
        metadata = {**kept.row["metadata"], "$chain": f"{last.text()}.AAAA"}
    kept.row = {**kept.row, "metadata": metadata, "last_seq": 8}
    inner._tips.clear()
    await subject(5).say(store, "s1")
    found = await inner.chain_break("s1")
    assert found is not None
    assert found.seq in {8, 9}
    assert len(await whole_log(store, "s1")) == 9


async def test_a_link_kept_elsewhere_finds_a_store_set_back() -> None:
    """Against a link that was kept a session set back whole, or gone, is named; one that only grew is not (C20, EN-23)."""
    store, inner = await chained()
    await filled(store)
    memory = innermost(inner)
    assert isinstance(memory, MemoryStore)
    kept = memory._sessions["s1"]
    before = kept.row, list(kept.events)
    early = await anchor_of(memory, "s1") or ""
    await subject(5).say(store, "s1")
    late = await anchor_of(memory, "s1") or ""
    for anchor in (early, late):
        assert await set_back(memory, "s1", anchor=anchor) is None
    kept.row, kept.events = before
    assert await inner.chain_break("s1") is None
    assert await set_back(memory, "s1", anchor=early) is None
    assert await set_back(memory, "s1", anchor=late) == ChainBreak("s1", 10, "set back")
    assert await set_back(memory, "ghost", anchor=late) == ChainBreak("ghost", 10, "gone")
    assert await set_back(memory, "s1", anchor="no link") == ChainBreak("s1", 0, "anchor")
    inner._tips.clear()
    await subject(6).say(store, "s1")
    assert await set_back(memory, "s1", anchor=late) == ChainBreak("s1", 10, "set back")


async def test_a_store_stays_chained_whoever_opens_it(tmp_path: Path) -> None:
    """A chained store is chained and read also where the URL does not say so, and its vault remembers it (C18, EN-14)."""
    url = f"sqlite:///{tmp_path}/store.db"
    store, _ = await chained(f"{url}?chain=on")
    await filled(store)
    await store.close()
    for settings in ({"chain": None}, {}):
        vault = SqliteVault(tmp_path / "store.db.keys")
        await vault.set_settings(settings)
        await vault.close()
        again, inner = await chained(url)
        await subject(len(settings) + 7).say(again, "s1")
        assert await inner.chain_break("s1") is None
        await again.close()


async def test_a_store_set_back_whole_holds() -> None:
    """A log cut to an earlier state together with the head of that state is not found, as the page says (EN-23)."""
    store, inner = await chained()
    say = subject()
    await say.begin(store, "s1")
    memory = innermost(inner)
    assert isinstance(memory, MemoryStore)
    before = memory._sessions["s1"].row
    await say.say(store, "s1")
    memory._sessions["s1"].events.pop()
    memory._sessions["s1"].row = before
    assert await inner.chain_break("s1") is None


async def test_verify_reports_the_break(tmp_path: Path) -> None:
    """`verify` of a whole store has the chain's break among its damage, and none where it holds (C20, C16, EN-21)."""
    store, inner = await chained()
    await filled(store)
    assert await store.verify() == []
    memory = innermost(inner)
    assert isinstance(memory, MemoryStore)
    memory._sessions["s1"].events.pop()
    assert [(d.seq, d.reason) for d in await inner.verify()] == [(9, "gap")]


async def test_writers_at_once_make_one_chain(tmp_path: Path) -> None:
    """Appends of two store objects at once stand in one chain, and the callers' own expectations are still refused (C1, EN-22)."""
    url = f"sqlite:///{tmp_path}/store.db?chain=on"
    (one, inner), (two, _) = await chained(url), await chained(url)
    say = subject()
    await say.begin(one, "s1")
    await asyncio.gather(*(say.say(store, "s1", text=str(number)) for number in range(10) for store in (one, two)))
    assert len(await whole_log(two, "s1")) == 21
    assert await inner.chain_break("s1") is None
    with pytest.raises(ConflictError):
        await say.say(two, "s1", expected_seq=20)
    await say.say(two, "s1", expected_seq=21)
    await one.close()
    await two.close()


async def test_a_chain_may_begin_later(tmp_path: Path) -> None:
    """A session begun without the chain is chained from its next event on, and read as before (C18, EN-22)."""
    url = f"sqlite:///{tmp_path}/store.db"
    store = await opened(url)
    say = subject()
    await say.begin(store, "s1")
    await say.say(store, "s1", text="before")
    await store.close()
    later, inner = await chained(f"{url}?chain=on")
    await say.say(later, "s1", text="after")
    assert len(await whole_log(later, "s1")) == 3
    assert await inner.chain_break("s1") is None
    assert await later.verify() == []
    await later.close()


async def test_a_chain_survives_a_new_epoch(tmp_path: Path) -> None:
    """A fresh data key in the middle changes nothing about the chain (C20, EN-9, EN-22)."""
    store, inner = await chained(f"sqlite:///{tmp_path}/store.db?chain=on")
    await filled(store)
    ring = store.store_keys
    assert isinstance(ring, KeyRing)
    assert await ring.new_epoch("s1") == 2
    await subject(3).say(store, "s1")
    assert await inner.chain_break("s1") is None
    await store.close()


async def test_a_chain_needs_keys() -> None:
    """`chain=on` without keys, or any other value, is a StoreUrlError (EN-14)."""
    with pytest.raises(StoreUrlError):
        await open_store("memory://?chain=on")
    with pytest.raises(StoreUrlError):
        await open_store("memory://?chain=off", keys=keys())
