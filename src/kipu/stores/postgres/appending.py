"""Appending: decided here on the head as it was read, done there by one statement that holds only if it still is so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from psycopg import Rollback
from psycopg.errors import UniqueViolation

from kipu.errors import ConflictError, KipuError, SessionNotFoundError, StoreUnavailableError
from kipu.ports.clock import Clock
from kipu.ports.head import apply_patch
from kipu.ports.owner import Liveness
from kipu.ports.store import IDEMPOTENCY_RETENTION_S, Appended, Record
from kipu.stores.admission import AppendRequest, admit, ends_sharing, taken_over
from kipu.stores.event_row import FIELDS, row_of
from kipu.stores.postgres import heads as head_rows
from kipu.stores.postgres.database import Connection, Database, fetch, gave_up, pause, run
from kipu.stores.postgres.failures import is_lost
from kipu.stores.postgres.heads import HeadRow, Heads, read_row, row_values, sql
from kipu.stores.postgres.members import follow_members

_TRIES = 12
_HOPEFUL_TRIES = 2  # then others are at it, and it is cheaper to stand in line
_HOLD = f"UPDATE {{schema}}.heads SET version = version WHERE session_id = %s RETURNING version, data, {head_rows.MARK}"
_MOST_VALUES = 16  # events in one statement; more go in by arrays
_RETENTION_US = IDEMPOTENCY_RETENTION_S * 1_000_000
_TYPES = ("bigint", "text", "text", "text", "bigint", "text", "text", "text", "integer", "bigint", "bytea")
_OUTCOME = "SELECT session_id, first_seq, last_seq, at_us FROM {schema}.idempotency WHERE key = %b"
_FORGET_KEY = "DELETE FROM {schema}.idempotency WHERE key = %b AND at_us <= %s"
_REMEMBER = "INSERT INTO {schema}.idempotency(key, session_id, first_seq, last_seq, at_us)"
_IS_OURS = "SELECT event_id FROM {schema}.events WHERE session_id = %s AND seq = %s"
_ADOPTED = "SELECT seq, tokens FROM {schema}.events WHERE session_id = %s AND seq <= %s ORDER BY seq"
_BOUND = "SELECT session_id FROM {schema}.bindings WHERE key = %b"
_BIND = "INSERT INTO {schema}.bindings(key, session_id) VALUES (%b, %s)"
_REBIND = "UPDATE {schema}.bindings SET session_id = %s WHERE key = %b AND session_id = %s"
_PRUNE_EVERY = 256
_PRUNE = (
    "DELETE FROM {schema}.idempotency WHERE key IN"
    " (SELECT key FROM {schema}.idempotency WHERE at_us <= %s ORDER BY at_us LIMIT 1000)"
)


class _Draft(NamedTuple):
    """What an append comes to, if the head still is as it was."""

    request: AppendRequest
    row: HeadRow
    before: Mapping[str, Any]
    after: dict[str, Any]
    first_seq: int
    now_us: int
    values: tuple[Any, ...]  # of the head's row after it

    @property
    def appended(self) -> Appended:
        return Appended(self.request.session_id, self.first_seq, self.after["last_seq"])


class Appender:
    """Append batches to sessions of one database."""

    def __init__(self, database: Database, heads: Heads, *, clock: Clock, liveness: Liveness) -> None:
        self._database = database
        self._heads = heads
        self._clock = clock
        self._liveness = liveness
        self._keyed = 0
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def append(self, request: AppendRequest) -> Appended:
        """Append a batch as the contract says, however many others append at the same moment."""
        async with self._turns.setdefault(request.session_id, asyncio.Lock()):
            appended = await self._append(request)
        if any(record.event_type == "session_init" for record in request.records):
            await self._confirm(request.session_id)
        return appended

    async def _confirm(self, session_id: str) -> None:
        """Acknowledge nothing that a mark could have missed: a new row has no version that setting one would have raised."""
        try:
            self._heads.check(await self._heads.mark())
        except KipuError:
            self._heads.forget(session_id)
            raise

    async def _append(self, request: AppendRequest) -> Appended:
        for _ in range(_HOPEFUL_TRIES):
            row, is_fresh = await self._heads.take(request.session_id)
            try:
                draft = await self._draft(request, row)
            except KipuError:
                known = await self.outcome(request.idempotency_key)
                if known is not None:
                    return known
                if is_fresh:
                    raise
                self._heads.forget(request.session_id)
                continue
            try:
                outcome = await self._write(draft)
            except StoreUnavailableError as error:
                if not _is_open(error):
                    raise
                return await self._append_in_line(request, [draft.first_seq])
            if outcome is not None:
                return outcome
            self._heads.forget(request.session_id)
        return await self._append_in_line(request, [])

    async def _append_in_line(self, request: AppendRequest, attempted: list[int]) -> Appended:
        """Append while nobody else can change the head: where many do at once, each waits for the one before it.

        `attempted` is where the batch may stand already, as its connection went before the answer came. Whatever of that is
        still under way at the server has the head, and has been waited for, when it is looked for here.
        """

        async def work(connection: Connection) -> _Draft | Appended:
            rows = await fetch(connection, sql(_HOLD, self._database), values=(request.session_id,))
            row = read_row(rows[0]) if rows else await self._heads.load(request.session_id, connection=connection)
            ours = await self._stands_at(request, attempted, over=connection)
            if ours is not None:
                return ours
            draft = await self._draft(request, row, over=connection)
            attempted.append(draft.first_seq)
            await self._in_many(connection, draft)
            return draft

        lost: StoreUnavailableError | None = None
        for number in range(_TRIES):
            self._heads.forget(request.session_id)
            known: Appended | None = None
            try:
                done = await self._database.together(work)
            except KipuError as error:
                if _is_open(error) and isinstance(error, StoreUnavailableError):
                    lost = error
                else:
                    known = await (self._refused_by_key(request) if _is_taken(error) else self._outcome_of(request))
                    if known is None and not _is_taken(error):
                        raise
            else:
                if isinstance(done, _Draft):
                    self._heads.keep(request.session_id, done.row.after(done.values, done.after))
                known = done.appended if isinstance(done, _Draft) else done
            if known is not None:
                return known
            await pause(min(number, 4))
        raise lost or gave_up(self._database.url)

    # ---- deciding --------------------------------------------------------------------------------------------------

    async def _draft(self, request: AppendRequest, row: HeadRow, *, over: Connection | None = None) -> _Draft:
        self._heads.check(row.mark)
        now_us = self._clock.now_us()
        adopted = await self._adopted(request, row, over=over)
        before = admit(
            request,
            row.data,
            erased=row.is_erased,
            bound_to=await self._bound_to(request, over=over),
            adopted_seq=adopted[-1][0] if adopted else 0,
            now_us=now_us,
            liveness=self._liveness,
        )
        first_seq = before["last_seq"] + 1
        after = apply_patch(
            before,
            request.head,
            first_seq=first_seq,
            timestamps=[record.timestamp for record in request.records],
            tokens=sum([record.tokens for record in request.records]),
        )
        if adopted:
            after = taken_over(after, [tokens for _, tokens in adopted])
        return _Draft(request, row, before, after, first_seq, now_us, row_values(after))

    async def _adopted(self, request: AppendRequest, row: HeadRow, *, over: Connection | None) -> list[tuple[int, int]]:
        if row.data is None or not ends_sharing(request) or not row.data.get("base_seq"):
            return []
        values = (request.session_id, row.data["base_seq"])
        return [(seq, tokens) for seq, tokens in await self._rows(_ADOPTED, values, over=over)]

    async def _bound_to(self, request: AppendRequest, *, over: Connection | None) -> str | None:
        if request.bind is None:
            return None
        rows = await self._rows(_BOUND, (request.bind.key.encode(),), over=over)
        return rows[0][0] if rows else None

    async def _stands_at(
        self, request: AppendRequest, attempted: Sequence[int], *, over: Connection
    ) -> Appended | None:
        """Return where the batch stands, if a connection that was lost had carried it out."""
        for first_seq in set(attempted):
            rows = await self._rows(_IS_OURS, (request.session_id, first_seq), over=over)
            if rows and rows[0][0] == request.records[0].event_id:
                return Appended(request.session_id, first_seq, first_seq + len(request.records) - 1)
        return None

    async def _outcome_of(self, request: AppendRequest) -> Appended | None:
        return await self.outcome(request.idempotency_key)

    async def outcome(self, key: str | None) -> Appended | None:
        """Return what stands under an idempotency key within its retention."""
        if key is None:
            return None
        for session_id, first_seq, last_seq, at_us in await self._rows(_OUTCOME, (key.encode(),)):
            if at_us > self._clock.now_us() - _RETENTION_US:
                return Appended(session_id, first_seq, last_seq, duplicate=True)
        return None

    async def _rows(self, text: str, values: Sequence[Any], *, over: Connection | None = None) -> list[tuple[Any, ...]]:
        """Read over the connection that is held already, if one is: whoever waits for a second one may wait for himself."""
        statement = sql(text, self._database)
        return await (self._database.rows(statement, values) if over is None else fetch(over, statement, values=values))

    # ---- writing ---------------------------------------------------------------------------------------------------

    async def _write(self, draft: _Draft) -> Appended | None:
        """Write a batch; return None where the head had moved."""
        request = draft.request
        members = draft.before.get("members") or draft.after.get("members")
        in_one = request.bind is None and not members and len(request.records) <= _MOST_VALUES
        try:
            if in_one:
                count: int | None = await self._database.changing(lambda connection: self._in_one(connection, draft))
            else:
                count = await self._database.together(lambda connection: self._in_many(connection, draft))
        except StoreUnavailableError as error:
            if _is_taken(error):
                return await self._refused_by_key(request)
            raise
        if not count:
            return None
        self._heads.keep(request.session_id, draft.row.after(draft.values, draft.after))
        if request.idempotency_key is not None:
            await self._prune(draft.now_us)
        return draft.appended

    async def _refused_by_key(self, request: AppendRequest) -> Appended | None:
        """Return what stands under the key that was taken; an old key is forgotten, and the append tried again."""
        known = await self.outcome(request.idempotency_key)
        if known is None and request.idempotency_key is not None:
            values = (request.idempotency_key.encode(), self._clock.now_us() - _RETENTION_US)
            forget = sql(_FORGET_KEY, self._database)
            await self._database.changing(lambda connection: run(connection, forget, values=values))
        return known

    async def _in_one(self, connection: Connection, draft: _Draft) -> int:
        request = draft.request
        text = _statement(
            len(request.records), begins=draft.row.data is None, keyed=request.idempotency_key is not None
        )
        values = [*self._head_values(draft)]
        for number, record in enumerate(request.records):
            values += row_of(request.session_id, record, seq=draft.first_seq + number)
        if request.idempotency_key is not None:
            values += [request.idempotency_key.encode(), draft.first_seq, draft.after["last_seq"], draft.now_us]
        rows = await fetch(connection, sql(text, self._database), values=values)
        return int(rows[0][0])

    def _head_values(self, draft: _Draft) -> tuple[Any, ...]:
        session_id = draft.request.session_id
        if draft.row.data is None:
            return (session_id, *draft.values)
        return (*draft.values, session_id, draft.row.version)

    async def _in_many(self, connection: Connection, draft: _Draft) -> int:
        """Write a batch by several statements of one transaction."""
        request, session_id = draft.request, draft.request.session_id
        text = head_rows.INSERT if draft.row.data is None else head_rows.UPDATE
        if not await run(connection, sql(text, self._database), values=self._head_values(draft)):
            raise Rollback  # the head, or the binding, is not what it was
        await insert_events(
            connection, self._database, session_id=session_id, first_seq=draft.first_seq, records=request.records
        )
        if request.idempotency_key is not None:
            values = (
                request.idempotency_key.encode(),
                session_id,
                draft.first_seq,
                draft.after["last_seq"],
                draft.now_us,
            )
            await run(connection, sql(f"{_REMEMBER} VALUES (%b, %s, %s, %s, %s)", self._database), values=values)
        if request.bind is not None:
            await self._bind(connection, request)
        await follow_members(connection, self._database, before=draft.before, after=draft.after)
        return 1

    async def _bind(self, connection: Connection, request: AppendRequest) -> None:
        bind = request.bind
        if bind is None:
            return
        if bind.expected is None:
            taken = await run(
                connection,
                sql(f"{_BIND} ON CONFLICT DO NOTHING", self._database),
                values=(bind.key.encode(), request.session_id),
            )
        else:
            values = (request.session_id, bind.key.encode(), bind.expected)
            taken = await run(connection, sql(_REBIND, self._database), values=values)
        if not taken:
            raise Rollback  # the head, or the binding, is not what it was

    async def _prune(self, now_us: int) -> None:
        """Forget now and then what is older than the retention."""
        self._keyed += 1
        if self._keyed % _PRUNE_EVERY == 0:
            text, values = sql(_PRUNE, self._database), (now_us - _RETENTION_US,)
            await self._database.changing(lambda connection: run(connection, text, values=values))

    async def bind(self, key: str, session_id: str, *, expected: str | None) -> None:
        """Make a key lead to a session if it leads to `expected`. Raises: SessionNotFoundError, ConflictError."""
        row = await self._heads.load(session_id)
        self._heads.check(row.mark)
        if row.data is None:
            raise SessionNotFoundError(session_id=session_id)
        values: list[bytes | str] = [key.encode(), session_id]
        text = f"{_BIND} ON CONFLICT DO NOTHING"
        if expected is not None:
            text, values = _REBIND, [session_id, key.encode(), expected]
        statement = sql(text, self._database)
        was_lost = False
        for number in range(_TRIES):
            try:
                taken = await self._database.changing(lambda connection: run(connection, statement, values=values))
            except StoreUnavailableError as error:
                if not _is_open(error) or number == _TRIES - 1:
                    raise
                was_lost = True
                await pause(min(number, 4))
                continue
            rows = [] if taken else await self._rows(_BOUND, (key.encode(),))
            actual = rows[0][0] if rows else None
            if taken or (was_lost and actual == session_id):
                await self._confirm(session_id)
                return
            raise ConflictError(session_id=key, expected=expected, actual=actual)


def _is_open(error: KipuError) -> bool:
    """Return True where a connection was lost, so that what was asked over it may have happened."""
    return error.__cause__ is not None and is_lost(error.__cause__)


def _is_taken(error: KipuError) -> bool:
    """Return True where a key was taken that must be free."""
    return isinstance(error.__cause__, UniqueViolation)


async def insert_events(
    connection: Connection,
    database: Database,
    *,
    session_id: str,
    first_seq: int,
    records: Sequence[Record],
    is_shown: bool = True,
) -> None:
    """Insert events from `first_seq` on, however many; of those that are out of sight for now, some may be there already."""
    rows = [row_of(session_id, record, seq=seq) for seq, record in enumerate(records, first_seq)]
    await insert_rows(connection, database, session_id=session_id, rows=rows, is_shown=is_shown)


async def insert_rows(
    connection: Connection,
    database: Database,
    *,
    session_id: str,
    rows: Sequence[tuple[Any, ...]],
    is_shown: bool = True,
) -> None:
    """Insert rows of `FIELDS`, as of the head's time or, where they are out of sight, of a time before every commit."""
    if not rows:
        return
    arrays = ", ".join(f"%s::{kind}[]" for kind in _TYPES)
    at, again = ("h.changed_at", "") if is_shown else ("'-infinity'", " ON CONFLICT DO NOTHING")
    text = (
        f"INSERT INTO {{schema}}.events(session_id, {', '.join(FIELDS)}, at) SELECT h.session_id, e.*, {at}"
        f" FROM {{schema}}.heads AS h, unnest({arrays}) AS e WHERE h.session_id = %s{again}"
    )
    await run(
        connection, sql(text, database), values=(*[list(column) for column in zip(*rows, strict=True)], session_id)
    )


@cache
def _statement(count: int, *, begins: bool, keyed: bool) -> str:
    """Return the one statement of an append: nothing of it happens unless the head is as it was."""
    head = head_rows.INSERT if begins else head_rows.UPDATE
    # Bodies go as they are, the rest as text.
    row = ", ".join(f"{'%b' if kind == 'bytea' else '%s'}::{kind}" for kind in _TYPES)
    events = ", ".join([f"({row})"] * count)
    text = (
        f"WITH head AS ({head} RETURNING session_id, changed_at), added AS ("
        f"INSERT INTO {{schema}}.events(session_id, {', '.join(FIELDS)}, at)"
        f" SELECT head.session_id, e.*, head.changed_at FROM head, (VALUES {events}) AS e)"
    )
    if keyed:
        text += (
            f", kept AS ({_REMEMBER} SELECT %b::bytea, head.session_id, %s::bigint, %s::bigint, %s::bigint FROM head)"
        )
    return text + " SELECT count(*) FROM head"
