"""What is put on the medium before a call returns: bytes, and the names that lead to them (C2, C16, A51)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kipu.ports.store import Binding, Tombstone
from tests.unit.stores.jsonl.kit import begin, fill, log_of, opened, record


class Medium:
    """The files and folders that were synced, by their paths below the store, in order."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: list[str] = []

    def note(self, fd: int) -> None:
        """Remember one sync."""
        self._seen.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), self._root).removesuffix(" (deleted)"))

    def taken(self) -> list[str]:
        """Return what was synced since this was asked last."""
        seen, self._seen = self._seen, []
        return seen


@pytest.fixture
def medium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Medium:
    """Return a record of every fsync and fdatasync of this process."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("what a handle is open on cannot be seen here")
    medium = Medium(tmp_path / "store")
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def watched(fd: int, real: object = real) -> None:
            medium.note(fd)
            real(fd)  # type: ignore[operator]

        monkeypatch.setattr(os, name, watched)
    return medium


async def test_a_new_session_is_durable_with_its_names(tmp_path: Path, medium: Medium) -> None:
    """Segment, the folder that names it, and the root that names the folder are synced; then appends sync the segment alone (C2)."""
    async with opened(tmp_path) as store:
        file, folder = medium.taken()
        assert (file[:9], folder) == ("kipu.json", ".")
        await begin(store)
        assert set(medium.taken()) == {".", "one", "one/000001.jsonl"}
        await fill(store, 3)
        assert medium.taken() == ["one/000001.jsonl"] * 3


async def test_a_new_segment_is_durable_with_its_name(tmp_path: Path, medium: Medium) -> None:
    """Before the first line of a segment is acknowledged, its name is on the medium (C16, B52)."""
    async with opened(tmp_path, segment_bytes=200) as store:
        await begin(store)
        medium.taken()
        await fill(store, 1)
        assert medium.taken() == ["one/000002.jsonl", "one", "one/000002.jsonl"]


async def test_bindings_are_durable(tmp_path: Path, medium: Medium) -> None:
    """A key is on the medium before `bind` returns, and the intent to bind it before the batch that does (C2, A13)."""
    async with opened(tmp_path) as store:
        await begin(store)
        medium.taken()
        await store.bind("k", "one")
        assert medium.taken() == ["bindings.jsonl", "."]
        await store.bind("l", "one")
        assert medium.taken() == ["bindings.jsonl"]
        await store.append("one", [record()], bind=Binding("m"))
        assert medium.taken() == ["bindings.jsonl", "one/000001.jsonl"]


async def test_blobs_are_durable_with_their_names(tmp_path: Path, medium: Medium) -> None:
    """A blob's bytes, its name and its folder's name are on the medium before an event may refer to it (C2, A51)."""
    async with opened(tmp_path) as store:
        await begin(store)
        medium.taken()
        digest = await store.put_blob("one", b"big")
        first = medium.taken()
        assert first[0] == "one"
        assert first[1].startswith(f"one/blobs/{digest}")
        assert first[2:] == ["one/blobs"]


async def test_quarantined_bytes_are_durable_before_they_are_cut_off(tmp_path: Path, medium: Medium) -> None:
    """A torn tail is on the medium in its new place, names included, before the log is cut back (C16)."""
    async with opened(tmp_path) as store:
        await begin(store)
    with log_of(tmp_path).open("ab") as file:
        file.write(b'{"seq":2,"torn')
    async with opened(tmp_path) as store:
        medium.taken()
        await fill(store, 1)
        synced = medium.taken()
        assert synced[0].startswith("one/quarantine/000001.jsonl-")
        assert synced[1:] == ["one/quarantine", "one", "one/000001.jsonl", "one/000001.jsonl"]


async def test_a_tombstone_is_durable_before_anything_is_removed(tmp_path: Path, medium: Medium) -> None:
    """The tombstone and its folder are synced first; at the end the root, which no longer names the session (C20, A51)."""
    async with opened(tmp_path) as store:
        await begin(store)
        lease = await store.claim("one", owner="me", ttl_s=5)
        assert lease is not None
        medium.taken()
        await store.erase("one", lease=lease)
        synced = medium.taken()
        assert synced[0] == "."
        assert synced[1].startswith(".tombstones/one")
        assert synced[2] == ".tombstones"
        assert synced[-1] == "."


async def test_nothing_is_synced_when_durability_is_os(tmp_path: Path, medium: Medium) -> None:
    """`durability=os` leaves it all to the operating system, as it says (C2)."""
    async with opened(tmp_path, durability="os", segment_bytes=200) as store:
        await begin(store)
        await fill(store, 3)
        await store.put_blob("one", b"big")
        await store.bind("k", "one")
        assert medium.taken() == []


async def test_what_another_process_left_unsynced_is_synced_before_it_is_acknowledged_again(
    tmp_path: Path, medium: Medium
) -> None:
    """A retry that finds its batch in the log, written by a store that does not sync, returns only when it is on the medium (C2)."""
    async with opened(tmp_path, durability="os") as careless, opened(tmp_path) as careful:
        await begin(careless)
        await careful.read("one")
        first = await careless.append("one", [record("once")], idempotency_key="k")
        assert "one/000001.jsonl" not in medium.taken()
        again = await careful.append("one", [record("once")], idempotency_key="k")
        assert (again.first_seq, again.duplicate) == (first.first_seq, True)
        assert medium.taken() == ["one/000001.jsonl"]
        await careful.append("one", [record("once")], idempotency_key="k")
        assert medium.taken() == []


async def test_a_buffer_is_synced_by_the_clock_and_by_closing(
    tmp_path: Path, medium: Medium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that nothing follows is synced within about a second, and closing syncs what is left (JL-13, B53)."""
    synced = asyncio.Event()
    watched = os.fdatasync

    def telling(fd: int) -> None:
        watched(fd)
        synced.set()

    monkeypatch.setattr(os, "fdatasync", telling)
    async with opened(tmp_path, durability="buffered") as store:
        await begin(store)
        await fill(store, 1)
        medium.taken()
        async with asyncio.timeout(60):
            await synced.wait()
        assert medium.taken() == ["one/000001.jsonl"]
        await fill(store, 1)
        assert medium.taken() == []
    assert medium.taken() == ["one/000001.jsonl"]


