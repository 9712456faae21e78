"""A copy is believed only when it was read back: targets that keep something else are found out (C22)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import CopyMismatchError
from kipu.manager.copying import copy_store
from kipu.ports.head import EMPTY_PATCH, HeadPatch
from kipu.ports.store import Appended, Record
from kipu.stores.host import this_process_owner
from kipu.stores.wrapper import WrappedStore
from kipu.wiring import open_store

TIME = "2027-01-15T08:00:00.000000Z"


class LyingStore(WrappedStore):
    """A store that acknowledges everything and keeps one thing otherwise."""

    def __init__(self, inner: Any, about: str) -> None:
        super().__init__(inner)
        self.about = about

    async def append(
        self, session_id: str, records: Sequence[Record], *, head: HeadPatch = EMPTY_PATCH, **how: Any
    ) -> Appended:
        if self.about == "body":
            records = [record._replace(body=record.body.replace(b"truth", b"fable")) for record in records]
        if self.about == "tokens":
            records = [record._replace(tokens=0) for record in records]
        if self.about == "head":
            head = head._replace(set={**head.set, "title": "another"})
        return await super().append(session_id, records, head=head, **how)

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        data = await super().get_blob(session_id, digest)
        return data[:-1] if self.about == "blob" else data


@pytest.mark.parametrize("about", ["", "body", "tokens", "head", "blob"])
async def test_a_target_that_keeps_something_else_is_found_out(about: str, tmp_path: Path) -> None:
    """Bodies, token counts, heads and blobs are compared after they were written; a whole copy raises nothing (C22)."""
    source = await open_store(f"sqlite:///{tmp_path}/from.db")
    inner = await open_store(f"jsonl:///{tmp_path}/to")
    head = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME, "title": "the talk"})
    await source.append("one", [Record("e1", "session_init", TIME, b'{"content":"begin"}')], head=head)
    await source.append("one", [Record("e2", "user_message", TIME, b'{"content":"the truth"}', tokens=5)])
    await source.put_blob("one", b"big value")
    try:
        copying = copy_store(source, LyingStore(inner, about), owner=this_process_owner("copy"))
        if not about:
            assert (await copying).sessions == 1
            return
        with pytest.raises(CopyMismatchError) as caught:
            await copying
        assert caught.value.data["session_id"] == "one"
    finally:
        await source.close()
        await inner.close()


async def test_a_blob_that_the_source_damaged_is_not_copied(tmp_path: Path) -> None:
    """Bytes that are others than their digest says are left out and told, and everything else is copied (C22, C16)."""
    source = await open_store(f"jsonl:///{tmp_path}/from")
    target = await open_store(f"sqlite:///{tmp_path}/to.db")
    head = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME})
    await source.append("one", [Record("e1", "session_init", TIME, b'{"content":"begin"}')], head=head)
    damaged, whole = await source.put_blob("one", b"big value"), await source.put_blob("one", b"another")
    (tmp_path / "from" / "one" / "blobs" / damaged).write_bytes(b"wrong value")
    try:
        report = await copy_store(source, target, owner=this_process_owner("copy"))
        assert (report.sessions, report.blobs) == (1, 1)
        assert [damaged in note for note in report.notes] == [True]
        assert await target.blobs("one") == [whole]
    finally:
        await source.close()
        await target.close()
