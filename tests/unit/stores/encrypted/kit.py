"""Encrypted stores to try, and somebody with the files and without the keys, who changes them with good checksums."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from kipu.ports.head import Head, HeadPatch, head_to_json
from kipu.ports.store import Record, SessionQuery
from kipu.security.key_provider import LocalKeys
from kipu.stores.encrypted import EncryptedStore
from kipu.stores.host import SystemEntropy
from kipu.stores.sqlite import SqliteStore
from kipu.testing.conformance import UrlPlace
from kipu.testing.conformance.subject import Subject
from kipu.testing.fakes import FakeClock, FakeLiveness
from kipu.wiring import open_store

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
Change = Callable[[str, list[Record]], list[Record]]


def keys(*given: bytes) -> LocalKeys:
    """Return a source of these keys, the last one current; without any, of the usual one."""
    return LocalKeys(given or (KEY,), entropy=SystemEntropy())


def subject(seed: int = 0) -> Subject:
    """Return somebody who makes records."""
    return Subject(UrlPlace("memory://"), seed=seed)


async def opened(url: str, source: LocalKeys | None = None) -> EncryptedStore:
    """Return the encrypted store at the URL."""
    store = await open_store(url, clock=FakeClock(), liveness=FakeLiveness(), keys=source or keys())
    assert isinstance(store, EncryptedStore)
    return store


async def inside(path: Path) -> SqliteStore:
    """Return the database as somebody without keys opens it."""
    return await SqliteStore.open(path, clock=FakeClock(), liveness=FakeLiveness())


async def forge(source: Path, target: Path, *, change: Change, head: Callable[[Head], Head] | None = None) -> None:
    """Write to `target` what `change` makes of the sealed records of each session, as a valid database with the same vault."""
    old, new = await inside(source), await inside(target)
    for each in (await old.list(SessionQuery(descending=False))).items:
        records = [event.record for event in await old.read(each.session_id)]
        row = head_to_json(head(each) if head else each)
        kept = {name: row[name] for name in ("title", "first_text", "tags", "metadata", "workspace", "created_at")}
        await new.append(each.session_id, change(each.session_id, records), head=HeadPatch(set=kept))
        for digest in await old.blobs(each.session_id):
            await new.put_blob(each.session_id, await old.get_blob(each.session_id, digest))
    await old.close()
    await new.close()
    shutil.copy(f"{source}.keys", f"{target}.keys")


def replaced(records: Sequence[Record], at: int, body: bytes) -> list[Record]:
    """Return the records with another body at one place."""
    return [record._replace(body=body) if index == at else record for index, record in enumerate(records)]
