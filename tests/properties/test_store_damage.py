"""Flips, cuts and splices anywhere in a log: it opens, every undamaged record is there, the damage is reported with its place."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kipu.ports.store import StoredEvent
from kipu.testing.conformance import Place
from kipu.testing.conformance.runner import places_like, subject_at
from kipu.testing.conformance.subject import whole_log
from kipu.testing.faults import file_damage

LOG = "store/s1/000001.jsonl"
FRESH = itertools.count()


class Original(NamedTuple):
    """A healthy store, its log's bytes, and what the log says."""

    folder: Path
    data: bytes
    events: list[StoredEvent]

    def __repr__(self) -> str:
        return f"<log of {len(self.events)} events>"

    def lines(self) -> list[tuple[int, int]]:
        """Return where each line begins and where the next one does."""
        ends = list(itertools.accumulate(len(line) for line in file_damage.lines_of(self.data)))
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def outside(self, start: int, end: int) -> list[StoredEvent]:
        """Return the events whose lines have no byte between `start` and `end`, nor that place inside them."""
        kept = [n for n, (a, b) in enumerate(self.lines()) if (b <= start or a >= end) and not a < start == end < b]
        return [self.events[n] for n in kept]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """Make a log of single events and one batch, of short and long lines."""
    folder = tmp_path_factory.mktemp("original")

    async def make() -> list[StoredEvent]:
        async with subject_at(places_like("jsonl:///x")(folder)) as subject:
            store = await subject.open()
            await subject.begin(store, "s1")
            await subject.say(store, "s1", text="é\u2028" * 20)
            await store.append("s1", [subject.record(f"batch {n}") for n in range(3)])
            for number in range(6):
                await subject.say(store, "s1", text=f"{number} " + "x" * (number * 211), idempotency_key=str(number))
            return await whole_log(store, "s1")

    events = asyncio.run(make())
    return Original(folder, (folder / LOG).read_bytes(), events)


def damaged_copy(original: Original, root: Path, *, data: bytes, index: bool) -> Place:
    """Return a place like the original's with other bytes in its log, with or without its index."""
    folder = root / str(next(FRESH))
    shutil.copytree(original.folder, folder)
    (folder / LOG).write_bytes(data)
    if not index:
        for path in (folder / "store").glob("index.sqlite*"):
            path.unlink()
    return places_like("jsonl:///x")(folder)


async def expect_salvaged(place: Place, original: Original, *, survivors: list[StoredEvent], data: bytes) -> None:
    """Open, read, verify, append, and open again."""
    async with subject_at(place) as subject:
        store = await subject.open()
        found = await whole_log(store, "s1") if await store.head("s1") is not None else []
        missing = [event.seq for event in survivors if event not in found]
        assert not missing, f"undamaged records are gone: {missing}"
        assert [event for event in found if event not in original.events] == []
        assert [event.seq for event in found] == sorted({event.seq for event in found})
        if len(found) < len(original.events) and data:
            places = [damage.offset for damage in await store.verify("s1")]
            assert [place for place in places if place is not None], "no damage is reported with its place"
        if not found:
            return
        outcome = await subject.say(store, "s1", text="goes on")
        assert outcome.first_seq > found[-1].seq
        store = await subject.reopen()
        again = await whole_log(store, "s1")
        assert [event for event in again if event.seq != outcome.first_seq] == found
        assert again[-1].seq == outcome.first_seq


def check(original: Original, root: Path, *, data: bytes, survivors: list[StoredEvent], index: bool) -> None:
    """Make a damaged copy and check what is salvaged."""
    place = damaged_copy(original, root, data=data, index=index)
    asyncio.run(expect_salvaged(place, original, survivors=survivors, data=data))
    if place.root is not None:
        shutil.rmtree(place.root)


def examples(count: int) -> settings:
    """Return settings for so many examples."""
    calm = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=count, deadline=None, suppress_health_check=calm)


PLACES = st.floats(0, 1, exclude_max=True)


