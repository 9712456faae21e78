"""What users of session software got into, made again for the stores, with the right outcome asserted (rows of situations.md)."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kipu.errors import KipuError, NewerFormatError, SessionExistsError, SessionNotFoundError, StoreError
from kipu.ports.owner import Owner
from kipu.ports.store import EventStore, Record, SessionQuery
from kipu.stores.host import SystemLiveness, this_process_owner
from kipu.testing.conformance import Place
from kipu.testing.conformance.runner import places_like, subject_at
from kipu.testing.conformance.subject import Subject, texts, whole_log
from kipu.testing.faults import file_damage
from kipu.testing.faults.file_damage import Change
from kipu.wiring import open_store

STORES = ["sqlite:///x", "jsonl:///x"]
JSONL = "jsonl:///x"
LOG = Path("store/s1/000001.jsonl")
EVENTS = 12
ALL = ["begin", *(str(number) for number in range(EVENTS - 1))]


async def made(folder: Path, url: str = JSONL) -> Place:
    """Make a store with one session of twelve events and close it."""
    place = places_like(url)(folder)
    async with subject_at(place) as subject:
        store = await subject.open()
        await subject.begin(store, "s1", title="the session")
        for text in ALL[1:]:
            await subject.say(store, "s1", text=text)
    return place


def without(*gone: str) -> list[str]:
    """Return the texts that must still be there."""
    return [text for text in ALL if text not in gone]


class Row(NamedTuple):
    """One damage: its name, what makes it, the texts that must be left, and the word that reports it."""

    name: str
    change: Change
    kept: list[str]
    reason: str | None


DAMAGES = [Row(*row) for row in [
    ("1 partial line, then the retried line on it", lambda d: file_damage.fuse_with_retry(d, line=5), ALL, "checksum"),
    ("2 torn tail", file_damage.tear_tail, without("10"), "torn"),
    ("4 malformed line in the middle", lambda d: file_damage.malform_line(d, line=5), ALL, "checksum"),
    ("6 zeros at the tail", file_damage.add_zeros, ALL, "torn"),
    ("6 zeros for the last line", lambda d: file_damage.add_zeros(file_damage.tear_tail(d, keep=9)), without("10"), "torn"),
    ("10 byte order mark", file_damage.add_bom, ALL, None),
    ("11 blank lines everywhere", file_damage.add_blank_lines, ALL, None),
    ("15 two writers interleaved", lambda d: file_damage.splice_lines(d, line=5), without("4"), "checksum"),
    ("35 a line is gone", lambda d: file_damage.drop_line(d, line=6), without("5"), "gap"),
    ("38 a record twice", lambda d: file_damage.repeat_line(d, line=6), ALL, "duplicate"),
    ("two lines exchanged", lambda d: file_damage.swap_lines(d, line=6), ALL, "order"),
    ("a line nested too deep", lambda d: file_damage.malform_line(d, line=5, instead=file_damage.deep_nesting()), ALL, "checksum"),
    ("a number too long", lambda d: file_damage.malform_line(d, line=5, instead=file_damage.long_integer()), ALL, "checksum"),
    ("a line in UTF-16", lambda d: file_damage.malform_line(d, line=5, instead='{"a":1}'.encode("utf-16") + b"\n"), ALL, "json"),
]]  # fmt: skip


@pytest.mark.parametrize("index", [True, False], ids=["with index", "index deleted"])
@pytest.mark.parametrize("row", DAMAGES, ids=[row.name for row in DAMAGES])
async def test_log_costs_only_what_was_damaged(row: Row, index: bool, tmp_path: Path) -> None:
    """Rows 1-4, 6, 8, 10, 11, 15, 35, 38: the session opens, keeps every whole record, says what is wrong, goes on (A53, B28, C16)."""
    place = await made(tmp_path)
    file_damage.change_file(tmp_path / LOG, row.change)
    kept, reason = row.kept, row.reason
    if not index:
        delete_index(tmp_path)
    async with subject_at(place) as subject:
        store = await subject.open()
        assert await texts(store, "s1") == kept
        damages = await store.verify("s1")
        if reason is None:
            assert damages == []
        else:
            found = [damage for damage in damages if damage.reason == reason]
            assert found, f"{row.name}: {damages}"
            assert found[0].offset is not None
        assert await texts(store, "s1") == kept, "looking at damage must change nothing"
        await subject.say(store, "s1", text="goes on")
        assert await texts(store, "s1") == [*kept, "goes on"]
        store = await subject.reopen()
        assert await texts(store, "s1") == [*kept, "goes on"]
        assert [head.session_id for head in (await store.list(SessionQuery())).items] == ["s1"]


@pytest.mark.parametrize("index", [True, False], ids=["with index", "index deleted"])
@pytest.mark.parametrize("number", [1, 2])
async def test_segment_that_is_gone_costs_only_itself(number: int, index: bool, tmp_path: Path) -> None:
    """A deleted segment, the first one too, is a gap that verify reports; the rest is read and goes on (A53, C16)."""
    store = await open_store(f"jsonl:///{tmp_path}/store?segment_bytes=4096")
    body = b'{"content":"' + b"x" * 600 + b'"}'
    for seq in range(1, 31):
        kind = "session_init" if seq == 1 else "user_message"
        await store.append("s1", [Record(f"e{seq}", kind, "2027-01-15T08:00:00.000000Z", body)])
    await store.list(SessionQuery())
    await store.close()
    before, gone, after = (tmp_path / f"store/s1/{n:06d}.jsonl" for n in (number - 1, number, number + 1))
    lost = gone.read_bytes().count(b"\n")
    first = 1 + (before.read_bytes().count(b"\n") if before.exists() else 0)
    assert after.exists()
    gone.unlink()
    if not index:
        delete_index(tmp_path)
    kept = [seq for seq in range(1, 31) if not first <= seq < first + lost]
    store = await open_store(f"jsonl:///{tmp_path}/store?segment_bytes=4096")
    try:
        assert [event.seq for event in await store.read("s1")] == kept
        assert [event.seq for event in await store.read("s1", backwards=True)] == kept[::-1]
        assert [(d.reason, d.seq) for d in await store.verify("s1")] == [("gap", first)]
        assert (
            await store.append("s1", [Record("e31", "user_message", "2027-01-15T08:00:00.000000Z", body)])
        ).first_seq == 31
    finally:
        await store.close()


async def test_torn_bytes_are_kept_aside(tmp_path: Path) -> None:
    """Rows 2, 3, 6: what is moved out of a log before the next append is kept, byte for byte, and reported (C16)."""
    place = await made(tmp_path)
    file_damage.change_file(tmp_path / LOG, lambda data: data + b'{"seq":13,"torn and unique')
    async with subject_at(place) as subject:
        store = await subject.open()
        await subject.say(store, "s1", text="goes on")
        damages = await store.verify("s1")
        assert [damage.reason for damage in damages] == ["torn"]
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and b"torn and unique" in path.read_bytes()]
    assert [path.parent.name for path in kept] == ["quarantine"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x00" * 512], ids=["empty", "blank lines", "zeros"])
async def test_empty_log_is_no_crash_and_is_not_overwritten(content: bytes, tmp_path: Path) -> None:
    """Rows 6, 11: a log of nothing opens as an empty store or an error, and the other sessions are all there (A50, C16)."""
    place = await made(tmp_path)
    async with subject_at(place) as subject:
        store = await subject.open()
        await subject.begin(store, "s2")
    (tmp_path / LOG).write_bytes(content)
    delete_index(tmp_path)
    async with subject_at(place) as subject:
        store = await subject.open()
        with contextlib.suppress(StoreError, SessionNotFoundError):
            assert await whole_log(store, "s1") == []
        assert await texts(store, "s2") == ["begin"]


def delete_index(root: Path) -> None:
    """Remove the index that is only a cache."""
    for path in (root / "store").glob("index.sqlite*"):
        path.unlink()


async def visible(store: EventStore) -> object:
    """Return what a list shows, and the logs behind it."""
    heads = (await store.list(SessionQuery())).items
    return [(head, await whole_log(store, head.session_id)) for head in heads]


def delete(root: Path) -> None:
    """Delete the index."""
    delete_index(root)


def overwrite(root: Path) -> None:
    """Overwrite the index by something else."""
    delete_index(root)
    (root / "store" / "index.sqlite").write_bytes(b"not a database at all" * 100)


def empty(root: Path) -> None:
    """Leave an empty index."""
    delete_index(root)
    (root / "store" / "index.sqlite").write_bytes(b"")


def touch(root: Path) -> None:
    """Change every file's time."""
    file_damage.touch_randomly(root)


