"""Opening a database file: what is made, what is refused, and that the refused is left as it was."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw
import pytest

from kipu.errors import (
    ConfigurationError,
    NetworkFileSystemError,
    NewerFormatError,
    StoreClosedError,
    StoreCorruptError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreUrlError,
)
from kipu.ports.store import SessionQuery
from tests.unit.stores.sqlite.kit import begin, opened, record


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_files_are_for_their_owner_only_when_the_umask_is_loose(tmp_path: Path, umask: int) -> None:
    """Database, log and shared memory get 0600 and new folders 0700, whatever the umask (SQ-4, situation 78)."""
    before = os.umask(umask)
    try:
        async with opened(tmp_path / "new" / "deep") as store:
            await begin(store)
            for path in [tmp_path / "new", *(tmp_path / "new").rglob("*")]:
                wanted = 0o700 if path.is_dir() else 0o600
                assert stat.S_IMODE(path.stat().st_mode) == wanted, path
            assert {path.name for path in (tmp_path / "new/deep").iterdir()} >= {"store.db", "store.db-wal"}
    finally:
        os.umask(before)


async def test_closing_leaves_one_file(tmp_path: Path) -> None:
    """After close everything is in the database file, and log and shared memory are gone (SQ-20)."""
    async with opened(tmp_path) as store:
        await begin(store)
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]
    with pytest.raises(StoreClosedError):
        await store.head("one")


async def test_a_newer_format_is_read_and_not_written(tmp_path: Path) -> None:
    """A database of a newer format opens for reading, and every write is NewerFormatError (SQ-3, C18, situation 71)."""
    async with opened(tmp_path) as store:
        await begin(store)
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = (tmp_path / "store.db").read_bytes()
    async with opened(tmp_path) as store:
        assert store.describe().read_only
        assert len(await store.read("one")) == 1
        with pytest.raises(NewerFormatError) as caught:
            await store.append("one", [record()])
        assert (caught.value.found, caught.value.known) == (999, 1)
        with pytest.raises(NewerFormatError):
            await store.claim("one", owner="me", ttl_s=5)
    assert (tmp_path / "store.db").read_bytes() == before


async def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """A SQLite file that is not Kipu's is StoreUrlError and stays byte for byte (SQ-2, C16)."""
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("CREATE TABLE theirs(x); INSERT INTO theirs VALUES (1)")
    connection.close()
    before = (tmp_path / "store.db").read_bytes()
    with pytest.raises(StoreUrlError, match="another program"):
        async with opened(tmp_path):
            pass
    assert (tmp_path / "store.db").read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Bytes that are no database are StoreCorruptError, never an empty store, and stay as they are (SQ-2, A50)."""
    (tmp_path / "store.db").write_bytes(b"these are my notes, not a database\n" * 100)
    before = (tmp_path / "store.db").read_bytes()
    with pytest.raises(StoreCorruptError):
        async with opened(tmp_path):
            pass
    assert (tmp_path / "store.db").read_bytes() == before


async def test_reading_only_writes_nothing(tmp_path: Path) -> None:
    """A store opened for reading refuses writes and makes no file (SQ-21)."""
    with pytest.raises(StoreUnavailableError):
        async with opened(tmp_path, read_only=True):
            pass
    assert not list(tmp_path.iterdir())
    async with opened(tmp_path) as store:
        await begin(store)
    before = (tmp_path / "store.db").read_bytes()
    async with opened(tmp_path, read_only=True) as store:
        assert [head.session_id for head in (await store.list(SessionQuery())).items] == ["one"]
        with pytest.raises(StoreReadOnlyError):
            await store.append("one", [record()])
    assert (tmp_path / "store.db").read_bytes() == before


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
async def test_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    """On a network file system nothing is made, and the error names its kind (SQ-10, B59, situation 74)."""
    with pytest.raises(NetworkFileSystemError, match=kind):
        async with opened(tmp_path, kind_of=lambda _: kind):
            pass
    assert not list(tmp_path.iterdir())


async def test_a_network_file_system_gets_a_rollback_journal_when_it_is_allowed(tmp_path: Path) -> None:
    """With network="allow" there is no log and no shared memory, and the store works (SQ-10, B59)."""
    async with opened(tmp_path, kind_of=lambda _: "nfs", network="allow") as store:
        await begin(store)
        await store.append("one", [record()])
        assert len(await store.read("one")) == 2
        assert [path.name for path in tmp_path.iterdir()] == ["store.db"]
        assert "rollback journal" in store.describe().notes[0]


@pytest.mark.parametrize("settings", [{"durability": "maybe"}, {"network": "sure"}])
async def test_an_unknown_setting_is_refused(tmp_path: Path, settings: dict[str, str]) -> None:
    """A durability or network setting that does not exist is StoreUrlError, with nothing made."""
    with pytest.raises(StoreUrlError):
        async with opened(tmp_path, **settings):
            pass
    assert not list(tmp_path.iterdir())


async def test_an_old_engine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine with the log-reset bug is ConfigurationError before any file is touched (SQ-1)."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(ConfigurationError, match=r"3\.51\.2"):
        async with opened(tmp_path):
            pass
    assert not list(tmp_path.iterdir())


async def test_a_search_table_that_keeps_what_is_deleted_is_refused(tmp_path: Path) -> None:
    """A database whose index would not delete securely is not opened for writing (SQ-1, C20)."""
    async with opened(tmp_path) as store:
        await begin(store)
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("INSERT INTO search(search, rank) VALUES ('secure-delete', 0)")
    connection.close()
    with pytest.raises(ConfigurationError, match="securely"):
        async with opened(tmp_path):
            pass
