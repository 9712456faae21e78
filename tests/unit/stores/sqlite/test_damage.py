"""Damage: what is flipped is hidden and reported, what is whole is read."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from kipu.errors import StoreCorruptError
from kipu.ports.store import IndexEntry, SessionQuery
from tests.unit.stores.sqlite.kit import begin, opened, record


def _change(folder: Path, sql: str) -> None:
    connection = apsw.Connection(str(folder / "store.db"))
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "body = CAST(replace(body, 'three', 'thief') AS BLOB)",
        "timestamp = '2027-01-15T08:00:00.000001Z'",
        "event_type = 'agent_message'",
        "tokens = tokens + 1",
        "principal = 'somebody'",
        "v = 2",
        "body = CAST(body AS TEXT)",
        "event_id = CAST(x'ff' AS TEXT)",
    ],
)
async def test_a_changed_row_hides_only_itself(tmp_path: Path, change: str) -> None:
    """Whatever of a row changed, it is not given as true; the others are, and verify tells its seq (SQ-15, A53, C16)."""
    async with opened(tmp_path) as store:
        await begin(store)
        for word in ("two", "three", "four"):
            await store.append("one", [record(word)])
    _change(tmp_path, f"UPDATE events SET {change} WHERE seq = 3")
    async with opened(tmp_path) as store:
        assert [event.seq for event in await store.read("one")] == [1, 2, 4]
        assert [event.seq for event in await store.read("one", backwards=True, limit=3)] == [4, 2, 1]
        assert [(d.session_id, d.reason, d.seq) for d in await store.verify()] == [("one", "checksum", 3)]
        assert (await store.append("one", [record("five")])).first_seq == 5


async def test_a_missing_row_is_a_reported_gap(tmp_path: Path) -> None:
    """A row that is gone is reported with its place, in the middle and at the end (SQ-15, C16)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.append("one", [record(str(n)) for n in range(5)])
    _change(tmp_path, "DELETE FROM events WHERE seq IN (3, 4, 6)")
    async with opened(tmp_path) as store:
        assert [(d.reason, d.seq, d.length) for d in await store.verify("one")] == [("gap", 3, 2), ("gap", 6, 1)]


async def test_a_changed_head_is_an_error_and_still_listed(tmp_path: Path) -> None:
    """A head that does not match its checksum is StoreCorruptError, never "no session", and other sessions go on (SQ-16, A50)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await begin(store, "two")
    _change(tmp_path, "UPDATE heads SET data = substr(data, 3) WHERE session_id = 'one'")
    async with opened(tmp_path) as store:
        with pytest.raises(StoreCorruptError, match="one"):
            await store.head("one")
        with pytest.raises(StoreCorruptError):
            await store.append("one", [record()])
        assert {head.session_id for head in (await store.list(SessionQuery())).items} == {"one", "two"}
        assert (await store.append("two", [record()])).first_seq == 2
        assert [event.seq for event in await store.read("one")] == [1]
        assert [(d.reason, d.where) for d in await store.verify("one")] == [("checksum", "heads")]


@pytest.mark.parametrize(
    "data",
    [
        "",
        "{",
        "null",
        "7",
        "[1]",
        '"one"',
        "{}",
        '{"session_id": "one", "pins": 1}',
        '{"session_id": "a"}, {"session_id": "b"}',
    ],
)
async def test_a_head_that_is_none_hides_no_other(tmp_path: Path, data: str) -> None:
    """Whatever stands in a head's place, its session is listed by its id and the others as they are (SQ-16, A50, situation 73)."""
    async with opened(tmp_path) as store:
        for session_id in ("before", "one", "past"):
            await begin(store, session_id)
        whole = {head.session_id: head for head in (await store.list(SessionQuery())).items}
    _change(tmp_path, f"UPDATE heads SET data = '{data}' WHERE session_id = 'one'")
    async with opened(tmp_path) as store:
        listed = {head.session_id: head for head in (await store.list(SessionQuery())).items}
    assert listed.pop("one").status == "unreadable"
    assert listed == {"before": whole["before"], "past": whole["past"]}


async def test_a_changed_blob_is_reported(tmp_path: Path) -> None:
    """A blob whose bytes are not those of its digest is reported (SQ-15)."""
    async with opened(tmp_path) as store:
        await begin(store)
        digest = await store.put_blob("one", b"picture")
    _change(tmp_path, "UPDATE blobs SET data = x'00'")
    async with opened(tmp_path) as store:
        assert [(d.reason, d.where, d.detail) for d in await store.verify()] == [("checksum", "blobs", digest)]


async def test_events_around_a_broken_page_are_read(tmp_path: Path) -> None:
    """Where a whole page is unreadable, the events of the others are read, and verify reports pages and events (SQ-15, A53)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.append("one", [record(f"{n:04}" * 300) for n in range(60)])
    path = tmp_path / "store.db"
    data = bytearray(path.read_bytes())
    page = data.index(b"0030" * 300) // 4096 * 4096
    data[page : page + 4096] = b"\x99" * 4096
    path.write_bytes(data)
    async with opened(tmp_path) as store:
        seqs = [event.seq for event in await store.read("one")]
        assert 32 not in seqs
        assert len(seqs) >= 55
        assert {d.reason for d in await store.verify()} >= {"page", "checksum"}


async def test_verify_finds_nothing_in_an_index_that_changed_since_it_looked(tmp_path: Path) -> None:
    """A store that is looked over again and again while texts are indexed is never told to be damaged (A53, C16)."""
    async with opened(tmp_path) as store:
        await begin(store)
        for number in range(40):
            seq = (await store.append("one", [record(f"text {number}")])).first_seq
            await store.index([IndexEntry("one", seq, ("text", f"number{number}"))], indexed={"one": seq})
            assert await store.verify() == [], number
