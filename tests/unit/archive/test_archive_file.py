"""The archive file by itself: what is believed of it, and what is refused before it can do harm (C16, B48)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.archive.archive_reader import ArchiveReader
from kipu.archive.archive_writer import BLOCK_BYTES, ArchiveWriter
from kipu.archive.compression import MAX_BLOCK_BYTES, pack, unpack
from kipu.archive.manifest import TRAILER_BYTES, Block, Manifest, Trailer, archive_name, check_name
from kipu.archive.place import FolderPlace
from kipu.errors import ArchiveDamagedError, ArchiveError, ArchiveMissingError, BlobNotFoundError
from kipu.ports.store import Outcome, Record, StoredEvent

NAME = archive_name("s1", last_seq=9, last_event_id="e")


def events(count: int, *, size: int = 50, first: int = 1) -> list[StoredEvent]:
    """Return events with bodies that must come back byte for byte."""
    bodies = [b'{"content": "\xc2\x85 %d %s", "x":1.50}' % (seq, b"z" * size) for seq in range(first, first + count)]
    return [
        StoredEvent(seq, "s1", Record(f"e{seq}", "note", "2026-01-01T00:00:00.000000Z", body, 3, None, "t", "p", 2))
        for seq, body in enumerate(bodies, first)
    ]


async def written(folder: Path, logged: Sequence[StoredEvent], **rest: Any) -> ArchiveReader:
    """Write an archive and open it."""
    place = FolderPlace(folder)
    async with place.writing(NAME) as sink:
        writer = ArchiveWriter(sink, session_id="s1")
        await writer.add_events(logged)
        for digest, data in rest.get("blobs", {}).items():
            await writer.add_blob(digest, data)
        await writer.add_outcomes(rest.get("outcomes", []))
        await writer.finish(head={"title": "t"}, keys=["k"], archived_at="2026-01-01T00:00:00.000000Z")
    return await ArchiveReader.open(place, NAME, session_id="s1")


def forged(folder: Path, manifest: Manifest, blocks: bytes) -> None:
    """Write a file with this manifest and right checksums: what somebody could make on purpose."""
    stored, raw_size, digest = manifest.to_bytes()
    whole = hashlib.sha256(blocks + stored).digest()
    trailer = Trailer(len(blocks), len(stored), raw_size, digest, whole)
    (folder / NAME).write_bytes(blocks + stored + trailer.to_bytes())


def manifest_of(*blocks: Block, count: int = 1, last_seq: int = 9) -> Manifest:
    return Manifest("s1", "2026-01-01T00:00:00.000000Z", 1, last_seq, count, {}, blocks=blocks)


async def test_events_blobs_and_outcomes_come_back_byte_for_byte(tmp_path: Path) -> None:
    """Pages in both directions over many blocks, blobs of many parts and outcomes are what was written (B48, AR-2, AR-4, AR-5)."""
    logged = events(900, size=5000)
    data = bytes(range(256)) * 10_000
    digest = hashlib.sha256(data).hexdigest()
    empty = hashlib.sha256(b"").hexdigest()
    outcomes = [Outcome(f"key {number}", number, number) for number in range(1, 500)]
    reader = await written(tmp_path, logged, blobs={digest: data, empty: b""}, outcomes=outcomes)
    assert len([block for block in reader.manifest.blocks if block.kind == "events"]) > 3
    assert await reader.page(after=0, until=900, limit=2000, backwards=False) == logged
    assert await reader.page(after=100, until=300, limit=50, backwards=True) == logged[250:300][::-1]
    assert await reader.page(after=899, until=905, limit=5, backwards=False) == logged[899:]
    assert await reader.blob(digest) == data
    assert await reader.blob(empty) == b""
    assert await reader.outcomes() == outcomes
    assert await reader.verify() == 900
    with pytest.raises(BlobNotFoundError):
        await reader.blob("0" * 64)


async def test_any_changed_byte_is_found(tmp_path: Path) -> None:
    """Whichever byte of an archive is changed, verifying it or opening it says so (C16, AR-3, AR-7)."""
    await written(tmp_path, events(3), outcomes=[Outcome("k", 1, 1)])
    good = (tmp_path / NAME).read_bytes()
    place = FolderPlace(tmp_path)
    for at in range(len(good)):
        (tmp_path / NAME).write_bytes(good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :])
        with pytest.raises(ArchiveDamagedError):
            await (await ArchiveReader.open(place, NAME, session_id="s1")).verify()
    for length in (0, 1, TRAILER_BYTES - 1, TRAILER_BYTES, len(good) - 1):
        (tmp_path / NAME).write_bytes(good[:length])
        with pytest.raises(ArchiveDamagedError):
            await ArchiveReader.open(place, NAME, session_id="s1")


async def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """A block that unpacks to more than it declares, or declares more than a block may have, is refused before it is (C16, AR-7)."""
    bomb = pack(bytes(64 << 20))
    assert len(bomb) < 10_000
    with pytest.raises(ValueError, match="1000"):
        unpack(bomb, size=1000)
    with pytest.raises(ValueError, match="bytes"):
        unpack(bomb, size=MAX_BLOCK_BYTES + 1)
    digest = hashlib.sha256(b"").hexdigest()
    forged(tmp_path, manifest_of(Block("events", 0, len(bomb), 2000, digest, 1, 1)), bomb)
    reader = await ArchiveReader.open(FolderPlace(tmp_path), NAME, session_id="s1")
    with pytest.raises(ArchiveDamagedError, match="unpacked"):
        await reader.page(after=0, until=9, limit=5, backwards=False)
    forged(tmp_path, manifest_of(Block("events", 0, len(bomb), 1 << 40, digest, 1, 1)), bomb)
    with pytest.raises(ArchiveDamagedError, match="claims"):
        await ArchiveReader.open(FolderPlace(tmp_path), NAME, session_id="s1")
    huge = replace(manifest_of(), head={"x": "y" * (70 << 20)})
    forged(tmp_path, huge, b"")
    with pytest.raises(ArchiveDamagedError, match="too big"):
        await ArchiveReader.open(FolderPlace(tmp_path), NAME, session_id="s1")


@pytest.mark.parametrize(
    "name", ["../s1.9.0123456789ab.kipu.zst", "/etc/passwd", "s1.9.0123456789ab.kipu.zst/../x", "s2.9.0123456789ab.kipu.zst",
             "s1.9.0123456789ab.kipu.zst\n", "", "s1.9.kipu.zst", "s1.-9.0123456789ab.kipu.zst"],
)  # fmt: skip
async def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """A head's note can name only a file of its own session in the place itself (C16, AR-1)."""
    with pytest.raises(ArchiveDamagedError):
        await ArchiveReader.open(FolderPlace(tmp_path), name, session_id="s1")


