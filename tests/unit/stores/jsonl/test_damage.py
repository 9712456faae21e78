"""Torn, fused, spliced and overwritten logs: what they cost, and what is said of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from kipu.errors import SessionExistsError, SessionNotFoundError
from kipu.ports.store import SessionQuery
from tests.unit.stores.jsonl.kit import begin, fill, log_of, opened, record, texts

NUL = b"\0"


async def _made(folder: Path, count: int = 5) -> Path:
    async with opened(folder) as store:
        await begin(store)
        await fill(store, count)
    return log_of(folder)


@pytest.mark.parametrize(
    "tail", [b'{"seq":7,"b":5,"event', NUL * 4096, b'{"seq":7' + NUL * 100, b"\xff\xfe{", b"x" * 200_000]
)
async def test_torn_tail_is_moved_aside_before_the_next_append(tmp_path: Path, tail: bytes) -> None:
    """A torn end goes to quarantine before the next event is written (JL-10, JL-11, JL-14, A53, C16, situations 2, 3, 6)."""
    path = await _made(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", *"12345"]
        torn = [damage for damage in await store.verify("one") if damage.reason == "torn"]
        assert [(damage.offset, damage.length) for damage in torn] == [(len(whole), len(tail))]
        await fill(store, 1)
        assert await texts(store) == ["begin", *"12345", "1"]
        kept = [damage for damage in await store.verify("one") if "quarantine" in damage.where]
        assert [(damage.offset, damage.length) for damage in kept] == [(len(whole), len(tail))]
    held = (tmp_path / "store" / kept[0].where).read_bytes()
    assert held.endswith(tail)
    assert path.read_bytes().startswith(whole + b'{"seq":7,')


async def test_fused_line_gives_the_record_behind_the_torn_one(tmp_path: Path) -> None:
    """A whole record on the same physical line as a torn one is read (JL-8, situations 1, 8)."""
    path = await _made(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:40] + b"".join(lines[3:]))
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", *"12345"]
        damages = await store.verify("one")
        assert [(d.reason, d.offset, d.length) for d in damages] == [("checksum", len(b"".join(lines[:3])), 40)]


async def test_damaged_line_hides_only_itself(tmp_path: Path) -> None:
    """A line in the middle that does not hold costs that event, whichever way it is read (JL-8, A53, B28, situation 4)."""
    path = await _made(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = b"{oops\n"
    path.write_bytes(b"".join(lines))
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", *"1245"]
        assert await texts(store, backwards=True, limit=3) == ["5", "4", "2"]
        found = {(d.reason, d.seq) for d in await store.verify("one")}
        assert found == {("checksum", None), ("gap", 4)}
        await fill(store, 1)
        assert await texts(store, after=5) == ["5", "1"]
        head = await store.head("one")
        assert head is not None
        assert head.last_seq == 7


@pytest.mark.parametrize(
    ("order", "shown", "reasons"),
    [
        ([0, 1, 2, 3, 4, 5, 2], "12345", {"duplicate"}),
        ([0, 1, 4, 5, 2, 3, 4, 5], "12345", {"order", "duplicate"}),
        ([0, 1, 3, 2, 4, 5], "12345", {"order"}),
        ([0, 1, 3, 2, 2, 4, 5], "12345", {"order", "duplicate"}),
        ([0, 1, 2, 4, 5], "1245", {"gap"}),
    ],
)
async def test_spliced_log_shows_every_event_once(
    tmp_path: Path, order: list[int], shown: str, reasons: set[str]
) -> None:
    """Lines that were copied, moved or cut out cost at most themselves, and are reported (JL-9, C16)."""
    path = await _made(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[number] for number in order))
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", *shown]
        assert await texts(store, backwards=True) == ["begin", *shown][::-1]
        assert {damage.reason for damage in await store.verify("one")} == reasons


def _without_last_segment(folder: Path) -> None:
    max((folder / "store" / "one").glob("*.jsonl")).unlink()


def _without_last_line(folder: Path) -> None:
    path = max((folder / "store" / "one").glob("*.jsonl"))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def _with_last_line_rotten(folder: Path) -> None:
    path = max((folder / "store" / "one").glob("*.jsonl"))
    path.write_bytes(path.read_bytes()[:-30] + b"#" * 8 + path.read_bytes()[-22:])


@pytest.mark.parametrize("is_open", [False, True], ids=["opened later", "open"])
@pytest.mark.parametrize("lose", [_without_last_segment, _without_last_line, _with_last_line_rotten])
@pytest.mark.parametrize("segment_bytes", [300, 1 << 20], ids=["segments", "one segment"])
async def test_numbers_of_what_a_log_lost_at_its_end_are_not_given_again(
    tmp_path: Path, lose: Callable[[Path], None], segment_bytes: int, *, is_open: bool
) -> None:
    """What was acknowledged is missed, also where only the index still knows of it, and its number stays its own (JL-34, C1, C16)."""
    async with opened(tmp_path, segment_bytes=segment_bytes) as store:
        await begin(store)
        await fill(store, 6)
        before = await texts(store)
        if is_open:
            lose(tmp_path)
            await fill(store, 1)
    if not is_open:
        lose(tmp_path)
    async with opened(tmp_path, segment_bytes=segment_bytes) as store:
        if not is_open:
            (gap,) = [each for each in await store.verify("one") if each.reason == "gap"]
            left = await texts(store)
            assert gap.seq == len(left) + 1
            assert left == before[: len(left)]
            assert len(left) < len(before)
            with pytest.raises(SessionExistsError):
                await begin(store)
            await fill(store, 1)
        assert [event.seq for event in await store.read("one", backwards=True, limit=1)] == [8]
        (gap,) = [each for each in await store.verify("one") if each.reason == "gap"]
        left = await texts(store)
        assert gap.seq == len(left)
    (tmp_path / "store" / "index.sqlite").unlink()
    async with opened(tmp_path, segment_bytes=segment_bytes) as store:
        assert await texts(store) == left
        assert [each for each in await store.verify("one") if each.reason == "gap"] == [gap]
        await fill(store, 1)
        assert [event.seq for event in await store.read("one", backwards=True, limit=1)] == [9]


async def test_what_the_index_remembers_of_a_folder_that_is_gone_is_nothing_of_the_next(tmp_path: Path) -> None:
    """A session whose folder somebody removed may be begun anew, from its first number, and has nothing of the old one (JL-34)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.append("one", [record("old")], idempotency_key="k")
    shutil.rmtree(tmp_path / "store" / "one")
    async with opened(tmp_path) as store:
        await begin(store)
        assert not (await store.append("one", [record("new")], idempotency_key="k")).duplicate
        assert await texts(store) == ["begin", "new"]
        assert [event.seq for event in await store.read("one")] == [1, 2]
        assert await store.verify() == []


