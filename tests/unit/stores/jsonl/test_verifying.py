"""Looking over a store in which something cannot be read at all: that is reported, and everything else is looked at too."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.unit.stores.jsonl.kit import begin, fill, log_of, opened

BLOB = b"a big value"
DIGEST = hashlib.sha256(BLOB).hexdigest()


@pytest.mark.parametrize(
    ("name", "session_id", "where"),
    [
        (f"one/blobs/{DIGEST}", "one", f"one/blobs/{DIGEST}"),
        ("one/lease", "one", "one"),
        ("one/000001.jsonl", "one", "one"),
        ("one/quarantine/000001.jsonl-000000000000-1.bytes", "one", None),
        ("bindings.jsonl", None, "bindings.jsonl"),
        (".quarantine/bindings.jsonl-000000000000-1.bytes", None, None),
    ],
    ids=["blob", "lease", "log", "quarantine", "bindings", "store's quarantine"],
)
async def test_what_cannot_be_read_is_one_damage_among_others(
    name: str, session_id: str | None, where: str | None, tmp_path: Path
) -> None:
    """`verify` names it as unreadable, and still finds what is wrong with another session (C16, A53)."""
    async with opened(tmp_path) as store:
        for each in ("one", "two"):
            await begin(store, each)
            await fill(store, 3, each)
            await store.put_blob(each, BLOB)
            await store.bind(f"k:{each}", each)
        await store.claim("one", owner="h/b/1/1/w", ttl_s=15)
    path = tmp_path / "store" / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(path)  # as a sector that cannot be read: opening it is an error of the system, for root too
    log = log_of(tmp_path, "two")
    log.write_bytes(log.read_bytes().replace(b'"content":"2"', b'"content":"x"'))
    async with opened(tmp_path) as store:
        found = await store.verify()
        unreadable = [(damage.session_id, damage.where) for damage in found if damage.reason == "unreadable"]
        assert unreadable == [(session_id, where or name)]
        assert [damage.session_id for damage in found if damage.reason == "checksum"] == ["two"]
