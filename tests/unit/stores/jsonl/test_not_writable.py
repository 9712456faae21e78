"""What a store that is not to be written refuses: every call that would change something, and nothing changes (JL-2, C22)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from kipu.errors import NewerFormatError, StoreClosedError, StoreMovedError
from kipu.ports.store import Lease, StoreMark, Tombstone
from kipu.stores.jsonl import JsonlStore
from tests.unit.stores.jsonl.kit import TIME, begin, opened, record, texts

LEASE = Lease("one", "me", 1, 30.0, TIME)
Call = Callable[[JsonlStore], Awaitable[object]]
BURIED = [Tombstone("gone", TIME)]
CALLS: dict[str, Call] = {
    "append": lambda store: store.append("one", [record("more")]),
    "bind": lambda store: store.bind("key", "one"),
    "claim": lambda store: store.claim("one", owner="you", ttl_s=5),
    "renew": lambda store: store.renew(LEASE),
    "put_blob": lambda store: store.put_blob("one", b"big"),
    "bury": lambda store: store.bury(BURIED),
    "adopt": lambda store: store.adopt("one", lease=LEASE),
    "offload": lambda store: store.offload("one", until=1, blobs=[], archive={"at": "x"}, lease=LEASE),
    "reload": lambda store: store.reload("one", lease=LEASE),
    "erase": lambda store: store.erase("one", lease=LEASE),
}
# A lease may still be given back to a store whose sessions have moved, and its mark and its terms be changed.
MORE: dict[str, Call] = {
    "release": lambda store: store.release(LEASE),
    "set_mark": lambda store: store.set_mark(None),
    "drop_index": lambda store: store.drop_index(),
}


async def _made(folder: Path) -> dict[str, bytes]:
    async with opened(folder) as store:
        await begin(store)
        lease = await store.claim("one", owner="me", ttl_s=30)
        assert lease is not None
        assert lease.token == LEASE.token
    return _files(folder)


def _files(folder: Path) -> dict[str, bytes]:
    """Return what stands in the files that are no cache."""
    files = [path for path in (folder / "store").rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if not path.name.startswith("index.sqlite")
        and path.suffix != ".lock"
        and path.name not in {"kipu.json", "moving.json", "changes"}
    }


async def _answered(store: JsonlStore, calls: dict[str, Call], refusal: type[Exception]) -> list[str]:
    """Return the calls that were not refused as they should be."""
    found = []
    for name, call in calls.items():
        try:
            await call(store)
        except refusal:
            continue
        except Exception as error:  # noqa: BLE001 - told below
            found.append(f"{name}: {error!r}")
        else:
            found.append(name)
    return found


async def test_a_newer_folder_refuses_every_change(tmp_path: Path) -> None:
    """Each writing call is NewerFormatError, and no file is another than before (JL-2, A26)."""
    before = await _made(tmp_path)
    (tmp_path / "store" / "kipu.json").write_text('{"format":999}')
    async with opened(tmp_path) as store:
        assert await _answered(store, CALLS | MORE, NewerFormatError) == []
        assert await texts(store) == ["begin"]
    assert _files(tmp_path) == before


async def test_a_store_whose_sessions_moved_refuses_every_change(tmp_path: Path) -> None:
    """Each call that would change a session or use up an id is StoreMovedError (C22)."""
    before = await _made(tmp_path)
    async with opened(tmp_path) as store:
        await store.set_mark(StoreMark("moved", "move-1", "sqlite:///elsewhere.db"))
        assert await _answered(store, CALLS, StoreMovedError) == []
        assert await texts(store) == ["begin"]
    assert _files(tmp_path) == before


async def test_a_closed_store_answers_nothing(tmp_path: Path) -> None:
    """Every call to a closed store says that it is closed (B49)."""
    await _made(tmp_path)
    async with opened(tmp_path) as store:
        pass
    more: dict[str, Call] = {
        "read": lambda store: store.read("one"),
        "mark": lambda store: store.mark(),
        "tombstones": lambda store: store.tombstones(),
        "index": lambda store: store.index([], indexed={}),
        "resolve": lambda store: store.resolve("key"),
    }
    assert await _answered(store, CALLS | MORE | more, StoreClosedError) == []
