"""A server whose disk has no room: nothing acknowledged is lost, every refusal says why, and it goes on once there is room."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kipu.errors import StoreError, StoreFullError, StoreUnavailableError
from kipu.ports.store import EventStore, IndexEntry
from tests.acceptance.postgres.cluster import Server, a_server
from tests.acceptance.postgres.kit import ask, begin, log, opened, record, text_of
from tests.servers import fresh_schema

pytestmark = pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="a small disk is mounted by root")
LARGE = "x" * 20_000


@contextmanager
def small_disk(*, megabytes: int) -> Iterator[Path]:
    """Give a disk of so many megabytes that a server may write to."""
    place = Path(tempfile.mkdtemp(prefix="kipu-disk-"))
    words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", str(place)]
    try:
        if shutil.which("mount") is None or subprocess.run(words, check=False, capture_output=True).returncode:
            pytest.skip("this machine lets nobody mount")
        place.parent.chmod(place.parent.stat().st_mode | 0o11)
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)
        place.rmdir()


def fill(disk: Path) -> Path:
    """Take all the room that is left, and return what holds it."""
    rest = disk / "rest"
    with suppress(OSError), open(rest, "wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    return rest


async def append_until(error: type[StoreError], store: EventStore, session_id: str) -> list[str]:
    """Append until it is refused by this error, and return what was acknowledged."""
    done: list[str] = []
    for number in range(2_000):
        text = f"{number}{LARGE}"
        try:
            await store.append(session_id, [record(text)])
        except error:
            return done
        done.append(text)
    raise AssertionError("there was room for all of it")


async def test_full_tables_refuse_by_name_and_go_on_by_themselves() -> None:
    """Without room for rows every write is StoreFullError and changes nothing; reads work, and freed room is used at once (C16, PG-26)."""
    with small_disk(megabytes=12) as disk, a_server() as server:
        server.own(disk)
        await ask(server.url, f"CREATE TABLESPACE small LOCATION '{disk}'")
        await ask(server.url, "ALTER DATABASE postgres SET default_tablespace = 'small'")
        async with opened(fresh_schema(server.url)) as store:
            await begin(store, "one")
            rest = disk / "rest"
            rest.write_bytes(b"x" * 4_000_000)
            done = await append_until(StoreFullError, store, "one")
            for key in (None, "a key"):
                with pytest.raises(StoreFullError):
                    await store.append("one", [record(LARGE)], idempotency_key=key)
            with pytest.raises(StoreFullError):
                await store.put_blob("one", os.urandom(200_000))
            terms = tuple(os.urandom(16).hex() for _ in range(20_000))
            with pytest.raises(StoreFullError):
                await store.index([IndexEntry("one", 1, terms)], indexed={"one": 1})
            assert [text_of(event) for event in await log(store, "one")] == ["begin", *done]
            head = await store.head("one")
            assert head is not None
            assert head.last_seq == 1 + len(done)
            rest.unlink()
            appended = await store.append("one", [record("there is room again")], idempotency_key="a key")
            assert (appended.first_seq, appended.duplicate) == (2 + len(done), False)
            assert await store.verify() == []


def move_log(server: Server, disk: Path) -> None:
    """Have a stopped server keep its log on another disk."""
    log_folder = server.data / "pg_wal"
    subprocess.run(["cp", "-a", str(log_folder), str(disk)], check=True)
    shutil.rmtree(log_folder)
    log_folder.symlink_to(disk / "pg_wal")


async def test_server_that_stops_without_room_for_its_log_has_what_was_acknowledged() -> None:
    """A server without room for its own log stops: StoreUnavailableError; started with room again, nothing is lost (C16, PG-26)."""
    with small_disk(megabytes=24) as disk, a_server(wal_segment_megabytes=1) as server:
        await asyncio.to_thread(server.stop)
        server.own(disk)
        move_log(server, disk)
        await asyncio.to_thread(server.start)
        url = fresh_schema(server.url)
        async with opened(f"{url}&statement_timeout_s=2") as store:
            await begin(store, "one")
            rest = fill(disk)
            done = await append_until(StoreUnavailableError, store, "one")
            rest.unlink()
            with suppress(RuntimeError):  # it may be up again by itself
                await asyncio.to_thread(server.start)
            async with asyncio.timeout(60):
                while True:
                    with suppress(StoreUnavailableError):
                        await store.append("one", [record("there is room again")])
                        break
        async with opened(url) as store:
            texts = [text_of(event) for event in await log(store, "one")]
            assert texts[: len(done) + 1] == ["begin", *done]
            assert texts[-1] == "there is room again"
            # What was refused without its outcome being known is there once or not at all.
            assert len(texts) - len(done) in (2, 3)
            assert await store.verify() == []
