"""What a refused or damaged write leaves: the old state, and every byte that is no record kept beside it (C16, A52)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from kipu.errors import ConflictError, StoreFullError, StoreUnavailableError
from kipu.ports.store import Binding
from tests.unit.stores.jsonl.kit import begin, fill, log_of, opened, record, texts


async def _made(folder: Path) -> Path:
    async with opened(folder) as store:
        await begin(store)
        await fill(store, 5)
    return log_of(folder)


def _sealed(line: bytes) -> bytes:
    """Return a line with the checksum of what it says now."""
    checked = line.rpartition(b',"c":"')[0]
    return b'%s,"c":"%08x"}\n' % (checked, zlib.crc32(checked))


async def test_a_refused_line_that_could_not_be_cut_off_never_becomes_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When both the sync and the cut after it fail, what was refused is not read, and is gone with the next append (JL-12, A52, C2)."""
    async with opened(tmp_path) as store:
        await begin(store)
        before = log_of(tmp_path).read_bytes()
        with monkeypatch.context() as patch:

            def broken(*_: object) -> None:
                raise OSError(5, "Input/output error")

            patch.setattr(os, "fdatasync", broken)
            patch.setattr(os, "ftruncate", broken)
            with pytest.raises(StoreUnavailableError):
                await store.append("one", [record("refused")])
        assert len(log_of(tmp_path).read_bytes()) > len(before)
        assert await texts(store) == ["begin"]
        await store.append("one", [record("next")])
        assert await texts(store) == ["begin", "next"]
    assert b"refused" not in log_of(tmp_path).read_bytes()
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", "next"]


@pytest.mark.parametrize("cut_fails", [False, True])
async def test_a_handle_whose_sync_failed_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, cut_fails: bool
) -> None:
    """The system may have dropped what a failed sync did not write: the segment is opened anew before the next line (JL-12, C16)."""
    opened_for_writing: list[str] = []
    really = os.open

    def watched(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_WRONLY:
            opened_for_writing.append(str(path))
        return really(path, flags, mode)

    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    async with opened(tmp_path) as store:
        await begin(store)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            if cut_fails:
                patch.setattr(os, "ftruncate", broken)
            with pytest.raises(StoreUnavailableError):
                await store.append("one", [record("lost")])
        monkeypatch.setattr(os, "open", watched)
        await store.append("one", [record("next")])
        assert opened_for_writing == [str(log_of(tmp_path))]
        assert await texts(store) == ["begin", "next"]


async def test_torn_tails_at_one_place_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second torn tail where one was moved away from before is kept beside it, and overwrites nothing (JL-11, C16)."""
    path = await _made(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq":7,"first')
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if os.fstat(fd).st_ino == path.stat().st_ino:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    async with opened(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(StoreFullError):
                await fill(store, 1)
    assert path.read_bytes() == whole
    path.write_bytes(whole + b'{"seq":7,"second')
    async with opened(tmp_path) as store:
        await fill(store, 1)
        kept = [damage.where for damage in await store.verify("one") if "quarantine" in damage.where]
    assert [(tmp_path / "store" / where).read_bytes().rpartition(b"\n")[2] for where in kept] == [
        b'{"seq":7,"first', b'{"seq":7,"second',
    ]  # fmt: skip


async def test_a_line_of_nothing_but_a_mark_is_no_damage(tmp_path: Path) -> None:
    """A byte order mark that stands alone on a line costs nothing (JL-7, situation 10)."""
    path = await _made(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf\n" + path.read_bytes())
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", *"12345"]
        assert await store.verify("one") == []


async def test_lines_of_a_batch_outlive_its_damaged_end(tmp_path: Path) -> None:
    """A batch whose last line is damaged, with events behind it, keeps its other lines: damage hides only itself (JL-8, A53)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.append("one", [record("a"), record("b"), record("c")])
        await store.append("one", [record("d")])
    path = log_of(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"c"', b'"x"', 1)
    path.write_bytes(b"".join(lines))
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", "a", "b", "d"]
        assert await texts(store, backwards=True, limit=3) == ["d", "b", "a"]
        head = await store.head("one")
        assert head is not None
        assert head.last_seq == 5


async def test_a_line_that_stands_twice_counts_once(tmp_path: Path) -> None:
    """A line that a copy doubled is one event, in pages and in the head, and is reported (JL-9, C16)."""
    path = await _made(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[2], lines[4]]))
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", *"12345"]
        head = await store.head("one")
        assert head is not None
        assert (head.event_count, head.last_seq) == (6, 6)
        assert [(d.reason, d.seq) for d in await store.verify("one")] == [("duplicate", 3), ("duplicate", 5)]


