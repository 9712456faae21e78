"""The index follows the logs, whatever happened to it or to them meanwhile (B50, C4)."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from kipu.errors import StoreUnavailableError
from kipu.ports.store import SessionQuery
from kipu.stores.jsonl.index import Index
from tests.unit.stores.jsonl.kit import begin, fill, opened, record


def _sql(folder: Path, statement: str) -> None:
    connection = apsw.Connection(str(folder / "store" / "index.sqlite"))
    connection.execute(statement)
    connection.close()


async def test_a_session_whose_folder_was_taken_away_is_not_listed(tmp_path: Path) -> None:
    """Who removes a folder by hand removes the session from lists too, also in a store that was open (JL-19, B50)."""
    async with opened(tmp_path) as store:
        for name in ("one", "two"):
            await begin(store, name)
    shutil.rmtree(tmp_path / "store" / "one")
    async with opened(tmp_path) as store:
        assert [head.session_id for head in (await store.list(SessionQuery())).items] == ["two"]
        assert await store.head("one") is None


async def test_an_index_of_another_version_is_made_anew(tmp_path: Path) -> None:
    """An index that was not finished, or that another version made, is not believed: keys are read from the logs (JL-18, C4)."""
    async with opened(tmp_path) as store:
        await begin(store)
        first = await store.append("one", [record("once")], idempotency_key="k")
    _sql(tmp_path, "DELETE FROM idempotency; PRAGMA user_version = 0")
    async with opened(tmp_path) as store:
        again = await store.append("one", [record("once")], idempotency_key="k")
        assert (again.first_seq, again.duplicate) == (first.first_seq, True)


async def test_what_the_index_could_not_take_is_listed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append stands when only the index fails, and the next list shows it (JL-19, B50)."""
    async with opened(tmp_path) as store:
        await begin(store)
        assert [head.last_seq for head in (await store.list(SessionQuery())).items] == [1]

        def full(*_: object) -> int:
            raise apsw.FullError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(Index, "put", full)
            appended = await store.append("one", [record("said")], idempotency_key="k")
        assert appended.last_seq == 2
        assert [head.last_seq for head in (await store.list(SessionQuery())).items] == [2]


async def test_an_index_that_says_it_is_damaged_is_made_anew_by_whoever_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an append that met damage in the index the next one meets a new index, not the same damage (JL-18, A53)."""
    async with opened(tmp_path) as store:
        await begin(store)
        built: list[bool] = []
        build = Index.build

        def counting(index: Index) -> None:
            built.append(True)
            build(index)

        def damaged(*_: object, **__: object) -> None:
            raise apsw.CorruptError("malformed")

        monkeypatch.setattr(Index, "build", counting)
        with monkeypatch.context() as patch:
            patch.setattr(Index, "outcome", damaged)
            with pytest.raises(StoreUnavailableError):
                await store.append("one", [record("a")], idempotency_key="k")
        assert (await store.append("one", [record("a")], idempotency_key="k")).last_seq == 2
        assert built == [True]
        await fill(store, 1)