async def test_batch_without_its_last_line_does_not_exist(tmp_path: Path) -> None:
    """A batch that was cut at the end is moved aside as a whole; in the middle its lines stay (JL-10, C2)."""
    path = await _made(tmp_path)
    async with opened(tmp_path) as store:
        await store.append("one", [record("a"), record("b"), record("c")])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:-9])
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", *"12345"]
        await fill(store, 1)
        assert await texts(store, after=6) == ["1"]
        kept = [damage for damage in await store.verify("one") if "quarantine" in damage.where]
        assert kept[0].offset == len(b"".join(lines[:6]))


async def test_bom_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    """A byte order mark and blank lines cost nothing (JL-7, situation 10)."""
    path = await _made(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\n\n", 2))
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", *"12345"]
        assert await texts(store, backwards=True, limit=2) == ["5", "4"]
        assert await store.verify("one") == []


@pytest.mark.parametrize("content", [b"", b"\n\n"])
async def test_empty_log_is_listed_and_may_be_begun(tmp_path: Path, content: bytes) -> None:
    """A file without a record is an empty session, no error and no ghost (JL-15, situation 11)."""
    path = log_of(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    async with opened(tmp_path) as store:
        listed = (await store.list(SessionQuery())).items
        assert [(head.session_id, head.event_count) for head in listed] == [("one", 0)]
        assert await texts(store) == []


async def test_foreign_line_is_reported_and_not_shown(tmp_path: Path) -> None:
    """A line of another session in this one's file is no event of this session (JL-7, B38, situation 41)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await begin(store, "two")
        await fill(store, 1, "two")
    stray = log_of(tmp_path, "two").read_bytes().splitlines(keepends=True)[1]
    with log_of(tmp_path).open("ab") as file:
        file.write(stray)
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin"]
        assert [damage.reason for damage in await store.verify("one")] == ["foreign"]


async def test_large_record_is_not_damage(tmp_path: Path) -> None:
    """A record of 20 MB is written, found from both ends and passed over like any other (situation 17)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.append("one", [record("x" * 20_000_000)])
        await fill(store, 1)
    async with opened(tmp_path) as store:
        assert await texts(store, backwards=True, limit=1) == ["1"]
        assert [len(text) for text in await texts(store)] == [5, 20_000_000, 1]
        assert await store.verify() == []


async def test_what_never_ended_in_a_segment_that_is_not_the_last_is_reported_where_it_stands(tmp_path: Path) -> None:
    """Bytes without a line end before another segment are damage of their own place, and every event is read (JL-10, C16)."""
    async with opened(tmp_path, segment_bytes=300) as store:
        await begin(store)
        await fill(store, 4)
    path = log_of(tmp_path)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"seq":9,"torn')
    async with opened(tmp_path, segment_bytes=300) as store:
        assert await texts(store) == ["begin", *"1234"]
        found = [(each.reason, each.where, each.offset, each.length) for each in await store.verify("one")]
        assert found == [("torn", "one/000001.jsonl", size, 14)]


@pytest.mark.parametrize("content", [b"\n", b"\n\n"])
async def test_log_of_blank_lines_may_be_begun(tmp_path: Path, content: bytes) -> None:
    """Lines without a record are no session: nothing is appended to it, and it begins as a new one does (JL-7, JL-15)."""
    path = log_of(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    async with opened(tmp_path) as store:
        with pytest.raises(SessionNotFoundError):
            await fill(store, 1)
        await begin(store)
        await fill(store, 2)
        assert await texts(store) == ["begin", "1", "2"]
        assert await store.verify() == []


@pytest.mark.parametrize("content", [b'{"a":1}\n', b"null\n", b"\0\0\n"])
async def test_log_of_which_every_line_is_damaged_goes_on(tmp_path: Path, content: bytes) -> None:
    """It is no session that may be begun, since there was one; what is appended stands behind, the damage stays (A50, C16)."""
    path = log_of(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    async with opened(tmp_path) as store:
        with pytest.raises(SessionExistsError):
            await begin(store)
        lease = await store.claim("one", owner="h/b/1/1/w", ttl_s=15)
        assert lease is not None
        await fill(store, 2)
        assert not await store.release(lease, expected_seq=0)
        assert await texts(store) == ["1", "2"]
        assert [damage.reason for damage in await store.verify()] == [{b"{": "checksum"}.get(content[:1], "json")]
    assert path.read_bytes().startswith(content)


@pytest.mark.parametrize("damaged", [True, False])
@pytest.mark.parametrize("segment_bytes", [900, 1 << 20])
async def test_any_window_of_a_log_has_the_events_of_that_place(
    tmp_path: Path, segment_bytes: int, *, damaged: bool
) -> None:
    """Wherever a page begins and ends, forwards or backwards, over segments and around damage, it is that of the whole log (B6, A53)."""
    async with opened(tmp_path, segment_bytes=segment_bytes) as store:
        await begin(store)
        await fill(store, 24)
    if damaged:
        path = log_of(tmp_path)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"content"', b'"contend"'), *lines[3:]]))
    async with opened(tmp_path, segment_bytes=segment_bytes) as store:
        whole = [(event.seq, event.record.event_id) for event in await store.read("one")]
        assert [seq for seq, _ in whole] == [seq for seq in range(1, 26) if not (damaged and seq == 3)]
        bounds = [None, 0, 2, 3, 5, 13, 24, 25, 40]
        for after, until, limit, backwards in product((0, 1, 2, 3, 6, 14, 23, 25), bounds, (1, 4, 30), (False, True)):
            found = await store.read("one", after=after, until=until, limit=limit, backwards=backwards)
            wanted = [item for item in whole if after < item[0] <= (99 if until is None else until)]
            wanted = wanted[::-1][:limit] if backwards else wanted[:limit]
            assert [(event.seq, event.record.event_id) for event in found] == wanted
