"""SIGKILL in a tight append loop: nothing acknowledged is lost or doubled, and the session opens."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from pathlib import Path

import pytest

from kipu.errors import SessionErasedError, SessionExistsError, SessionNotFoundError
from kipu.testing.conformance import Place
from kipu.testing.conformance.contending import contend
from kipu.testing.conformance.erasing import expect_gone, files_with, fill
from kipu.testing.conformance.expectation import expect_error
from kipu.testing.conformance.jobs import erase_one
from kipu.testing.conformance.runner import places_like, subject_at
from kipu.testing.conformance.second_process import ended, start
from kipu.testing.conformance.subject import Subject, text_of, whole_log
from kipu.testing.faults.kill import Killed, kill_writer

STORES = ["sqlite:///x", "jsonl:///x"]
RECORD_BYTES = 10_000
# From arming the timer to the first byte of the write, and to its end, with room on both sides.
SHOT_NS = (16_000, 40_000)
TORN_SHARE = 0.15
LINUX = sys.platform == "linux"


def torn_tails(root: Path) -> int:
    """Return how many logs below `root` end in the middle of a line."""
    logs = [path for path in root.rglob("*.jsonl") if path.parent.name != "quarantine" and path.stat().st_size]
    return sum(not path.read_bytes().endswith(b"\n") for path in logs)


async def expect_kept(place: Place, killed: Killed, *, after: int) -> int:
    """Open the place and say that what the killed writer was told stands once, in order; return the last seq."""
    async with subject_at(place) as subject:
        store = await subject.open()
        events = await store.read("s1", after=after)
        assert [event.seq for event in events] == list(range(after + 1, after + 1 + len(events)))
        numbers = [int(text_of(event).split(".")[1]) for event in events]
        assert numbers == list(range(len(numbers))), "an event is missing, doubled or out of order"
        placed = {number: event.seq for number, event in zip(numbers, events, strict=True)}
        assert all(placed.get(number) == seq for seq, number in killed.told), "an acknowledged event is missing"
        return after + len(events)


def kill_again_and_again(url: str, folder: Path, *, kills: int, seed: int) -> int:
    """Kill a writer `kills` times at one place, check after each, and return how many logs were torn."""
    place = places_like(url)(folder)
    chance = random.Random(seed)

    async def begin() -> None:
        async with subject_at(place) as subject:
            await subject.begin(await subject.open(), "s1")

    asyncio.run(begin())
    last, torn = 1, 0
    aims = url.startswith("jsonl") and LINUX
    for number in range(kills):
        killed = kill_writer(
            place,
            acknowledged=chance.randrange(1, 25),
            then_s=chance.random() * 0.005,
            name=str(number),
            session_id="s1",
            size=RECORD_BYTES,
            at_once=chance.choice([1, 4]),
            shot=(chance.randrange(2, 25), chance.randrange(*SHOT_NS)) if aims else None,
        )
        torn += torn_tails(folder)
        last = asyncio.run(expect_kept(place, killed, after=last))
    return torn


@pytest.mark.parametrize("url", STORES)
def test_store_keeps_what_it_acknowledged_when_killed(url: str, tmp_path: Path) -> None:
    """After SIGKILL in the middle of appending 10 kB events every acknowledged one stands once at its seq (C16, A53, C5)."""
    kill_again_and_again(url, tmp_path, kills=6, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("url", STORES)
def test_store_keeps_what_it_acknowledged_when_killed_500_times(url: str, tmp_path: Path) -> None:
    """500 kills lose and double nothing, and at least 15 % of those of a JSONL log tore a line, or they prove little (C16)."""
    torn = 0
    for part in range(10):
        folder = tmp_path / str(part)
        folder.mkdir()
        torn += kill_again_and_again(url, folder, kills=50, seed=part)
    print(f"{url}: {torn} of 500 kills tore the log")
    if url.startswith("jsonl") and LINUX:
        assert torn >= 500 * TORN_SHARE


@pytest.mark.parametrize("url", STORES)
async def test_erasure_goes_on_after_a_kill(url: str, tmp_path: Path) -> None:
    """An erasure that is killed at any moment leaves the session whole or goes on when called again, to its last byte (C20, C16)."""
    chance = random.Random(7)
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        place = places_like(url)(folder)
        async with subject_at(place) as subject:
            store = await subject.open()
            mark = subject.canary()
            await subject.begin(store, "stays")
            digest = await fill(subject, store, session_id="gone", mark=mark)
        process = await start(erase_one, place, session_id="gone")
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 60)
        await asyncio.sleep(chance.random() * 0.02)
        process.kill()
        await ended(process)
        await _expect_erased_at_last(place, mark, digest=digest, root=folder)


async def _expect_erased_at_last(place: Place, mark: str, *, digest: str, root: Path) -> None:
    async with subject_at(place) as subject:
        subject.clock.advance(10_000)
        store = await subject.open()
        with expect_error(SessionErasedError, SessionExistsError, what="beginning a half-erased session again"):
            await subject.begin(store, "gone")
        with contextlib.suppress(SessionNotFoundError):
            await store.erase("gone", lease=await subject.claim(store, "gone"))
        await expect_gone(subject, store, session_id="gone", mark=mark, digest=digest)
        assert await store.head("stays") is not None
        assert [event.seq for event in await whole_log(store, "stays")] == [1]
    assert files_with(root, mark) == []


@pytest.mark.long
@pytest.mark.parametrize("sessions", [1, 50])
@pytest.mark.parametrize("url", STORES)
async def test_eight_processes_make_one_order(url: str, sessions: int, tmp_path: Path) -> None:
    """8 processes × 200 appends, on one session and on 50, make a total order with no gap and no loss (C1, C16, A74)."""
    async with subject_at(places_like(url)(tmp_path)) as subject:
        await contend(subject, processes=8, count=200, sessions=sessions)


@pytest.mark.parametrize("url", STORES)
async def test_four_processes_make_one_order(url: str, tmp_path: Path) -> None:
    """Processes that append to shared sessions make a total order with no gap and no loss (C1, C16, A74)."""
    async with subject_at(places_like(url)(tmp_path)) as subject:
        assert isinstance(subject, Subject)
        await contend(subject, processes=4, count=30, sessions=5)