@pytest.mark.parametrize("harm", [delete, overwrite, empty, touch])
async def test_list_does_not_depend_on_the_index_or_on_file_times(harm: Callable[[Path], None], tmp_path: Path) -> None:
    """Rows 51, 55, 56, 68: with the index gone, overwritten or empty, or all times changed, list and logs are the same (B50)."""
    place = await made(tmp_path)
    async with subject_at(place) as subject:
        store = await subject.open()
        for number in range(5):
            subject.clock.advance(60)
            await subject.begin(store, f"more{number}", tags=["x"])
        before = await visible(store)
    harm(tmp_path)
    async with subject_at(place) as subject:
        assert await visible(await subject.open()) == before


async def test_index_that_is_older_than_the_logs_is_caught_up(tmp_path: Path) -> None:
    """Row 55: logs that grew and appeared behind the index's back are listed with what they hold (B50)."""
    place = await made(tmp_path)
    old = {path.name: path.read_bytes() for path in (tmp_path / "store").glob("index.sqlite*")}
    async with subject_at(place) as subject:
        store = await subject.open()
        await subject.say(store, "s1", text="newer")
        await subject.begin(store, "s2")
    delete_index(tmp_path)
    for name, data in old.items():
        (tmp_path / "store" / name).write_bytes(data)
    async with subject_at(place) as subject:
        store = await subject.open()
        assert (await texts(store, "s1"))[-1] == "newer"
        assert {head.session_id for head in (await store.list(SessionQuery())).items} == {"s1", "s2"}