def flips(original: Original, root: Path, *, at: float, bits: int, index: bool) -> None:
    """Flip bits of one byte."""
    offset = int(at * len(original.data))
    data = file_damage.flip_bits(original.data, offset=offset, mask=bits)
    check(original, root, data=data, survivors=original.outside(offset, offset + 1), index=index)


def cuts(original: Original, root: Path, *, at: float, count: int, index: bool) -> None:
    """Cut bytes out, or the tail off."""
    offset = int(at * len(original.data))
    end = min(offset + count, len(original.data))
    data = file_damage.cut_out(original.data, offset=offset, count=count)
    check(original, root, data=data, survivors=original.outside(offset, end), index=index)


def overwrites(original: Original, root: Path, *, at: float, what: bytes, index: bool) -> None:
    """Overwrite bytes by others."""
    offset = int(at * len(original.data))
    end = min(offset + len(what), len(original.data))
    data = file_damage.overwrite(original.data, offset=offset, what=what)
    check(original, root, data=data, survivors=original.outside(offset, end), index=index)


def splices(original: Original, root: Path, *, at: float, what: bytes, index: bool) -> None:
    """Put bytes in."""
    offset = int(at * len(original.data))
    data = file_damage.put_in(original.data, offset=offset, what=what)
    check(original, root, data=data, survivors=original.outside(offset, offset), index=index)


JUNK = st.binary(min_size=1, max_size=300) | st.sampled_from(
    [bytes(4096), b"\n", b"\n\n", b"{}\n", b'{"seq":3', b"\r\n", b"\xef\xbb\xbf"]
)


@examples(20)
@given(at=PLACES, bits=st.integers(1, 255), index=st.booleans())
def test_log_survives_a_flipped_byte(original: Original, tmp_path: Path, at: float, bits: int, index: bool) -> None:
    """One changed byte costs at most the line it stands in (A53, B28, C16)."""
    flips(original, tmp_path, at=at, bits=bits, index=index)


@examples(20)
@given(at=PLACES, count=st.integers(1, 4000), index=st.booleans())
def test_log_survives_a_cut(original: Original, tmp_path: Path, at: float, count: int, index: bool) -> None:
    """Bytes that are missing cost at most the lines they belonged to (A53, C16)."""
    cuts(original, tmp_path, at=at, count=count, index=index)


@examples(20)
@given(at=PLACES, what=JUNK, index=st.booleans())
def test_log_survives_overwritten_bytes(
    original: Original, tmp_path: Path, at: float, what: bytes, index: bool
) -> None:
    """Other bytes in place of some cost at most the lines that those belonged to (A53, C16)."""
    overwrites(original, tmp_path, at=at, what=what, index=index)


@examples(20)
@given(at=PLACES, what=JUNK, index=st.booleans())
def test_log_survives_a_splice(original: Original, tmp_path: Path, at: float, what: bytes, index: bool) -> None:
    """Bytes put in cost at most the line they were put into (A53, C16)."""
    splices(original, tmp_path, at=at, what=what, index=index)


DAMAGES = st.tuples(
    st.sampled_from(["flip", "cut", "overwrite", "splice"]), PLACES, st.integers(1, 4000), JUNK, st.booleans()
)


@pytest.mark.long
@examples(3000)
@given(damage=DAMAGES)
def test_log_survives_any_damage(
    original: Original, tmp_path: Path, damage: tuple[str, float, int, bytes, bool]
) -> None:
    """The same over many more places and kinds (A53, B28, C16)."""
    kind, at, count, what, index = damage
    if kind == "flip":
        flips(original, tmp_path, at=at, bits=count % 255 + 1, index=index)
    elif kind == "cut":
        cuts(original, tmp_path, at=at, count=count, index=index)
    elif kind == "overwrite":
        overwrites(original, tmp_path, at=at, what=what, index=index)
    else:
        splices(original, tmp_path, at=at, what=what, index=index)
