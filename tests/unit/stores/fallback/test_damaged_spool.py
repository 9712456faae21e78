"""A spool whose files were damaged: the pair opens, merges what can be read, and keeps the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kipu.errors import StoreUnavailableError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Lease
from kipu.testing.faults import file_damage
from tests.unit.stores.fallback.kit import begin, begin_turn, log, pair, record

LOG = Path("spool", "one", "000001.jsonl")
WHOLE = ["begin one", "a", "b", "c", "d"]


async def spooled(folder: Path, change: Callable[[bytes], bytes]) -> bytes:
    """Let the spool hold a, a batch of b and c, and d; damage its log, and return what it was damaged to."""
    async with pair(folder) as (store, primary):
        await begin(store)
        primary.refuses = True
        await store.append("one", [record("a")])
        await store.append("one", [record("b"), record("c")])
        await store.append("one", [record("d")])
    file_damage.change_file(folder / LOG, change)
    return (folder / LOG).read_bytes()


def overwritten(line: int) -> Callable[[bytes], bytes]:
    """Return what overwrites the middle of a line, its end left alone: as many bytes, so that only its checksum tells."""

    def change(data: bytes) -> bytes:
        lines = file_damage.lines_of(data)
        lines[line] = lines[line][:50] + b"#" * 8 + lines[line][58:]
        return b"".join(lines)

    return change


# The marker is line 0.
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], list[str]]] = {
    "a single line": (overwritten(1), ["begin one", "b", "c", "d"]),
    "the first of a batch": (overwritten(2), ["begin one", "a", "c", "d"]),
    "the last of a batch": (overwritten(3), ["begin one", "a", "b", "d"]),
    "the last of the last batch": (
        lambda data: overwritten(3)(b"".join(file_damage.lines_of(data)[:4])),
        ["begin one", "a", "b"],
    ),
    "the last line": (overwritten(4), ["begin one", "a", "b", "c"]),
    "two lines exchanged": (lambda data: file_damage.swap_lines(data, line=3), WHOLE),
    "a torn tail": (lambda data: data + b'{"seq":9,"torn', WHOLE),
    "zeros": (lambda data: data + bytes(300), WHOLE),
    "nothing but zeros": (lambda data: bytes(len(data)), ["begin one"]),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_spool_is_merged_as_far_as_it_can_be_read(damage: str, tmp_path: Path) -> None:
    """The pair opens, every whole record is in the primary once and in order, and the session goes on (A49, A53, C16)."""
    change, kept = DAMAGES[damage]
    await spooled(tmp_path, change)
    async with asyncio.timeout(60), pair(tmp_path) as (store, primary):
        assert [text for _, text in await log(store)] == kept
        assert not (tmp_path / LOG).exists()
        await store.append("one", [record("goes on")])
        assert [text for _, text in await log(primary)] == [*kept, "goes on"]


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "two lines exchanged"])
async def test_what_a_merge_cannot_read_is_kept_and_reported(damage: str, tmp_path: Path) -> None:
    """The bytes that are no record outlive the spooled session, `verify` names them, and an erasure takes them (C16, C20)."""
    change, _ = DAMAGES[damage]
    data = await spooled(tmp_path, change)
    async with asyncio.timeout(60), pair(tmp_path) as (store, _):
        (found,) = await store.verify()
        assert found.offset is not None
        assert found.length
        lost = data[found.offset : found.offset + found.length]
        kept = tmp_path / "spool" / found.where
        assert kept.read_bytes().partition(b"\n")[2] == lost
        lease = await store.claim("one", owner="eraser", ttl_s=30)
        assert isinstance(lease, Lease)
        await store.erase("one", lease=lease)
        assert not kept.exists()
        assert await store.verify() == []


async def test_quarantine_of_a_spooled_session_outlives_its_merge(tmp_path: Path) -> None:
    """What was set aside before an append to the spool is still there, and reported, after the merge (C16)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        for torn in (b'{"torn 0', b'{"torn 1'):
            await store.append("one", [record(torn.decode()[-1])])
            with (tmp_path / LOG).open("ab") as file:
                file.write(torn)
        await store.append("one", [record("2")])
        assert len(list((tmp_path / "spool" / "one" / "quarantine").iterdir())) == 2
        primary.refuses = False
        assert [text for _, text in await log(store)] == ["begin one", "0", "1", "2"]
        aside = [(tmp_path / "spool" / damage.where).read_bytes() for damage in await store.verify()]
        assert sorted(data.partition(b"\n")[2] for data in aside) == [b'{"torn 0', b'{"torn 1']