@pytest.mark.parametrize("url", STORES)
async def test_line_separators_do_not_split_a_record(url: str, tmp_path: Path) -> None:
    """Rows 9, 64, 65: separators, NUL and control characters in a text come back, and no line of a file is split by them (B8)."""
    text = "a\u2028b\u2029c\u0085d\x0be\x1cf\u0000g\x1b[2J\x07"
    place = places_like(url)(tmp_path)
    async with subject_at(place) as subject:
        store = await subject.open()
        await subject.begin(store, "s1")
        await subject.say(store, "s1", text=text)
        store = await subject.reopen()
        assert await texts(store, "s1") == ["begin", text]
    if url == JSONL:
        assert len((tmp_path / LOG).read_text("utf-8").splitlines()) == 2


@pytest.mark.parametrize("url", STORES)
async def test_creating_an_id_that_exists_overwrites_nothing(url: str, tmp_path: Path) -> None:
    """Row 42: a second beginning of an id is refused, and the healthy history stands (A26, B21)."""
    place = await made(tmp_path, url)
    async with subject_at(place) as subject:
        store = await subject.open()
        with pytest.raises(SessionExistsError):
            await subject.begin(store, "s1")
        assert await texts(store, "s1") == ALL


@pytest.mark.parametrize("url", STORES)
async def test_resuming_a_missing_session_creates_nothing(url: str, tmp_path: Path) -> None:
    """Rows 45, 67a: an unknown id is an error, and neither it nor a part of a known id finds or makes a session (A50)."""
    place = await made(tmp_path, url)
    async with subject_at(place) as subject:
        store = await subject.open()
        for unknown in ("s", "s11", "S1", "gone"):
            with pytest.raises(SessionNotFoundError):
                await store.read(unknown)
        assert len((await store.list(SessionQuery())).items) == 1


@pytest.mark.parametrize("url", STORES)
async def test_lease_of_a_reused_process_id_is_over(url: str, tmp_path: Path) -> None:
    """Row 43: a holder whose process id lives on in another process is dead; one that lives is not (C14)."""
    here = Owner.parse(this_process_owner("w"))
    assert here is not None
    reused = here._replace(started="1@" + here.started.partition("@")[2])
    place = await made(tmp_path, url)
    subject = Subject(place)
    store = await place.open(clock=subject.clock, liveness=SystemLiveness())
    try:
        assert await store.claim("s1", owner=str(reused), ttl_s=3600) is not None
        held = await store.claim("s1", owner=str(here), ttl_s=3600)
        assert held is not None, "the reused process id must not hold the session"
        other = here._replace(name="another")
        assert await store.claim("s1", owner=str(other), ttl_s=3600) is None, "a living holder must be left alone"
    finally:
        await store.close()


