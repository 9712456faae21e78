"""A lease is one session's: with another's, or with one of a session that is gone, nothing is done (C3, LS-3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import LeaseLostError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Record
from kipu.wiring import open_store

TIME = "2027-01-15T08:00:00.000000Z"


@pytest.mark.parametrize("url", ["jsonl:///{}/store", "sqlite:///{}/store", "memory://"])
async def test_a_lease_of_another_session_is_none(tmp_path: Path, url: str) -> None:
    """Though owner and token are the same, it erases nothing, takes nothing in, and archives nothing of this session (C3, C20)."""
    store = await open_store(url.format(tmp_path))
    try:
        leases = {}
        for name in ("one", "two"):
            init = Record(f"begin-{name}", "session_init", TIME, b'{"content":"begin"}')
            await store.append(name, [init], head=HeadPatch(set={"created_at": TIME}))
            lease = await store.claim(name, owner="me", ttl_s=30)
            assert lease is not None
            leases[name] = lease
        assert leases["one"].token == leases["two"].token
        with pytest.raises(LeaseLostError):
            await store.erase("one", lease=leases["two"])
        with pytest.raises(LeaseLostError):
            await store.adopt("one", lease=leases["two"])
        with pytest.raises(LeaseLostError):
            await store.offload("one", until=1, blobs=[], archive={"at": "x"}, lease=leases["two"])
        assert len(await store.read("one")) == 1
        await store.erase("one", lease=leases["one"])
        with pytest.raises(LeaseLostError):
            await store.renew(leases["one"])
        assert await store.release(leases["one"])
        assert (await store.renew(leases["two"])).token == leases["two"].token
    finally:
        await store.close()
