"""Terms are opaque to every store: each is found as itself, whatever characters it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.ports.store import IndexEntry, Phrase, Record, SearchQuery
from kipu.wiring import open_store

STORES = ("memory://", "sqlite:///{}/a.db", "jsonl:///{}/a")
TERMS = ("a b", "a", "b", "%20", "a%20b", "", "A", '"', "%")


@pytest.mark.parametrize("url", STORES)
async def test_each_term_is_found_as_itself(url: str, tmp_path: Path) -> None:
    """One with a blank, a mark or nothing in it is one term, and not those that it looks like (B60)."""
    store = await open_store(url.format(tmp_path))
    try:
        records = [Record(f"e{number}", "user_message", "2027-01-15T08:00:00.000000Z", b"{}") for number in range(9)]
        await store.append("one", [Record("init", "session_init", "2027-01-15T08:00:00.000000Z", b"{}"), *records])
        entries = [IndexEntry("one", seq, (term, "all")) for seq, term in enumerate(TERMS, 2)]
        await store.index(entries, indexed={"one": 10})
        for seq, term in enumerate(TERMS, 2):
            found = await store.search(SearchQuery((Phrase((term, "all")),)))
            assert [hit.seq for hit in found.items] == [seq], term
    finally:
        await store.close()
