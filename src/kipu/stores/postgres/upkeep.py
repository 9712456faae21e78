"""The tables of a schema looked at, and brought to what this release knows, in two phases.

Widening adds what the release before does not know and may leave alone, so that old and new processes run side by side. Narrowing
takes away what only old ones need; it raises `oldest`, which keeps them from writing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import Rollback

from kipu.errors import OlderReleaseError, StoreUrlError
from kipu.stores.postgres import schema
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.database import Connection, Database, run
from kipu.stores.postgres.durability import server_durability
from kipu.stores.postgres.heads import sql
from kipu.stores.postgres.presence import at_work
from kipu.stores.postgres.schema import Migration

OLDEST_SERVER, NEWEST_SERVER = 15, 18
_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS \{schema\}\.(\w+)")
_INDEX = re.compile(r"CREATE INDEX IF NOT EXISTS (\w+)")
_SERVER = "SELECT current_setting('server_version_num')::integer / 10000, pg_is_in_recovery()"
_THERE = "SELECT c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %s"
_SET = "UPDATE {schema}.meta SET value = %s WHERE name = %s AND value = %s"


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What is in a schema, and whether this release can work with it."""

    format: int | None
    oldest: int | None
    known: int
    server: int
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    durability: str
    loss_window: str

    @property
    def is_sound(self) -> bool:
        """Return True where this release may read and write all of it."""
        return self.oldest is not None and self.oldest <= self.known and not self.missing


async def check(database: Database) -> SchemaState:
    """Return what is there, changing nothing."""
    server, is_standby = (await database.rows(_SERVER))[0]
    promised = await server_durability(database)
    rows = await database.rows(_THERE, (database.address.schema,))
    there = {row[0] for row in rows}
    expected = [name for text in schema.TABLES for name in (*_TABLE.findall(text), *_INDEX.findall(text))]
    meta = await _meta(database) if "meta" in there else {}
    notes = []
    if not OLDEST_SERVER <= server <= NEWEST_SERVER:
        notes.append(f"PostgreSQL {server} is not tested: {OLDEST_SERVER} to {NEWEST_SERVER} are")
    if is_standby:
        notes.append("this server is a standby: it can only be read")
    if meta and int(meta.get("format", 0)) < schema.FORMAT:
        notes.append("the tables are those of an older release: run `kipu store migrate`")
    return SchemaState(
        _number(meta, "format"),
        _number(meta, "oldest"),
        schema.FORMAT,
        server,
        tuple(name for name in expected if name not in there),
        (*notes, *promised.notes),
        promised.level,
        promised.loss_window,
    )


async def migrate(
    database: Database, *, narrow: bool = False, migrations: Sequence[Migration] = schema.MIGRATIONS
) -> list[int]:
    """Bring the tables on by every step that is not done yet, each in one transaction; return the formats reached.

    Of many that do so at once, each step is done by one. Raises: StoreUrlError where the schema is not Kipu's,
    OlderReleaseError where it is to be narrowed under a release that does not know how.
    """
    meta = await _meta(database)
    if meta.get("kind") != "kipu":
        raise StoreUrlError(url=database.url, reason=f"the schema {database.address.schema} is not Kipu's")
    name = "oldest" if narrow else "format"
    limit = int(meta["format"]) if narrow else None
    done = []
    for step in migrations:
        at = int((await _meta(database))[name])
        if step.format <= at or (limit is not None and step.format > limit):
            continue

        async def carry_out(connection: Connection, step: Migration = step, at: int = at) -> int:
            # The row of meta is taken first, so that others wait here, and then find it done.
            if not await run(connection, sql(_SET, database), values=(str(step.format), name, str(at))):
                raise Rollback
            if narrow:
                await _refuse_older(connection, database, step=step)
            for statement in step.narrow if narrow else step.widen:
                await run(connection, sql(statement, database))
            return step.format

        reached = await database.together(carry_out, is_patient=True)
        done += [] if reached is None else [reached]
    return done


async def _refuse_older(connection: Connection, database: Database, *, step: Migration) -> None:
    older = {number: age_s for number, age_s in (await at_work(connection, database)).items() if number < step.format}
    if older:
        number = max(older)
        raise OlderReleaseError(store=database.url, format=number, age_s=round(older[number]))


async def _meta(database: Database) -> dict[str, str]:
    found: dict[str, str] = dict(await database.rows(sql(schema.READ_META, database)))
    return found


def _number(meta: dict[str, str], name: str) -> int | None:
    return int(meta[name]) if name in meta else None


async def opened(url: str) -> Database:
    """Connect to a database without making anything there."""
    database = Database(Address.parse(url))
    try:
        await database.open()
    except BaseException:
        await database.close()
        raise
    return database
