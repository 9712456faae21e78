"""Stores on a disk without room: what is there is read where it can be, and every refusal says that it is full."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kipu.errors import StoreFullError
from kipu.ports.store import Record, SessionQuery
from kipu.wiring import open_store

pytestmark = pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="a small disk is mounted by root")
TIME = "2027-01-15T08:00:00.000000Z"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a disk of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _fill(disk: Path) -> None:
    try:
        with open(disk / "rest", "wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
    except OSError:
        return


async def test_full_disk_is_read_and_says_that_it_is_full(disk: Path) -> None:
    """Logs, heads and lists are shown; writes, of terms and at opening too, are StoreFullError until there is room (C16)."""
    url = f"jsonl:///{disk}/store"
    store = await open_store(url)
    await store.append("one", [Record("e1", "session_init", TIME, b"{}")])
    await store.list(SessionQuery())
    _fill(disk)
    assert [event.seq for event in await store.read("one")] == [1]
    head = await store.head("one")
    assert head is not None
    assert [found.last_seq for found in (await store.list(SessionQuery())).items] == [head.last_seq]
    large = Record("e2", "user_message", TIME, b'{"content":"' + b"y" * 9000 + b'"}')
    for key in (None, "a key"):
        with pytest.raises(StoreFullError):
            await store.append("one", [large], idempotency_key=key)
    with pytest.raises(StoreFullError):
        await store.index([], indexed={"one": 1})
    await store.close()
    with pytest.raises(StoreFullError):
        await open_store(url)
    (disk / "rest").unlink()
    store = await open_store(url)
    assert (await store.append("one", [large])).first_seq == 2
    await store.close()


async def test_a_database_on_a_full_disk_says_that_it_is_full(disk: Path) -> None:
    """A process that begins then is told to make room, and not of a fault of the disk; with room all is there (C16)."""
    url = f"sqlite:///{disk}/a.db"
    store = await open_store(url)
    await store.append("one", [Record("e1", "session_init", TIME, b"{}")])
    await store.close()
    _fill(disk)
    with pytest.raises(StoreFullError, match="no room"):
        await open_store(url)
    (disk / "rest").unlink()
    store = await open_store(url)
    assert [event.seq for event in await store.read("one")] == [1]
    await store.close()
