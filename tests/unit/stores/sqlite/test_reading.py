"""Lists, search and following: how pages are found, and how fast others' events are seen."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import apsw
import pytest

from kipu.errors import InvalidQueryError
from kipu.ports.head import HeadPatch
from kipu.ports.store import IDEMPOTENCY_RETENTION_S, IndexEntry, Phrase, SearchQuery, SessionQuery
from kipu.stores.paging import encode_cursor
from kipu.stores.tables.head_query import head_statement
from kipu.stores.tables.search_table import joined
from kipu.testing.fakes import FakeClock
from tests.unit.stores.sqlite.kit import TIME, begin, opened, record

PLACE = encode_cursor(TIME, "one")


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (SessionQuery(), "heads_by_activity"),
        (SessionQuery(cursor=PLACE), "heads_by_activity"),
        (SessionQuery(cursor=PLACE, descending=False), "heads_by_activity"),
        (SessionQuery(cursor=PLACE, order="created_at"), "heads_by_creation"),
        (SessionQuery(cursor=PLACE, owner="me", tenant="t", statuses=frozenset({"active"})), "heads_by_owner"),
        (SessionQuery(cursor=PLACE, metadata={"topic": "x"}, tags=frozenset({"a"})), "heads_by_activity"),
        (SessionQuery(cursor=PLACE, created_after=TIME, active_before=TIME), "heads_by_activity"),
    ],
)
async def test_pages_come_from_an_index_in_their_order(tmp_path: Path, query: SessionQuery, index: str) -> None:
    """A page, first or deep, is read off an index in order: nothing is sorted and nothing before it is read (SQ-17, B26)."""
    async with opened(tmp_path) as store:
        await begin(store)
    connection = apsw.Connection(str(tmp_path / "store.db"))
    sql, bindings = head_statement(query, limit=100)
    plan = " ".join(str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings))
    connection.close()
    assert index in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize(("order", "index"), [("last_activity_at", "activity"), ("created_at", "creation")])
async def test_pages_of_what_is_shared_come_from_an_index_in_their_order(
    tmp_path: Path, order: str, index: str
) -> None:
    """What an id shares is read off an index of members, a deep page as the first; only the two short halves are merged (SQ-17, C19)."""
    async with opened(tmp_path) as store:
        await begin(store)
    connection = apsw.Connection(str(tmp_path / "store.db"))
    sql, bindings = head_statement(SessionQuery(cursor=PLACE, visible_to="me", tenant="t", order=order), limit=100)
    plan = [str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
    connection.close()
    assert any(f"members USING COVERING INDEX members_by_{index}" in step for step in plan), plan
    assert any("heads USING INTEGER PRIMARY KEY" in step for step in plan)
    own = f"heads USING INDEX heads_by_owner{'_creation' * (order == 'created_at')} (owner=? AND ({order}"
    assert any(own in step for step in plan), plan


async def test_metadata_is_compared_by_type_and_value(tmp_path: Path) -> None:
    """Text is not a number, true is not 1, absent is None, and objects are equal whatever their order (SQ-17, B26)."""
    async with opened(tmp_path) as store:
        values = {"text": "1", "number": 1, "yes": True, "nested": {"a": 1, "b": [2]}, "absent": None}
        for name, value in values.items():
            await begin(store, name, metadata={"x": value, "wü.rd[0]": "odd"})

        async def found(value: object) -> list[str]:
            page = await store.list(SessionQuery(metadata={"x": value}))
            return [head.session_id for head in page.items]

        assert await found("1") == ["text"]
        assert await found(1) == ["number"]
        assert await found(True) == ["yes"]
        assert await found({"b": [2], "a": 1}) == ["nested"]
        assert await found(None) == ["absent"]
        assert len((await store.list(SessionQuery(metadata={"wü.rd[0]": "odd"}))).items) == 5
        with pytest.raises(InvalidQueryError):
            await store.list(SessionQuery(metadata={'a"b': 1}))


async def test_tags_are_found_whole(tmp_path: Path) -> None:
    """A tag is found by its whole text, quotes, commas and separators included (SQ-17)."""
    tags = ["a", "a,b", 'say "a"', "\x1f", ",", "ab"]
    async with opened(tmp_path) as store:
        for number, tag in enumerate(tags):
            await begin(store, f"s{number}", tags=[tag, "x,"])
        for number, tag in enumerate(tags):
            page = await store.list(SessionQuery(tags=frozenset({tag})))
            assert [head.session_id for head in page.items] == [f"s{number}"]


@pytest.mark.parametrize(
    "term", ["Hello", "a b", "", "%", "%41", 'q"q', "it's", "NEAR", "*", "a*b", "悬空", "\x00", "\n", "ÀÉ", "x" * 5_000]
)
async def test_a_term_is_one_token_whatever_it_holds(tmp_path: Path, term: str) -> None:
    """Any text is found as the term it is, and not as its lower case or its parts (SQ-18, B60)."""
    others = {term.lower(), *term.split(), "41", "A", "hello"} - {term, ""}
    async with opened(tmp_path) as store:
        await begin(store)
        await store.append("one", [record()])
        await store.index([IndexEntry("one", 1, ("x", term, "y")), IndexEntry("one", 2, tuple(others))], indexed={})
        page = await store.search(SearchQuery((Phrase(("x", term, "y")),)))
        assert [hit.seq for hit in page.items] == [1]
        alone = await store.search(SearchQuery((Phrase((term,)),)))
        assert [hit.seq for hit in alone.items] == [1]
    assert joined(["plain", "悬空"]) == "plain 悬空"


async def test_a_key_is_forgotten_after_its_retention(tmp_path: Path) -> None:
    """Within the retention a key returns the first outcome; after it, it is a new one, and old keys are removed (SQ-19, C4)."""
    clock = FakeClock()
    async with opened(tmp_path, clock=clock, durability="os") as store:
        await begin(store)
        for number in range(40):
            await store.append("one", [record()], idempotency_key=f"old{number}")
        clock.advance(IDEMPOTENCY_RETENTION_S - 1)
        assert (await store.append("one", [record()], idempotency_key="old0")).duplicate
        clock.advance(2)
        assert not (await store.append("one", [record()], idempotency_key="old0")).duplicate
        for number in range(40):
            await store.append("one", [record()], idempotency_key=f"new{number}")
    connection = apsw.Connection(str(tmp_path / "store.db"))
    kept = connection.execute("SELECT count(*) FROM idempotency WHERE key LIKE 'old%'").fetchone()
    connection.close()
    assert kept is not None
    assert int(str(kept[0])) <= 10


async def test_others_events_are_seen_within_fifty_milliseconds(tmp_path: Path) -> None:
    """A follower sees what another connection commits within 50 ms, its own store's at once (SQ-20, C13)."""
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await begin(store)
        for following in (store.follow("one", after=1), store.follow()):
            delays_s = []
            for _ in range(5):
                waiting = asyncio.ensure_future(anext(following))
                await asyncio.sleep(0)
                await other.append("one", [record()])
                committed_s = time.perf_counter()
                await waiting
                delays_s.append(time.perf_counter() - committed_s)
            assert min(delays_s) < 0.05


