"""Pages and filters of heads, where the conformance suite asks no further."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kipu.ports.head import HeadPatch
from kipu.ports.store import EventStore, Record, SessionQuery
from kipu.wiring import open_store

TIME = "2027-01-15T08:00:00.000000Z"
STORES = ("memory://", "sqlite:///{}/a.db", "jsonl:///{}/a")


@pytest.fixture(params=STORES, ids=[url.partition(":")[0] for url in STORES])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventStore]:
    opened = await open_store(request.param.format(tmp_path))
    yield opened
    await opened.close()


async def begin(store: EventStore, session_id: str, *tags: str) -> None:
    patch = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME, "tags": list(tags)})
    await store.append(session_id, [Record(f"e-{session_id}", "session_init", TIME, b"{}")], head=patch)


async def test_a_page_holds_no_more_than_was_asked_for(store: EventStore) -> None:
    """Every page but the last holds exactly `limit` heads, and only the last has no cursor (B26)."""
    for number in range(7):
        await begin(store, f"s{number}")
    sizes, query = [], SessionQuery(limit=3)
    while True:
        page = await store.list(query)
        sizes.append(len(page.items))
        if page.cursor is None:
            break
        query = SessionQuery(limit=3, cursor=page.cursor)
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize("tag", ["blue", 'bl"ue', "blue,red", "синий", "a\\b"])
async def test_a_tag_is_found_whole(store: EventStore, tag: str) -> None:
    """A tag selects the sessions that have it, not those with a longer, shorter or neighbouring one (B26)."""
    await begin(store, "it", "first", tag, "last")
    await begin(store, "longer", f"{tag}ish", f"dark{tag}")
    await begin(store, "parts", tag[:2], tag[2:])
    await begin(store, "none")
    assert [head.session_id for head in (await store.list(SessionQuery(tags=frozenset({tag})))).items] == ["it"]
