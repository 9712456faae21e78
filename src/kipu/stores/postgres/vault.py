"""The key vault in tables of a database: the store's own, or one apart from it (contract: `ports.vault.KeyVault`)."""

from __future__ import annotations

import asyncio
import uuid
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import orjson

from kipu.errors import (
    InputError,
    KeyRetiredError,
    KeysBusyError,
    SessionErasedError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)
from kipu.ports.vault import WrappedKey
from kipu.stores.postgres.database import Connection, Database, fetch, pause, run
from kipu.stores.postgres.failures import is_lost
from kipu.stores.postgres.heads import sql
from kipu.stores.postgres.own_tables import VAULT_GATES

T = TypeVar("T")
_TRIES = 6
_ROTATES_FOR_S = 60
_SETTINGS = "settings"
_KEYS = "SELECT session_id, epoch, kek, wrapped FROM {schema}.vault_keys"
# A key is added through one of the gates, and a rotation shuts them all: whoever was within is waited for, and whoever comes
# later finds its key-encryption key refused.
_ADD = (
    "WITH passed AS (UPDATE {schema}.vault_gates SET passed = passed + 1 WHERE gate = %s AND NOT (%s::text = ANY(retired))"
    " AND NOT EXISTS (SELECT 1 FROM {schema}.vault_shredded AS d WHERE d.session_id = %s) RETURNING gate)"
    " INSERT INTO {schema}.vault_keys(session_id, epoch, kek, wrapped)"
    " SELECT %s::text, %s::integer, %s::text, %s::bytea FROM passed ON CONFLICT DO NOTHING"
)
_ENTER = "UPDATE {schema}.vault_gates SET passed = passed + 1 WHERE gate = %s"
_ENTER_ALL = "UPDATE {schema}.vault_gates SET passed = passed + 1"
_RETIRED = "SELECT retired FROM {schema}.vault_gates WHERE gate = %s"
_RETIRE = "UPDATE {schema}.vault_gates SET retired = %s::text[]"
_REWRAP = (
    "UPDATE {schema}.vault_keys SET kek = %s, wrapped = %s WHERE session_id = %s AND epoch = %s AND wrapped = %s::bytea"
)
_MOVED = (
    "INSERT INTO {schema}.vault_meta AS m (name, value, version) VALUES ('version', '', 1)"
    " ON CONFLICT (name) DO UPDATE SET version = m.version + 1"
)
_BEGIN_ROTATION = (
    "INSERT INTO {schema}.vault_rotation AS r (name, owner, until)"
    " VALUES ('keys', %s, now() + make_interval(secs => %s)) ON CONFLICT (name) DO UPDATE"
    " SET owner = excluded.owner, until = excluded.until WHERE r.until <= now() OR r.owner = excluded.owner"
)
_GO_ON_ROTATING = (
    "UPDATE {schema}.vault_rotation SET until = now() + make_interval(secs => %s) WHERE name = 'keys' AND owner = %s"
)
_END_ROTATION = "DELETE FROM {schema}.vault_rotation WHERE name = 'keys' AND owner = %s"
_SIZES = (
    "SELECT (SELECT count(DISTINCT session_id) FROM {schema}.vault_keys WHERE session_id <> ''),"
    " (SELECT count(*) FROM {schema}.vault_keys WHERE session_id <> ''), (SELECT count(*) FROM {schema}.vault_shredded)"
)


