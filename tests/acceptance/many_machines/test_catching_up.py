"""Who reads what was missed and follows what comes, as one does after a line was lost: nothing falls between the two."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kipu.ports.store import SessionQuery
from tests.acceptance.many_machines.line_proxy import line_proxy
from tests.acceptance.postgres.kit import begin, opened, record, text_of
from tests.servers import fresh_schema, postgres_url

SLOW_S = 0.05


async def test_what_is_not_read_yet_comes_to_a_follower_that_began_before() -> None:
    """An event that is appended right after a reader's list, over slow lines, comes to the follower begun before it (B61, PG-15)."""
    server = postgres_url()
    url = fresh_schema(server)
    folder = Path(parse_qs(urlsplit(server).query)["host"][0])
    schema = url.rpartition("schema=")[2]
    async with opened(url) as writer, line_proxy(lambda: folder) as proxy:
        await begin(writer, "one")
        async with opened(f"{proxy.url}&schema={schema}") as reader:
            proxy.delay_s = SLOW_S
            following: Any = reader.follow()
            page = await reader.list(SessionQuery())
            assert [head.last_seq for head in page.items] == [1]
            await writer.append("one", [record("after the list")])
            async with asyncio.timeout(60), aclosing(following) as events:
                async for event in events:
                    assert (event.seq, text_of(event)) == (2, "after the list")
                    break