async def test_following_polls_only_while_somebody_waits(tmp_path: Path) -> None:
    """Without a follower nothing polls, and a cancelled one stops it (SQ-20)."""
    async with opened(tmp_path) as store:
        await begin(store)
        waiting = asyncio.ensure_future(anext(store.follow("one", after=1)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0.05)
        looked = 0
        changed = store._readers.changed

        def count() -> bool:
            nonlocal looked
            looked += 1
            return changed()

        store._announcer._changed = count
        await asyncio.sleep(0.1)
        assert looked == 0


async def test_search_narrows_to_a_session_without_reading_the_others(tmp_path: Path) -> None:
    """A search in one session finds its events only, newest first, page after page (SQ-18)."""
    async with opened(tmp_path, durability="os") as store:
        for name in ("one", "two"):
            await begin(store, name, owner=name)
            await store.append(name, [record() for _ in range(5)], head=HeadPatch())
            await store.index([IndexEntry(name, seq, ("word", str(seq))) for seq in range(1, 7)], indexed={name: 6})
        query = SearchQuery((Phrase(("word",)),), session_id="one", limit=4)
        page = await store.search(query)
        assert [hit.seq for hit in page.items] == [6, 5, 4, 3]
        rest = await store.search(SearchQuery(query.phrases, session_id="one", limit=4, cursor=page.cursor))
        assert [(hit.session_id, hit.seq) for hit in rest.items] == [("one", 2), ("one", 1)]
        assert rest.cursor is None
