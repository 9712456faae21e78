"""The file that facts are in: what is refused, what is only read, and that it is nobody's business but its owner's."""

from __future__ import annotations

import asyncio
import os
import warnings
from pathlib import Path

import apsw
import pytest

from kipu.errors import NewerFormatError, StoreCorruptError, StoreReadOnlyError
from kipu.memory.sqlite_memory import SqliteMemory
from kipu.ports.memory import FactQuery
from tests.unit.memory.kit import entry


async def test_a_memory_is_made_with_its_first_fact_and_for_its_owner_only(tmp_path: Path) -> None:
    """Reading and forgetting make no file; what is made, others cannot read (C20)."""
    path = tmp_path / "m.memory"
    memory = SqliteMemory(path)
    assert (await memory.facts(FactQuery())).items == ()
    assert await memory.forget_session("s") == 0
    assert not path.exists()
    await memory.put(entry("mem_1", "the port is 1"))
    assert path.stat().st_mode & 0o777 == 0o600
    await memory.close()


async def test_files_of_others_and_of_newer_versions_are_left_alone(tmp_path: Path) -> None:
    """What is no memory file, or is from a newer Kipu, is an error and keeps every byte (A50, C18)."""
    path = tmp_path / "m.memory"
    for make, error in (
        ("CREATE TABLE other (x)", StoreCorruptError),
        ("PRAGMA user_version = 99", NewerFormatError),
    ):
        path.unlink(missing_ok=True)
        connection = apsw.Connection(str(path))
        connection.execute(make)
        connection.close()
        before = path.read_bytes()
        memory = SqliteMemory(path)
        with pytest.raises(error):
            await memory.put(entry("mem_1", "the port is 1"))
        await memory.close()
        assert path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
async def test_a_memory_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    """Where the file may not be written, facts are given and changes are refused."""
    path = tmp_path / "m.memory"
    memory = SqliteMemory(path)
    await memory.put(entry("mem_1", "the port is 1"))
    await memory.close()
    (tmp_path / "m.memory-journal").unlink(missing_ok=True)
    for place in (tmp_path, *tmp_path.parents[:-2]):
        os.chmod(place, 0o755)
    os.chmod(path, 0o444)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        reader = os.fork()
    if reader == 0:
        os.setuid(65534)
        os._exit(asyncio.run(_only_reads(path)))
    assert os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0


async def _only_reads(path: Path) -> int:
    memory = SqliteMemory(path)
    if len((await memory.facts(FactQuery())).items) != 1:
        return 1
    try:
        await memory.put(entry("mem_2", "the port is 2"))
    except StoreReadOnlyError:
        return 0
    return 2


async def test_two_that_open_a_memory_at_once_both_may(tmp_path: Path) -> None:
    """Whoever comes second finds the tables that the first made, and neither loses a fact."""
    memories = [SqliteMemory(tmp_path / "m.memory") for _ in range(4)]
    await asyncio.gather(*(each.put(entry(f"mem_{n}", f"port {n}")) for n, each in enumerate(memories)))
    assert len((await memories[0].facts(FactQuery())).items) == 4
    for each in memories:
        await each.close()
