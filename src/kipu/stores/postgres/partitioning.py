"""The tables that grow with the events, each as many parts by the hash of the session's id.

Every statement of the store names its sessions, so that each is answered by one part of a table; nothing else of the store knows of
them. Lists and searches go over all sessions: `heads` stays whole for the lists, and a search looks into every part of `docs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from kipu.errors import InputError, StoreUrlError
from kipu.stores.postgres import schema
from kipu.stores.postgres.database import Connection, Database, run
from kipu.stores.postgres.heads import sql

GROWING: Final = ("events", "docs", "blobs")
MOST_PARTS: Final = 1024
_MADE = re.compile(
    r"\s*CREATE TABLE IF NOT EXISTS \{schema\}\.(?P<name>\w+)(?P<columns>\((?:[^()]|\([^()]*\))*\))(?P<set>\s+WITH \([^()]*\))?\s*"
)
_SET = re.compile(r"\s*ALTER TABLE \{schema\}\.(?P<name>\w+) (?P<set>SET \(.*\))\s*", re.DOTALL)


def in_parts(tables: Sequence[str], parts: int, *, names: Sequence[str] = GROWING) -> Iterator[str]:
    """Yield the statements that make the tables, the named ones in so many parts."""
    for statement in tables:
        made, changed = _MADE.fullmatch(statement), _SET.fullmatch(statement)
        if made is not None and made["name"] in names:
            whole = f"{{schema}}.{made['name']}"
            yield f"CREATE TABLE IF NOT EXISTS {whole}{made['columns']} PARTITION BY HASH (session_id)"
            for number in range(parts):
                of = f"PARTITION OF {whole} FOR VALUES WITH (MODULUS {parts}, REMAINDER {number})"
                yield f"CREATE TABLE IF NOT EXISTS {whole}_{number} {of}{made['set'] or ''}"
        elif changed is not None and changed["name"] in names:  # only a part has storage to be set
            for number in range(parts):
                yield f"ALTER TABLE {{schema}}.{changed['name']}_{number} {changed['set']}"
        else:
            yield statement


async def make_in_parts(database: Database, parts: int, *, names: Sequence[str] = GROWING) -> None:
    """Make the store's tables, the growing ones in parts, in one transaction.

    Raises: InputError for a number of parts that is none. StoreUrlError where there are tables already.
    """
    if not 2 <= parts <= MOST_PARTS:
        raise InputError(reason=f"partitions is a number from 2 to {MOST_PARTS}")
    there = f'"{database.address.schema}".meta'

    async def make(connection: Connection) -> None:
        for statement in in_parts(schema.TABLES, parts, names=names):
            await run(connection, sql(statement, database))
        await run(connection, sql(schema.FILL_META, database), values=(str(schema.FORMAT), str(schema.FORMAT)))

    if (await database.rows(schema.HAS_META, (there,)))[0][0]:
        raise StoreUrlError(
            url=database.url,
            reason="its tables are there already; copy the sessions into a schema made with --partitions",
        )
    await database.together(make, is_patient=True)