async def test_a_patch_of_a_newer_version_costs_the_patch_only(tmp_path: Path) -> None:
    """A head operation that this version does not know is reported; the event and the session are there (C18, A53)."""
    path = await _made(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = _sealed(lines[0].replace(b'"head":{', b'"head":{"future":{"x":1},', 1))
    path.write_bytes(b"".join(lines))
    (tmp_path / "store" / "index.sqlite").unlink()
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", *"12345"]
        assert ["newer version" in (d.detail or "") for d in await store.verify("one")] == [True]


DIES_AFTER_ITS_SYNC = """
import asyncio, os, sys
from kipu.ports.store import Record
from kipu.wiring import open_store

async def main():
    store = await open_store(sys.argv[1])
    really = os.fdatasync
    def dies(fd):
        really(fd)
        os._exit(7)
    os.fdatasync = dies
    record = Record("id-keyed", "user_message", "2027-01-15T08:00:00.000000Z", b'{"content":"keyed"}')
    await store.append("two", [record], idempotency_key="k")

asyncio.run(main())
"""


async def test_the_key_of_a_writer_that_died_is_found_by_a_store_that_was_open(tmp_path: Path) -> None:
    """Killed between the log and the index, its batch is the outcome for whoever comes with the key, to any session (JL-20, C4)."""
    async with opened(tmp_path) as store:
        await begin(store, "one")
        await begin(store, "two")
        url = f"jsonl:///{tmp_path}/store"
        died = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", DIES_AFTER_ITS_SYNC, url], check=False, capture_output=True
        )
        assert died.returncode == 7, died.stderr
        again = await store.append("one", [record("keyed")], idempotency_key="k")
        assert (again.session_id, again.first_seq, again.duplicate) == ("two", 2, True)
        assert await texts(store, "one") == ["begin"]
        assert await texts(store, "two") == ["begin", "keyed"]


async def test_keys_of_others_outlive_an_erasure_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of bindings is written anew beside the old one, which stands until the new one is whole (A51, A52)."""
    bindings = tmp_path / "store" / "bindings.jsonl"
    async with opened(tmp_path) as store:
        for name in ("one", "two"):
            await begin(store, name)
            await store.bind(f"key-{name}", name)
        before = bindings.read_bytes()
        lease = await store.claim("one", owner="me", ttl_s=60)
        assert lease is not None
        write = os.write

        def full(fd: int, data: bytes) -> int:
            if b"key-two" in bytes(data):
                raise OSError(28, "No space left on device")
            return write(fd, data)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(StoreFullError):
                await store.erase("one", lease=lease)
        assert bindings.read_bytes() == before
        assert await store.resolve("key-two") == "two"
    async with opened(tmp_path) as store:
        assert await store.resolve("key-two") == "two"
        assert await store.resolve("key-one") is None


async def test_a_session_that_could_not_begin_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first append fails there is no folder, no session and no used id, and the id can be begun again (A52, C2)."""
    async with opened(tmp_path) as store:
        await begin(store, "other")

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", full)
            with pytest.raises(StoreFullError):
                await begin(store, "one")
        assert not (tmp_path / "store" / "one").exists()
        assert await store.head("one") is None
        await begin(store, "one")
        assert await texts(store, "one") == ["begin"]


async def test_a_binding_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    """A damaged line among the bindings costs that binding, and `verify` says where it stands (A53, B28)."""
    async with opened(tmp_path) as store:
        await begin(store)
        for key in ("a", "b", "c"):
            await store.bind(key, "one")
    path = tmp_path / "store" / "bindings.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"key":"b"', b'"key":"x"')
    path.write_bytes(b"".join(lines))
    async with opened(tmp_path) as store:
        assert [await store.resolve(key) for key in ("a", "b", "c", "x")] == ["one", None, "one", None]
        found = [(damage.where, damage.offset, damage.length) for damage in await store.verify()]
        assert found == [("bindings.jsonl", len(lines[0]), len(lines[1]) - 1)]


async def test_a_lease_that_was_damaged_is_nobodys(tmp_path: Path) -> None:
    """A lease whose checksum does not hold binds nobody: neither its holder nor who comes next (C3, C16)."""
    async with opened(tmp_path) as store:
        await begin(store)
        assert await store.claim("one", owner="me", ttl_s=60) is not None
    path = tmp_path / "store" / "one" / "lease"
    said = path.read_bytes()
    assert b'"until":"20' in said
    path.write_bytes(said.replace(b'"until":"20', b'"until":"99', 1))
    async with opened(tmp_path) as store:
        assert await store.claim("one", owner="somebody else", ttl_s=60) is not None


async def test_one_of_many_that_bind_a_key_at_once_gets_it(tmp_path: Path) -> None:
    """Appends that bind one key in one commit are decided one after another: the first gets it, the others a conflict (A13)."""
    async with opened(tmp_path) as store:
        names = [f"s{number}" for number in range(5)]
        init = record("begin", event_type="session_init")
        outcomes = await asyncio.gather(
            *(store.append(name, [init], bind=Binding("k")) for name in names), return_exceptions=True
        )
        won = [name for name, outcome in zip(names, outcomes, strict=True) if not isinstance(outcome, BaseException)]
        assert won == [await store.resolve("k")]
        assert all(isinstance(outcome, ConflictError) for outcome in outcomes if isinstance(outcome, BaseException))
        assert [await store.head(name) is not None for name in names] == [name in won for name in names]


async def test_a_key_whose_batch_was_refused_leads_where_it_led(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A binding and its batch happen together or not at all, in this process and after reopening (A13, C2)."""
    async with opened(tmp_path) as store:
        await begin(store, "one")
        await begin(store, "two")
        await store.bind("k", "one")
        log = log_of(tmp_path, "two").stat().st_ino
        really = os.fdatasync

        def full(fd: int) -> None:
            if os.fstat(fd).st_ino == log:
                raise OSError(28, "No space left on device")
            really(fd)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", full)
            with pytest.raises(StoreFullError):
                await store.append("two", [record("mine")], bind=Binding("k", "one"))
        assert await store.resolve("k") == "one"
        assert await texts(store, "two") == ["begin"]
    async with opened(tmp_path) as store:
        assert await store.resolve("k") == "one"
        await store.append("two", [record("mine")], bind=Binding("k", "one"))
        assert await store.resolve("k") == "two"
