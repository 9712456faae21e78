"""The floor of a JSONL log: what stands below it is none of the log, and a floor that does not hold is no floor that is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kipu.errors import StoreCorruptError
from kipu.ports.store import EventStore, SessionQuery
from kipu.stores.wrapper import innermost
from kipu.testing.conformance.place import UrlPlace
from kipu.testing.conformance.subject import Subject, whole_log


async def let_go(folder: Path) -> tuple[Subject, EventStore]:
    """Return a store with one session of six events that were let go of, and one that came after."""
    subject = Subject(UrlPlace(f"jsonl:///{folder}/store", root=folder))
    store = innermost(await subject.open())
    await subject.begin(store, "s1", title="t")
    for number in range(5):
        await subject.say(store, "s1", idempotency_key=f"k{number}")
    lease = await subject.claim(store, "s1")
    await store.offload("s1", until=6, blobs=[], archive={"of": "a test"}, lease=lease)
    await subject.say(store, "s1", text="after it")
    return subject, store


async def test_segments_below_the_floor_are_none_of_the_log(tmp_path: Path) -> None:
    """Bytes that a kill left below the floor are not read, and a lost index is made anew from the floor on (JL-28)."""
    subject, _ = await let_go(tmp_path)
    folder = tmp_path / "store" / "s1"
    (segment,) = folder.glob("0*.jsonl")
    (folder / "000001.jsonl").write_bytes(segment.read_bytes().replace(b"after it", b"long ago"))
    await subject.close()
    for name in os.listdir(tmp_path / "store"):
        if name.startswith("index.sqlite"):
            (tmp_path / "store" / name).unlink()
    store = innermost(await subject.open())
    head = await store.head("s1")
    assert head is not None
    assert (head.title, head.last_seq, head.offloaded_seq, head.event_count) == ("t", 7, 6, 7)
    assert [event.seq for event in await store.read("s1", after=6)] == [7]
    assert len(await store.outcomes("s1")) == 5
    assert (await subject.say(store, "s1", idempotency_key="k3")).duplicate
    await subject.close()


async def test_a_floor_that_does_not_hold_is_damage(tmp_path: Path) -> None:
    """A damaged floor is StoreCorruptError, never a log without one (JL-28, A50)."""
    subject, _ = await let_go(tmp_path)
    await subject.close()
    floor = tmp_path / "store" / "s1" / "floor.json"
    floor.write_bytes(floor.read_bytes().replace(b'"last_seq":6', b'"last_seq":5'))
    store = innermost(await subject.open())
    with pytest.raises(StoreCorruptError):
        await whole_log(store, "s1")
    await subject.close()


@pytest.mark.parametrize("index", [True, False], ids=["with index", "index deleted"])
async def test_a_floor_that_does_not_hold_hides_no_other_session(index: bool, tmp_path: Path) -> None:
    """The store lists it as unreadable, lists and verifies the others, and a floor put back is read again (A53, C16)."""
    subject, store = await let_go(tmp_path)
    await subject.begin(store, "s2", title="another")
    await subject.close()
    floor = tmp_path / "store" / "s1" / "floor.json"
    whole = floor.read_bytes()
    floor.write_bytes(whole[:-3])
    with (tmp_path / "store" / "s1" / "000002.jsonl").open("ab") as log:
        log.write(b"\n")  # so that the index has to look
    if not index:
        for path in (tmp_path / "store").glob("index.sqlite*"):
            path.unlink()
    store = innermost(await subject.open())
    heads = {head.session_id: head.status for head in (await store.list(SessionQuery())).items}
    assert heads == {"s1": "unreadable", "s2": "active"}
    assert [(damage.session_id, damage.reason) for damage in await store.verify()] == [("s1", "unreadable")]
    await subject.say(store, "s2", text="goes on")
    await subject.close()
    floor.write_bytes(whole)
    store = innermost(await subject.open())
    assert {head.status for head in (await store.list(SessionQuery())).items} == {"active"}
    assert [event.seq for event in await store.read("s1", after=6)] == [7]
    await subject.close()
