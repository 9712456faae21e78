"""Questions to a pair while the spool holds something are answered as one store would answer them (A46, A49)."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import orjson
import pytest

from kipu.ports.head import HeadPatch
from kipu.ports.store import Binding, SessionQuery
from tests.unit.stores.fallback.kit import TIME, begin, log, pair, record


def _at(hour: int) -> str:
    return TIME.replace("08:", f"{hour:02d}:")


async def test_any_window_over_both_is_that_of_one_log(tmp_path: Path) -> None:
    """Wherever a page begins and ends, on either side of where the spool took over, it has the events of that place (A49, B6)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        for text in "abc":
            await store.append("one", [record(text)])
        primary.refuses = True
        for text in "defg":
            await store.append("one", [record(text)])
        await primary.inner.append("one", [record("d")])  # the primary had it after all
        whole = await log(store)
        assert [text for _, text in whole] == ["begin one", *"abcdefg"]
        bounds = [None, 0, 2, 3, 4, 5, 6, 8, 11]
        for after, until, limit, backwards in product(range(10), bounds, (1, 3, 20), (False, True)):
            found = await store.read("one", after=after, until=until, limit=limit, backwards=backwards)
            wanted = [item for item in whole if after < item[0] <= (20 if until is None else until)]
            wanted = wanted[::-1][:limit] if backwards else wanted[:limit]
            assert [(each.seq, orjson.loads(each.record.body)["content"]) for each in found] == wanted


@pytest.mark.parametrize("descending", [True, False], ids=["newest first", "oldest first"])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
async def test_lists_of_both_have_each_session_once_in_order(tmp_path: Path, limit: int, descending: bool) -> None:
    """Page by page, in either order and of any size, nothing is left out, doubled or misplaced (A46, A49)."""
    async with pair(tmp_path) as (store, primary):
        for number in range(5):
            await begin(store, f"p{number}", last_activity_at=_at(10 + number))
        primary.refuses = True
        await store.append("p1", [record("x")], head=HeadPatch(max={"last_activity_at": _at(23)}))
        for number, hour in enumerate((9, 12, 22)):
            await begin(store, f"s{number}", last_activity_at=_at(hour))
        seen, cursor = [], None
        for _ in range(20):
            query = SessionQuery(limit=limit, cursor=cursor, descending=descending)
            page = await store.list(query)
            assert len(page.items) <= limit
            seen += [head.session_id for head in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        wanted = ["p1", "s2", "p4", "p3", "s1", "p2", "p0", "s0"]
        # Equal times are in the order of the ids.
        assert seen == (wanted if descending else wanted[::-1])


async def test_work_of_both_is_in_the_order_in_which_it_became_due(tmp_path: Path) -> None:
    """Sessions with work are those of both stores, due longest first, and no more than were asked for (A39, A49)."""
    async with pair(tmp_path) as (store, primary):

        async def waits(name: str, hour: int) -> None:
            await begin(store, name, quiet_until=_at(hour))
            await store.append(name, [record(f"m {name}")], head=HeadPatch(insert={"waiting": [2]}))

        await waits("a", 3)
        await waits("c", 5)
        await waits("done", 1)
        primary.refuses = True
        await waits("b", 4)
        await waits("d", 6)
        await waits("late", 23)
        await store.append("done", [record("x")], head=HeadPatch(discard={"waiting": [2]}))
        for limit in (1, 2, 3, 4, 9):
            found = await store.runnable(now=_at(12), limit=limit)
            assert [head.session_id for head in found] == ["a", "b", "c", "d"][:limit]


async def test_a_blob_of_the_primary_is_found_while_the_spool_holds_its_session(tmp_path: Path) -> None:
    """A value that was kept before the outage can be read during it, and both are listed (A49, B25)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        old = await store.put_blob("one", b"old")
        primary.refuses = True
        await store.append("one", [record("x")])
        new = await store.put_blob("one", b"new")
        assert await store.get_blob("one", old) == b"old"
        assert await store.get_blob("one", new) == b"new"
        assert await store.blobs("one") == sorted([old, new])


@pytest.mark.parametrize("way", ["append", "begin", "bind"])
async def test_a_key_that_the_spool_holds_moves_on_from_where_it_leads(tmp_path: Path, way: str) -> None:
    """Who moves a key right after an outage finds it where it was bound during it: that session is merged first (A49, C4)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store, "one")
        await begin(store, "two")
        primary.refuses = True
        await store.append("one", [record("bound")], bind=Binding("k"))
        primary.refuses = False
        if way == "append":
            await store.append("two", [record("moves")], bind=Binding("k", "one"))
        elif way == "bind":
            await store.bind("k", "two", expected="one")
        else:
            patch = HeadPatch(set={"created_at": TIME})
            await store.append("three", [record("b", "session_init")], head=patch, bind=Binding("k", "one"))
        assert await store.resolve("k") == await primary.resolve("k") == ("three" if way == "begin" else "two")
        assert await log(primary, "one") == [(1, "begin one"), (2, "bound")]