@pytest.mark.parametrize("url", STORES)
async def test_times_that_make_no_sense_break_no_list(url: str, tmp_path: Path) -> None:
    """Row 58: events with malformed, missing or far times are kept and read in order, and the list stands (C1)."""
    place = await made(tmp_path, url)
    async with subject_at(place) as subject:
        store = await subject.open()
        odd = ["yesterday", "", "-0001-01-01T00:00:00.000000Z", "30000-01-01T00:00:00.000000Z"]
        for number, timestamp in enumerate(odd):
            await store.append("s1", [subject.record(f"odd {number}", timestamp=timestamp)])
        store = await subject.reopen()
        assert (await texts(store, "s1"))[-4:] == [f"odd {number}" for number in range(4)]
        assert len((await store.list(SessionQuery())).items) == 1


@pytest.mark.parametrize("url", STORES)
async def test_files_stay_private_while_they_change(url: str, tmp_path: Path) -> None:
    """Row 78: with umask 0 no file is readable by others, after ten changes of metadata neither (C25)."""
    old = os.umask(0)
    try:
        place = await made(tmp_path, url)
        async with subject_at(place) as subject:
            store = await subject.open()
            for number in range(10):
                await store.bind(f"k:{number}", "s1")
            modes = [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in tmp_path.rglob("*")]
    finally:
        os.umask(old)
    assert set(modes) == {0}


async def test_newer_store_is_opened_for_reading_only(tmp_path: Path) -> None:
    """Row 71: a folder that a newer version wrote is read, and writing to it says why not (C18)."""
    place = await made(tmp_path)
    said = tmp_path / "store" / "kipu.json"
    said.write_text(json.dumps({**json.loads(said.read_text()), "format": 999}))
    async with subject_at(place) as subject:
        store = await subject.open()
        assert await texts(store, "s1") == ALL
        assert store.describe().read_only
        with pytest.raises(NewerFormatError):
            await subject.say(store, "s1")
    assert len(file_damage.lines_of((tmp_path / LOG).read_bytes())) == EVENTS


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads files of any mode")
async def test_unreadable_log_is_not_absent(tmp_path: Path) -> None:
    """Row 73: a log that may not be read is an error, and stands in the list (A50)."""
    place = await made(tmp_path)
    (tmp_path / LOG).chmod(0)
    delete_index(tmp_path)
    await expect_unreadable(place)


async def test_folder_in_place_of_a_log_is_not_absent(tmp_path: Path) -> None:
    """Row 73: where a log cannot be read at all the session is in the list, and reading it is an error (A50)."""
    place = await made(tmp_path)
    (tmp_path / LOG).unlink()
    (tmp_path / LOG).mkdir()
    delete_index(tmp_path)
    await expect_unreadable(place)


async def expect_unreadable(place: Place) -> None:
    """Say that session s1 is listed, not readable, not absent, and not made anew."""
    async with subject_at(place) as subject:
        store = await subject.open()
        with pytest.raises(StoreError):
            await store.read("s1")
        assert [head.session_id for head in (await store.list(SessionQuery())).items] == ["s1"]
        with pytest.raises((StoreError, SessionExistsError)):
            await subject.begin(store, "s1")
        assert [damage.session_id for damage in await store.verify()] == ["s1"]


@pytest.mark.parametrize("url", STORES)
async def test_deleting_a_session_that_is_open_elsewhere_is_final(url: str, tmp_path: Path) -> None:
    """Row 43a: a writer that has the session open gets an error after its deletion, and makes no headless file of it (C20)."""
    place = await made(tmp_path, url)
    async with subject_at(place) as subject:
        writer, eraser = await subject.open(), await subject.open()
        await subject.say(writer, "s1")
        await eraser.erase("s1", lease=await subject.claim(eraser, "s1"))
        with pytest.raises(KipuError):
            await subject.say(writer, "s1")
        assert await writer.head("s1") is None
    assert not (tmp_path / LOG).exists()


@pytest.mark.parametrize("url", STORES)
async def test_bytes_grow_with_what_is_said_only(url: str, tmp_path: Path) -> None:
    """Row 53: 200 rounds of append, fork and reopen cost space in proportion to what was appended (C11)."""
    place = places_like(url)(tmp_path)
    sizes = []
    async with subject_at(place) as subject:
        store = await subject.open()
        await subject.begin(store, "s1")
        for number in range(1, 201):
            await subject.say(store, "s1", text="x" * 1000)
            await subject.begin(store, f"fork{number}", base_seq=number, forked_from="s1")
            if number % 100 == 0:
                store = await subject.reopen()
                sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
    assert sizes[1] < 2.5 * sizes[0]