async def test_a_buried_id_is_durable_with_its_names(tmp_path: Path, medium: Medium) -> None:
    """What a copy takes for used is on the medium before the copy goes on: file, folder, and the folder's name (C20, A51)."""
    async with opened(tmp_path) as store:
        medium.taken()
        await store.bury([Tombstone("gone", "2027-01-01T00:00:00.000000Z")])
        synced = medium.taken()
        assert synced[0] == "."
        assert synced[1].startswith(".tombstones/gone")
        assert synced[2:] == [".tombstones"]


async def test_torn_bindings_are_durable_in_quarantine_before_they_are_cut_off(tmp_path: Path, medium: Medium) -> None:
    """Half a line of bindings is on the medium in its new place, names included, before the next line takes its place (C16)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.bind("k", "one")
    with (tmp_path / "store" / "bindings.jsonl").open("ab") as file:
        file.write(b'{"key":"k","sess')
    async with opened(tmp_path) as store:
        medium.taken()
        await store.bind("l", "one")
        synced = medium.taken()
        assert synced[0].startswith(".quarantine/bindings.jsonl-")
        assert synced[1:] == [".quarantine", ".", "bindings.jsonl"]


async def test_a_buffer_is_synced_by_the_clock_again_and_again(
    tmp_path: Path, medium: Medium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event that nothing follows is synced within about a second, not only the first (JL-13, B53)."""
    synced = asyncio.Event()
    watched = os.fdatasync

    def telling(fd: int) -> None:
        watched(fd)
        synced.set()

    monkeypatch.setattr(os, "fdatasync", telling)
    monkeypatch.setattr("kipu.stores.jsonl.store.BUFFER_S", 0.05)
    async with opened(tmp_path, durability="buffered") as store:
        await begin(store)
        for _ in range(3):
            medium.taken()
            synced.clear()
            await fill(store, 1)
            async with asyncio.timeout(60):
                await synced.wait()
            assert medium.taken() == ["one/000001.jsonl"]
