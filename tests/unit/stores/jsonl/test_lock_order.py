"""Locks are taken in one order everywhere: the session's, then the index's for writing. Else two processes wait for each other."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import apsw

from kipu.ports.store import SessionQuery
from kipu.stores.jsonl.lock import FileLock
from tests.unit.stores.jsonl.kit import begin, fill, log_of, opened


async def test_index_is_not_locked_by_who_waits_for_a_session(tmp_path: Path) -> None:
    """Who brings the index up to the logs waits for a session without keeping others from the index (A41)."""
    async with opened(tmp_path) as store:
        await begin(store, "one")
        await fill(store, 3, "one")
    os.utime(log_of(tmp_path), (1, 1))  # it is not what the index knows: its row is written anew before it is listed
    lock = FileLock(str(tmp_path / "store" / "one" / "lock"))
    async with opened(tmp_path) as store:
        lock.acquire(wait_s=1.0)
        other = apsw.Connection(str(tmp_path / "store" / "index.sqlite"))
        listing = asyncio.ensure_future(store.list(SessionQuery()))
        for _ in range(20):
            await asyncio.sleep(0.01)
            other.execute("BEGIN IMMEDIATE")  # raises BusyError at once where somebody holds it
            other.execute("ROLLBACK")
        assert not listing.done()
        lock.release()
        assert [head.session_id for head in (await listing).items] == ["one"]
        other.close()
    lock.close()
