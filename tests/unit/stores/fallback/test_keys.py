"""Keys over an outage: bound in the spool, known after a retry, and the primary's after the merge (A49, C2, C4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.ports.head import Head, HeadPatch
from kipu.ports.store import Binding
from kipu.stores.jsonl import JsonlStore
from kipu.testing.fakes import FakeClock, FakeLiveness
from tests.unit.stores.fallback.kit import TIME, begin, log, pair, record


async def test_a_key_bound_during_an_outage_is_the_primarys_after_the_merge(tmp_path: Path) -> None:
    """A binding without an append goes to the spool, and to the primary with the merge (A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        await store.append("one", [record("spooled")])
        await store.bind("k", "one")
        assert await store.resolve("k") == "one"
        primary.refuses = False
        await store.recover()
        assert await primary.resolve("k") == "one"
        assert await store.resolve("k") == "one"


async def test_a_beginning_that_is_tried_again_during_an_outage_is_the_same(tmp_path: Path) -> None:
    """A session that was begun and bound in the spool is found by its key on a retry, before its binding is compared (A49, C2)."""
    async with pair(tmp_path) as (store, primary):
        primary.refuses = True
        patch = HeadPatch(set={"created_at": TIME})
        outcomes = [
            await store.append(
                "new", [record("begin new", "session_init")], head=patch, bind=Binding("k"), idempotency_key="start"
            )
            for _ in range(2)
        ]
        assert [outcome.duplicate for outcome in outcomes] == [False, True]
        assert outcomes[0].first_seq == outcomes[1].first_seq


async def test_what_is_spooled_while_the_merge_runs_is_merged_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may append to the spool until the moment it is forgotten: nothing of it is lost (A49)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        primary.refuses = True
        await store.append("one", [record("early")])
        primary.refuses = False
        other = await JsonlStore.open(tmp_path / "spool", clock=FakeClock(), liveness=FakeLiveness())
        head = primary.head
        asked: list[str] = []

        async def interrupted(session_id: str) -> Head | None:
            asked.append(session_id)
            if len(asked) == 1:
                await other.append("one", [record("late")])
            return await head(session_id)

        monkeypatch.setattr(primary, "head", interrupted)
        await store.recover()
        await other.close()
        assert [text for _, text in await log(primary)] == ["begin one", "early", "late"]
        assert await log(store) == await log(primary)