class PostgresVault:
    """Keep wrapped keys for any number of machines. It closes its database if that is its own."""

    def __init__(self, database: Database, *, place: str, is_own: bool) -> None:
        self._database = database
        self._is_own = is_own
        self._is_closed = False
        self._rotating: str | None = None
        self.place = place

    async def keys(self, session_id: str) -> list[WrappedKey]:
        """Return the session's wrapped keys by epoch."""
        rows = await self._rows(f"{_KEYS} WHERE session_id = %s ORDER BY epoch", session_id)
        return [WrappedKey(*row) for row in rows]

    async def add(self, key: WrappedKey) -> WrappedKey:
        """Keep a key where there is none, and return the one that stands there."""
        gate = _gate_of(key.session_id)
        values = (gate, key.kek, key.session_id, *key)

        async def work(connection: Connection) -> None:
            if await self._run(connection, _ADD, *values) and key.epoch > 1:  # nobody knows a first one yet
                await self._run(connection, _MOVED)

        await (self._together(work) if key.epoch > 1 else self._once(work))
        found = [each for each in await self.keys(key.session_id) if each.epoch == key.epoch]
        if found:
            return found[0]
        if await self.is_shredded(key.session_id):
            raise SessionErasedError(session_id=key.session_id, reason="its key was destroyed")
        raise KeyRetiredError(store=self.place, reason="", kek=key.kek)

    # ---- rotating --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def rotating(self) -> AsyncIterator[None]:
        """Be the only one who rotates, on any machine; a killed one is waited for for a minute at most."""
        owner = uuid.uuid4().hex
        if not await self._once(lambda connection: self._run(connection, _BEGIN_ROTATION, owner, _ROTATES_FOR_S)):
            raise KeysBusyError(store=self.place, reason="")
        self._rotating = owner
        renewing = asyncio.ensure_future(self._renew(owner))
        try:
            yield
        finally:
            self._rotating = None
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(StoreError):  # it is over by itself soon
                await self._once(lambda connection: self._run(connection, _END_ROTATION, owner))

    async def _renew(self, owner: str) -> None:
        """Go on being the one while a provider of keys takes its time."""
        while True:
            await asyncio.sleep(_ROTATES_FOR_S / 4)
            with suppress(StoreError):
                await self._once(lambda connection: self._run(connection, _GO_ON_ROTATING, _ROTATES_FOR_S, owner))

    async def retire(self, kek: str) -> None:
        """Let `kek` alone wrap from now on."""

        async def work(connection: Connection) -> None:
            await self._still_rotates(connection)
            await self._run(connection, _ENTER_ALL)  # from here on nobody is within
            known = (await self._fetch(connection, _RETIRED, 0))[0][0]
            wrapping = await self._fetch(connection, "SELECT DISTINCT kek FROM {schema}.vault_keys")
            await self._run(connection, _RETIRE, sorted({*known, *(row[0] for row in wrapping)} - {kek}))

        await self._together(work)

    async def rewrap(self, pairs: Sequence[tuple[WrappedKey, WrappedKey]]) -> int:
        """Put each new form where the old one still stands."""

        async def work(connection: Connection) -> int:
            await self._still_rotates(connection)
            done = 0
            for old, new in pairs:
                place = (old.session_id, old.epoch, old.wrapped)
                done += await self._run(connection, _REWRAP, new.kek, new.wrapped, *place)
            return done

        return await self._together(work)

    async def _still_rotates(self, connection: Connection) -> None:
        """Raise where another rotation began because this one was thought to be dead: its transaction changes nothing then."""
        owner = self._rotating
        if owner is not None and not await self._run(connection, _GO_ON_ROTATING, _ROTATES_FOR_S, owner):
            raise KeysBusyError(store=self.place, reason="")

    async def not_under(self, kek: str, *, after: tuple[str, int], limit: int) -> list[WrappedKey]:
        """Return keys that another key-encryption key wraps."""
        text = f"{_KEYS} WHERE kek <> %s AND (session_id, epoch) > (%s, %s) ORDER BY session_id, epoch LIMIT %s"
        return [WrappedKey(*row) for row in await self._rows(text, kek, *after, limit)]

    async def counts(self) -> dict[str, int]:
        """Return how many data keys each key-encryption key wraps."""
        return dict(await self._rows("SELECT kek, count(*) FROM {schema}.vault_keys GROUP BY kek"))

    async def sizes(self) -> tuple[int, int, int]:
        """Return how many sessions have keys, how many keys that is, and of how many they were destroyed."""
        sessions, keys, shredded = (await self._rows(_SIZES))[0]
        return int(sessions), int(keys), int(shredded)

    # ---- destroying ------------------------------------------------------------------------------------------------

    async def shred(self, session_id: str) -> None:
        """Destroy the session's keys: no statement finds them again. What the server keeps of them: docs/howto/encrypt-a-store.md."""

        async def work(connection: Connection) -> None:
            await self._run(connection, _ENTER, _gate_of(session_id))
            for table in ("vault_keys", "vault_blobs"):
                await self._run(connection, f"DELETE FROM {{schema}}.{table} WHERE session_id = %s", session_id)
            text = "INSERT INTO {schema}.vault_shredded(session_id) VALUES (%s) ON CONFLICT DO NOTHING"
            await self._run(connection, text, session_id)
            await self._run(connection, _MOVED)

        await self._together(work)
        # Their rows are dead now and their bytes still there. What this takes away of them now, no later backup holds; where
        # somebody still reads an older state, or the role may not, the server's own cleaning does it later.
        with suppress(StoreError, InputError):
            await self._once(lambda connection: self._run(connection, "VACUUM {schema}.vault_keys"))

    async def is_shredded(self, session_id: str) -> bool:
        """Return whether the session's keys were destroyed."""
        return bool(await self._rows("SELECT 1 FROM {schema}.vault_shredded WHERE session_id = %s", session_id))

    # ---- what the vault remembers ------------------------------------------------------------------------------------

    async def constant(self, name: str, value: bytes) -> bytes:
        """Return what the vault has under a name."""
        text = "SELECT value FROM {schema}.vault_meta WHERE name = %s"
        if known := await self._rows(text, name):
            return bytes(known[0][0])
        put = "INSERT INTO {schema}.vault_meta(name, value) VALUES (%s, %b) ON CONFLICT DO NOTHING"
        await self._once(lambda connection: self._run(connection, put, name, value))
        return bytes((await self._rows(text, name))[0][0])

    async def settings(self) -> dict[str, Any]:
        """Return what the store is to be opened with."""
        known = await self._rows("SELECT value FROM {schema}.vault_meta WHERE name = %s", _SETTINGS)
        found: dict[str, Any] = orjson.loads(known[0][0]) if known else {}
        return found

    async def set_settings(self, changes: Mapping[str, Any]) -> None:
        """Change settings."""
        known = await self.settings()
        if all(known.get(name) == value for name, value in changes.items()):
            return
        begin = "INSERT INTO {schema}.vault_meta(name, value) VALUES (%s, '{}') ON CONFLICT DO NOTHING"
        take = "UPDATE {schema}.vault_meta SET version = version + 1 WHERE name = %s RETURNING value"

        async def work(connection: Connection) -> None:
            await self._run(connection, begin, _SETTINGS)
            merged = {**orjson.loads((await self._fetch(connection, take, _SETTINGS))[0][0]), **changes}
            value = orjson.dumps({name: value for name, value in merged.items() if value is not None})
            await self._run(connection, "UPDATE {schema}.vault_meta SET value = %b WHERE name = %s", value, _SETTINGS)

        await self._together(work)

    async def sessions(self, *, after: str, limit: int) -> list[tuple[str, int]]:
        """Return ids of sessions that have keys, each with its newest epoch."""
        text = (
            "SELECT session_id, max(epoch) FROM {schema}.vault_keys WHERE session_id > %s"
            " GROUP BY session_id ORDER BY session_id LIMIT %s"
        )
        return [(row[0], int(row[1])) for row in await self._rows(text, after, limit)]

    async def version(self) -> int:
        """Return a number that changes when anybody made a new epoch or destroyed keys."""
        rows = await self._rows("SELECT version FROM {schema}.vault_meta WHERE name = 'version'")
        return int(rows[0][0]) if rows else 0

    # ---- blobs -----------------------------------------------------------------------------------------------------

    async def blob_places(self, session_id: str) -> dict[str, str]:
        """Return the hidden digests of a session's blobs with their places."""
        return dict(
            await self._rows("SELECT digest, place FROM {schema}.vault_blobs WHERE session_id = %s", session_id)
        )

    async def blob_place(self, session_id: str, digest: str) -> str | None:
        """Return the place of a blob by its hidden digest."""
        text = "SELECT place FROM {schema}.vault_blobs WHERE session_id = %s AND digest = %s"
        found = await self._rows(text, session_id, digest)
        return str(found[0][0]) if found else None

    async def place_blob(self, session_id: str, digest: str, *, place: str, instead_of: str | None = None) -> None:
        """Remember where a blob is; the first place stays, but for the one that this is `instead_of`."""
        text = (
            "INSERT INTO {schema}.vault_blobs AS known(session_id, digest, place) VALUES (%s, %s, %s)"
            " ON CONFLICT (session_id, digest) DO UPDATE SET place = excluded.place WHERE known.place = %s"
        )
        await self._once(lambda connection: self._run(connection, text, session_id, digest, place, instead_of))

    async def close(self) -> None:
        """Close what is the vault's own."""
        self._is_closed = True
        if self._is_own:
            await self._database.close()

    # ---- statements ------------------------------------------------------------------------------------------------

    async def _rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        self._check_open()
        return await self._database.rows(sql(text, self._database), values)

    async def _once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do one statement, again where its connection was lost: twice is as good as once."""
        return await self._again(lambda: self._database.changing(work))

    async def _together(self, work: Callable[[Connection], Awaitable[T]], *, is_patient: bool = False) -> T:
        """Do work in one transaction, again where its connection was lost: twice is as good as once."""

        async def whole() -> T:
            done: list[T] = []

            async def inside(connection: Connection) -> None:
                done.append(await work(connection))

            await self._database.together(inside, is_patient=is_patient)
            return done[-1]

        return await self._again(whole)

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        self._check_open()
        for number in range(_TRIES - 1):
            try:
                return await work()
            except StoreUnavailableError as error:
                if error.__cause__ is None or not is_lost(error.__cause__):
                    raise
            await pause(number)
        return await work()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(store=self.place)

    async def _run(self, connection: Connection, text: str, *values: Any) -> int:
        return await run(connection, sql(text, self._database), values=values)

    async def _fetch(self, connection: Connection, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return await fetch(connection, sql(text, self._database), values=values)


def _gate_of(session_id: str) -> int:
    return zlib.crc32(session_id.encode()) % VAULT_GATES
