"""Where the vault of a store on a server is: in the store's own tables, or apart from them in another database."""

from __future__ import annotations

from dataclasses import replace

from psycopg.errors import DuplicateObject, UniqueViolation

from kipu.errors import OlderFormatError, StoreUnavailableError, StoreUrlError
from kipu.ports.vault import KeyVault
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.database import Connection, Database, pause, run
from kipu.stores.postgres.heads import sql
from kipu.stores.postgres.own_tables import VAULT_TABLES
from kipu.stores.postgres.schema import HAS_META
from kipu.stores.postgres.vault import PostgresVault

APART_SCHEMA = "kipu_vault"
_TRIES = 6
_CONNECTIONS = 2
_APART_META = "CREATE TABLE IF NOT EXISTS {schema}.meta(name text PRIMARY KEY, value text NOT NULL)"
_APART_KIND = (
    "INSERT INTO {schema}.meta(name, value) VALUES ('kind', 'kipu vault'), ('format', '1') ON CONFLICT DO NOTHING"
)
_HOLDS = "SELECT EXISTS (SELECT 1 FROM {schema}.vault_keys) OR EXISTS (SELECT 1 FROM {schema}.vault_meta WHERE name = 'settings')"


class VaultTables:
    """Say where the vault of a store on a server is (contract: `ports.vault.VaultPlace`): in the store's tables, or apart from them.

    In the store's own it is asked over the store's connections where those are given.
    """

    def __init__(self, url: str, *, is_apart: bool = False, over: Database | None = None) -> None:
        address = Address.parse(url)
        if is_apart and "schema=" not in url:
            address = replace(address, schema=APART_SCHEMA)
        self._address = replace(address, connections=min(address.connections, _CONNECTIONS))
        self._is_apart = is_apart
        self._over = over

    @property
    def shown(self) -> str:
        """Return the URL without its password, and the schema."""
        return f"{self._address.shown} (schema {self._address.schema})"

    async def is_there(self) -> bool:
        """Return whether the tables hold keys, or settings that say that they did."""
        database, is_own = await self._connected()
        try:
            name = f'"{self._address.schema}".vault_keys'
            if not (await database.rows(HAS_META, (name,)))[0][0]:
                return False
            return bool((await database.rows(sql(_HOLDS, database)))[0][0])
        finally:
            if is_own:
                await database.close()

    async def open(self) -> KeyVault:
        """Return the vault. One that is apart from its store is made where there is none."""
        database, is_own = await self._connected()
        try:
            if self._is_apart:
                await _make_apart(database)
            name = f'"{self._address.schema}".vault_keys'
            if not (await database.rows(HAS_META, (name,)))[0][0]:
                raise OlderFormatError(store=database.url, reason="they have no place for keys")
        except BaseException:
            if is_own:
                await database.close()
            raise
        return PostgresVault(database, place=self.shown, is_own=is_own)

    async def _connected(self) -> tuple[Database, bool]:
        if self._over is not None:
            return self._over, False
        database = Database(self._address)
        try:
            await database.open()
        except BaseException:
            await database.close()
            raise
        return database, True


async def _make_apart(database: Database) -> None:
    """Make a schema that holds a vault and nothing else. Raises: StoreUrlError where it holds something else."""
    has_meta = (await database.rows(HAS_META, (f'"{database.address.schema}".meta',)))[0][0]
    if not has_meta:

        async def make(connection: Connection) -> None:
            for statement in ("CREATE SCHEMA IF NOT EXISTS {schema}", _APART_META, *VAULT_TABLES, _APART_KIND):
                await run(connection, sql(statement, database))

        for number in range(_TRIES):
            try:
                await database.together(make)
            except StoreUnavailableError as error:  # somebody makes it at the same moment
                if number == _TRIES - 1 or not isinstance(error.__cause__, (UniqueViolation, DuplicateObject)):
                    raise
                await pause(number)
            else:
                break
    kinds: dict[str, str] = dict(await database.rows(sql("SELECT name, value FROM {schema}.meta", database)))
    if kinds.get("kind") != "kipu vault":
        raise StoreUrlError(
            url=database.url, reason=f"the schema {database.address.schema} holds no vault apart from a store"
        )
