"""The power fails: what was acknowledged before is on the medium, and the same harness finds losses where nothing is synced."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kipu.testing.conformance.jobs import append_until_killed
from kipu.testing.conformance.runner import places_like, subject_at
from kipu.testing.conformance.second_process import command, environment
from kipu.testing.conformance.subject import text_of, whole_log
from kipu.testing.faults.power_cut import CuttableDisk, NoPowerCutsError, cuttable_disk

STORES = ["sqlite:///x", "jsonl:///x"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[CuttableDisk]:
    """Give a disk whose power can be cut, where this machine can do that."""
    try:
        with cuttable_disk(tmp_path) as made:
            yield made
    except NoPowerCutsError as error:
        pytest.skip(f"this machine cannot cut the power of a disk: {error}")


def cut_once(disk: CuttableDisk, *, url: str, number: int, chance: random.Random) -> int:
    """Append until the power fails and return how many events that were acknowledged before are lost."""
    folder = disk.mount() / str(number)
    folder.mkdir()
    place = places_like(url)(folder)

    async def begin() -> None:
        async with subject_at(place) as subject:
            await subject.begin(await subject.open(), "s1")

    asyncio.run(begin())
    subprocess.run(["sync", "-f", str(folder)], check=True)
    writer = command(append_until_killed, place, name="w", session_id="s1", size=chance.choice([200, 3000]))
    with subprocess.Popen(writer, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(chance.random() * 0.15)  # how long the power holds
        cut_ns = time.monotonic_ns()
        disk.cut()
        process.kill()
        lines = (first + process.stdout.read()).split(b"\n")[:-1]
    told = [(seq, n) for seq, n, at_ns in map(json.loads, lines) if at_ns < cut_ns]
    disk.unmount()
    disk.mount()

    async def count_lost() -> int:
        async with subject_at(place) as subject:
            store = await subject.open()
            if await store.head("s1") is None:
                return len(told)
            events = await whole_log(store, "s1")
            found = {(event.seq, int(text_of(event).split(".")[1])) for event in events if "." in text_of(event)}
            await subject.say(store, "s1", text="goes on")
            return sum(each not in found for each in told)

    lost = asyncio.run(count_lost())
    disk.unmount()
    return lost


@pytest.mark.parametrize("url", STORES)
def test_store_keeps_what_it_acknowledged_when_the_power_fails(url: str, disk: CuttableDisk) -> None:
    """After a power cut every event that was acknowledged before it is there, and the session goes on (C2, C16)."""
    chance = random.Random(3)
    assert [cut_once(disk, url=url, number=number, chance=chance) for number in range(2)] == [0, 0]


@pytest.mark.long
@pytest.mark.parametrize("url", STORES)
def test_store_keeps_what_it_acknowledged_over_60_power_cuts(url: str, disk: CuttableDisk) -> None:
    """60 power cuts lose nothing that was acknowledged (C2, C16)."""
    chance = random.Random(4)
    assert sum(cut_once(disk, url=url, number=number, chance=chance) for number in range(60)) == 0


@pytest.mark.parametrize("url", STORES)
def test_power_cuts_find_losses_where_nothing_is_synced(url: str, disk: CuttableDisk) -> None:
    """With durability=os the same cuts lose acknowledged events, as it says: the harness can find a loss (C2, B54)."""
    chance = random.Random(5)
    lost = [cut_once(disk, url=f"{url}?durability=os", number=number, chance=chance) for number in range(3)]
    assert sum(lost) > 0


@pytest.mark.parametrize("url", STORES)
def test_buffered_store_loses_no_more_than_it_says(url: str, disk: CuttableDisk) -> None:
    """With durability=buffered a power cut takes at most the last 10 acknowledged events of one writer (B53)."""
    chance = random.Random(6)
    lost = [cut_once(disk, url=f"{url}?durability=buffered", number=number, chance=chance) for number in range(2)]
    assert all(each <= 10 for each in lost)