async def test_patch_of_a_damaged_batch_names_the_records_it_named(tmp_path: Path) -> None:
    """Where a batch has lost its first record, a message that waits is still the one that was said (A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        patch = HeadPatch(insert_at={"waiting": [1]})
        await store.append("one", [record("note", "note"), record("said")], head=patch)
    file_damage.change_file(tmp_path / LOG, overwritten(1))
    async with pair(tmp_path) as (store, primary):
        head = await primary.head("one")
        assert head is not None
        assert await log(store) == [(1, "begin one"), (2, "said")]
        assert head.waiting == (2,)


async def test_what_a_damaged_batch_says_of_its_records_is_said_of_those_that_are_left(tmp_path: Path) -> None:
    """A place and a preview of the record that was lost are gone, and the others are of the record they were of (A49, B50)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        patch = HeadPatch(
            at={"compaction_seq": 0, "instruction_seq": 1},
            previews=[(0, "user_message", "note"), (1, "user_message", "said")],
        )
        await store.append("one", [record("note"), record("said")], head=patch)
    file_damage.change_file(tmp_path / LOG, overwritten(1))
    async with pair(tmp_path) as (store, primary):
        head = await primary.head("one")
        assert head is not None
        assert await log(store) == [(1, "begin one"), (2, "said")]
        assert (head.compaction_seq, head.instruction_seq) == (0, 2)
        assert [(preview.seq, preview.text) for preview in head.previews] == [(2, "said")]


async def test_turn_goes_on_behind_a_lost_line(tmp_path: Path) -> None:
    """What a turn did after a record that was lost is in its session, under its lease, and in no fork (A49, A53, C16)."""
    async with pair(tmp_path) as (store, primary):
        lease = await begin_turn(store)
        primary.refuses = True
        for text in "abc":
            await store.append("one", [record(text, "agent_message")], token=lease.token)
    file_damage.change_file(tmp_path / LOG, overwritten(1))
    async with pair(tmp_path) as (store, primary):
        assert await log(primary) == [(1, "begin one"), (2, "b"), (3, "c")]
        (report,) = store.reports
        assert (report.merged, report.forked) == (2, 0)
        await store.append("one", [record("d", "agent_message")], token=lease.token)


@pytest.mark.parametrize("left", [1, 5])
async def test_patches_behind_a_lost_line_name_the_events_they_named(left: int, tmp_path: Path) -> None:
    """Messages that wait, or do no more, are those that were said, in a merge that was cut too (A49, A53, C16)."""
    arrives = HeadPatch(insert_at={"waiting": [0]})
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        for text in "abcd":
            await store.append("one", [record(text)], head=arrives)
        settled = HeadPatch(discard={"waiting": [2, 4]})
        await store.append("one", [record("a and c are settled", "message_settled")], head=settled)
        await store.append("one", [record("pins a and b")], head=HeadPatch(insert={"pins": [1, 2, 3]}))
        primary.refuses, primary.appends_left = False, left
        file_damage.change_file(tmp_path / LOG, overwritten(1))
        for _ in range(2):
            with suppress(StoreUnavailableError):
                await store.recover()
            primary.appends_left = None
        texts = dict(await log(primary))
        assert list(texts.values()) == ["begin one", "b", "c", "d", "a and c are settled", "pins a and b"]
        head = await primary.head("one")
        assert head is not None
        assert [texts[seq] for seq in head.waiting] == ["b", "d"]
        assert [texts[seq] for seq in head.pins] == ["begin one", "b"]
