"""A queue of many sessions: looking for work reads what it gives, not all that waits."""

from __future__ import annotations

import json

from kipu.stores.postgres import listing
from kipu.stores.postgres.address import Address
from tests.acceptance.postgres.kit import TIME, ask, begin, opened
from tests.servers import fresh_schema, postgres_url

WAITING, HELD, LIMIT = 20_000, 10, 100


async def rows_read(url: str, statement: str, limit: int) -> int:
    """Return how many rows a statement of the store's reads, those that it passes over included."""
    schema = f'"{Address.parse(url).schema}"'
    text = statement.replace("{schema}", schema).replace("LIMIT %s", f"LIMIT {limit}").replace("%s", f"'{TIME}'")
    plan = (await ask(url, f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"))[0][0]
    top = (plan if isinstance(plan, list) else json.loads(str(plan)))[0]["Plan"]

    def most(node: dict[str, object]) -> float:
        own = float(str(node["Actual Rows"])) + float(str(node.get("Rows Removed by Filter", 0)))
        below = node.get("Plans", [])
        return max([own, *(most(one) for one in below)]) if isinstance(below, list) else own

    return int(most(top))


async def test_looking_for_work_does_not_read_all_that_waits() -> None:
    """Of 20 000 sessions that wait, a look reads about those that it gives, and those that are held (A40, B61)."""
    url = fresh_schema(postgres_url())
    schema = Address.parse(url).schema
    async with opened(url) as store:
        await begin(store, "template")
        await ask(
            url,
            f'INSERT INTO "{schema}".heads(session_id, version, changed_at, last_event_at, due_at, data)'
            f" SELECT 's' || g, 1, now(), '', '', replace(data, 'template', 's' || g)"
            f" FROM \"{schema}\".heads, generate_series(1, {WAITING}) AS g WHERE session_id = 'template'",
        )
        await ask(
            url,
            f"UPDATE \"{schema}\".heads SET lease_owner = 'another', lease_until = '2999' WHERE session_id ="
            f" ANY(SELECT 's' || g FROM generate_series(1, {HELD}) AS g)",
        )
        await ask(url, f'ANALYZE "{schema}".heads')
        assert await rows_read(url, listing.FREE, LIMIT) <= LIMIT + HELD
        assert await rows_read(url, listing.HELD, 500) <= 2 * HELD
        found = await store.runnable(now=TIME, limit=LIMIT)
        assert len(found) == LIMIT