async def test_a_link_in_the_place_is_not_followed(tmp_path: Path) -> None:
    """A symbolic link under an archive's name is not read (C16)."""
    await written(tmp_path / "elsewhere", events(1))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / NAME).symlink_to(tmp_path / "elsewhere" / NAME)
    with pytest.raises(ArchiveError):
        await ArchiveReader.open(FolderPlace(tmp_path / "here"), NAME, session_id="s1")


@pytest.mark.parametrize(
    "blocks",
    [
        (Block("events", 0, 10, 5, "", 3, 2),),
        (Block("events", 0, 10, 5, "", 1, 4), Block("events", 10, 10, 5, "", 4, 6)),
        (Block("events", 5, 10, 5, "", 1, 4), Block("events", 0, 5, 5, "", 5, 6)),
        (Block("events", 0, 10**9, 5, "", 1, 4),),
        (Block("pictures", 0, 1, 5, "", 1, 4),),
        (Block("events", 0, 10, 5, "", 1, 99),),
        (),
    ],
)
async def test_a_manifest_that_contradicts_itself_is_refused(tmp_path: Path, blocks: tuple[Block, ...]) -> None:
    """Blocks that overlap, lie outside the file, stand out of order or are too few are refused at once (C16, AR-8)."""
    forged(tmp_path, manifest_of(*blocks), b"0" * 100)
    with pytest.raises(ArchiveDamagedError):
        await ArchiveReader.open(FolderPlace(tmp_path), NAME, session_id="s1")


async def test_another_sessions_archive_is_refused(tmp_path: Path) -> None:
    """A file that says another session than its name is not believed (C16)."""
    forged(tmp_path, replace(manifest_of(count=0), session_id="s2"), b"")
    with pytest.raises(ArchiveDamagedError, match="s2"):
        await ArchiveReader.open(FolderPlace(tmp_path), NAME, session_id="s1")


async def test_a_newer_format_is_told_apart_from_damage(tmp_path: Path) -> None:
    """An archive of a format that this Kipu does not know says to update it (C18)."""
    raw = orjson.dumps({"kipu_archive": 99})
    stored = pack(raw)
    trailer = Trailer(0, len(stored), len(raw), hashlib.sha256(raw).digest(), hashlib.sha256(stored).digest())
    (tmp_path / NAME).write_bytes(stored + trailer.to_bytes())
    with pytest.raises(ArchiveDamagedError, match="update Kipu"):
        await ArchiveReader.open(FolderPlace(tmp_path), NAME, session_id="s1")


async def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    """An error while a file is written leaves neither it nor a part of it, and the file before it as it was (A51, A52, A66, AR-10)."""
    await written(tmp_path, events(2))
    before = (tmp_path / NAME).read_bytes()
    place = FolderPlace(tmp_path)

    async def fail() -> None:
        async with place.writing(NAME) as sink:
            await sink.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert (tmp_path / NAME).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert await place.remove(NAME)
    assert not await place.remove(NAME)
    with pytest.raises(ArchiveMissingError):
        await place.size(NAME)


@given(st.lists(st.binary(max_size=200).map(lambda body: body.replace(b"\n", b"")), max_size=12))
def test_a_block_of_any_bodies_comes_back(bodies: list[bytes]) -> None:
    """Packing and unpacking is the identity for any bytes (B48)."""
    raw = b"".join(bodies)
    assert unpack(pack(raw), size=len(raw)) == raw


def test_the_name_is_the_same_for_the_same_log() -> None:
    """An archiving that is done again writes the same file, and one of another log another (B48)."""
    assert archive_name("s1", last_seq=9, last_event_id="e") == NAME == check_name(NAME, session_id="s1")
    assert archive_name("s1", last_seq=9, last_event_id="f") != NAME
    assert BLOCK_BYTES < MAX_BLOCK_BYTES
