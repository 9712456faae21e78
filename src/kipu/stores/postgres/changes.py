"""What changes a head and appends nothing: leases, the index's place, taking events in, letting go of them, erasing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import orjson

from kipu.errors import KipuError, LeaseLostError, SessionNotFoundError, StoreUnavailableError
from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import ErasureReceipt, Lease, Record, StoredEvent
from kipu.stores.admission import check_adopted
from kipu.stores.event_row import row_of
from kipu.stores.head_columns import COLUMNS, columns_of
from kipu.stores.leasing import claimed, holds, released, renewed
from kipu.stores.offloading import check_reload, let_go, taken_back
from kipu.stores.postgres import heads as head_rows
from kipu.stores.postgres.appending import insert_events, insert_rows
from kipu.stores.postgres.database import Connection, Database, fetch, gave_up, pause, run
from kipu.stores.postgres.failures import is_lost
from kipu.stores.postgres.heads import HeadRow, Heads, row_values, sql
from kipu.stores.postgres.members import REMOVE as REMOVE_MEMBERS
from kipu.stores.postgres.server_clock import ServerClock
from kipu.stores.times import iso_from_us

T = TypeVar("T")
HeadData: TypeAlias = dict[str, Any]
Decide: TypeAlias = Callable[[HeadData], tuple[HeadData | None, T]]
More: TypeAlias = Callable[[Connection], Awaitable[None]]

_TRIES = 20
_LOST_TRIES = 5
_LAST_ADOPTED = "SELECT coalesce(max(seq), 0) FROM {schema}.events WHERE session_id = %s AND seq <= %s"
_DROP_EVENTS = "DELETE FROM {schema}.events WHERE session_id = %s AND seq > %s AND seq <= %s"
_DROP_BLOBS = "DELETE FROM {schema}.blobs WHERE session_id = %s AND digest = ANY(%s)"
_BURY = (
    "UPDATE {schema}.heads SET version = version + 1, changed_at = greatest(changed_at, now()), data = NULL, tenant = '',"
    " owner = '', key = NULL, status = '', tags = '', pinned = 0, forked_from = NULL, created_at = '', last_activity_at = '',"
    " due_at = NULL,"
    " lease_owner = NULL, lease_until = NULL, lagging = 0, last_event_at = '', open_turn = false, hidden_seq = 0, last_seq = 0,"
    " metadata = NULL, erased_at = %s, removed = %s WHERE session_id = %s AND version = %s"
)
_RECEIPT = "SELECT removed FROM {schema}.heads WHERE session_id = %s AND erased_at = %s AND data IS NULL"
_AT_A_TIME = 500
_INDEXED = (
    "SELECT session_id, version, data FROM {schema}.heads WHERE data IS NOT NULL AND session_id > %s"
    " ORDER BY session_id LIMIT %s"
)
_UNINDEX = (
    "UPDATE {schema}.heads AS h SET version = h.version + 1, changed_at = greatest(h.changed_at, now()), data = n.data,"
    " lagging = n.lagging FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::integer[])"
    " AS n(session_id, version, data, lagging) WHERE h.session_id = n.session_id AND h.version = n.version"
    " RETURNING h.session_id"
)
_DROP_DOCS = "DELETE FROM {schema}.docs WHERE session_id = ANY(%s)"
_EMPTIED = (
    ("events", "events"), ("docs", "search"), ("blobs", "blobs"), ("bindings", "bindings"), ("idempotency", "idempotency_keys"),
)  # fmt: skip


class Changes:
    """Change heads of one database, each as it was read or not at all."""

    def __init__(self, database: Database, heads: Heads, *, clock: Clock, liveness: Liveness) -> None:
        self._database = database
        self._heads = heads
        self._clock = clock
        self._liveness = liveness

    async def _change(
        self,
        session_id: str,
        decide: Decide[T],
        *,
        more: More | None = None,
        of: Literal["claim", "content"] | None = None,
    ) -> T:
        """Replace the head by what `decide` makes of it, with `more` in the same transaction; None leaves it as it is.

        `of` is what a mark of the store may forbid.
        """
        text = sql(head_rows.UPDATE, self._database)

        async def work(connection: Connection) -> tuple[HeadRow | None, T] | None:
            row = await self._heads.load(session_id, connection=connection)
            if of is not None:
                self._heads.check(row.mark, claims=of == "claim")
            if row.data is None:
                raise SessionNotFoundError(session_id=session_id)
            after, answer = decide(row.data)
            if after is None:
                return None, answer
            values = row_values(after)
            if not await run(connection, text, values=(*values, session_id, row.version)):
                return None
            if more is not None:
                await more(connection)
            return row.after(values, after), answer

        lost: StoreUnavailableError | None = None
        for number in range(_TRIES):
            self._heads.forget(session_id)
            try:
                done = await (
                    self._database.changing(work) if more is None else self._database.together(work, is_patient=True)
                )
            except StoreUnavailableError as error:
                # Whatever is decided here may be decided once more: what happened already is found so.
                if error.__cause__ is None or not is_lost(error.__cause__) or number >= _LOST_TRIES:
                    raise
                lost, done = error, None
            if done is not None:
                row, answer = done
                if row is not None:  # only now is it committed
                    self._heads.keep(session_id, row)
                return answer
            await pause(min(number, 4))
        raise lost or gave_up(self._database.url)

    # ---- leases ----------------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Return a lease with the next token, or None while another owner's is live."""
        has_looked = not isinstance(self._clock, ServerClock)

        def decide(row: HeadData) -> tuple[HeadData | None, Lease | Literal["look"] | None]:
            now_us = self._clock.now_us()
            taken = claimed(row, owner=owner, ttl_s=ttl_s, now_us=now_us, liveness=self._liveness)
            if taken is not None and not has_looked and row.get("lease_owner") not in {None, owner}:
                return None, "look"  # nobody's lease ends by what this machine believes the time to be
            return taken or (None, None)

        answer = await self._change(session_id, decide, of="claim")
        if answer == "look":
            if isinstance(self._clock, ServerClock):
                await self._clock.look(newest=True)
            has_looked = True
            answer = await self._change(session_id, decide, of="claim")
        return answer if isinstance(answer, Lease) else None

    async def renew(self, lease: Lease) -> Lease:
        """Return the lease with a later expiry."""
        try:
            return await self._change(
                lease.session_id, lambda row: renewed(row, lease, now_us=self._clock.now_us()), of="content"
            )
        except SessionNotFoundError as error:
            raise LeaseLostError(session_id=lease.session_id, token=lease.token, current=None) from error

    async def release(self, lease: Lease, *, expected_seq: int | None) -> bool:
        """Give the lease back; False, still holding it, if something arrived since `expected_seq`."""

        def decide(row: HeadData) -> tuple[HeadData | None, bool]:
            outcome = released(row, lease, expected_seq=expected_seq)
            return (None, outcome) if isinstance(outcome, bool) else (outcome, True)

        try:
            return await self._change(lease.session_id, decide)
        except SessionNotFoundError:
            return True

    async def set_indexed(self, session_id: str, seq: int) -> None:
        """Move `indexed_seq` forward; a session that is gone is passed over."""

        def decide(row: HeadData) -> tuple[HeadData | None, None]:
            return ({**row, "indexed_seq": seq}, None) if row.get("indexed_seq", 0) < seq else (None, None)

        try:
            await self._change(session_id, decide)
        except SessionNotFoundError:
            return

    # ---- a fork's own copies, and archives ---------------------------------------------------------------------------

    async def adopt(self, session_id: str, records: Sequence[Record], *, after: int, lease: Lease) -> int:
        """Take in shared events, out of sight for now; return the last one's seq."""
        row = await self._held(session_id, lease)
        base = row.get("base_seq", 0)
        text = sql(_LAST_ADOPTED, self._database)
        end = int((await self._database.rows(text, (session_id, base)))[0][0])
        if not records:
            return end
        check_adopted(row, len(records), after=after, end=end)
        new = records[end - after :]

        async def insert(connection: Connection) -> None:
            await self._require(connection, session_id, lease)
            await insert_events(
                connection, self._database, session_id=session_id, first_seq=end + 1, records=new, is_shown=False
            )

        await self._database.together(insert)
        return end + len(new)

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Let go of every own event and of these blobs."""

        async def remove(connection: Connection) -> None:
            base = (await self._heads.load(session_id, connection=connection)).data or {}
            values = (session_id, base.get("base_seq", 0), until)
            await run(connection, sql(_DROP_EVENTS, self._database), values=values)
            await run(connection, sql(_DROP_BLOBS, self._database), values=(session_id, list(blobs)))

        await self._change(
            session_id, lambda row: (let_go(row, lease, until=until, archive=archive), None), more=remove, of="content"
        )

    async def reload(
        self,
        session_id: str,
        events: Sequence[StoredEvent],
        *,
        lease: Lease,
        complete: bool,
        archive: Mapping[str, Any] | None,
    ) -> None:
        """Take events back, out of sight until it is `complete`."""
        rows = [row_of(session_id, event.record, seq=event.seq) for event in events]

        async def insert(connection: Connection) -> None:
            await self._require(connection, session_id, lease)
            await insert_rows(connection, self._database, session_id=session_id, rows=rows, is_shown=False)

        check_reload((await self._heads.found(session_id)).data or {}, lease, events=events)
        if rows:
            await self._database.together(insert)
        if complete:

            def decide(row: HeadData) -> tuple[HeadData, None]:
                check_reload(row, lease, events=())
                return taken_back(row, archive=archive), None

            await self._change(session_id, decide, of="content")

    async def _held(self, session_id: str, lease: Lease) -> HeadData:
        """Return the head of a session whose lease this is. Raises: SessionNotFoundError, LeaseLostError."""
        row = (await self._heads.found(session_id)).data or {}
        if not holds(row, lease):
            raise LeaseLostError(session_id=session_id, token=lease.token, current=row.get("lease_token", 0))
        return row

    async def _require(self, connection: Connection, session_id: str, lease: Lease) -> None:
        """Refuse where the lease was lost meanwhile, and keep others from taking it before this transaction is over."""
        row = await self._heads.load(session_id, connection=connection)
        self._heads.check(row.mark)
        if row.data is None or not holds(row.data, lease):
            current = None if row.data is None else row.data.get("lease_token", 0)
            raise LeaseLostError(session_id=session_id, token=lease.token, current=current)
        values = (*row_values(row.data), session_id, row.version)
        if not await run(connection, sql(head_rows.UPDATE, self._database), values=values):
            raise LeaseLostError(session_id=session_id, token=lease.token, current=None)
        self._heads.forget(session_id)

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Remove every row of the session; its id stays taken."""
        erased_at = iso_from_us(self._clock.now_us())

        async def work(connection: Connection) -> ErasureReceipt:
            row = await self._heads.load(session_id, connection=connection)
            self._heads.check(row.mark)
            if row.data is None:
                raise SessionNotFoundError(session_id=session_id)
            if not holds(row.data, lease):
                raise LeaseLostError(session_id=session_id, token=lease.token, current=row.data.get("lease_token", 0))
            removed = {"heads": 1}
            for table, name in _EMPTIED:
                text = sql(f"DELETE FROM {{schema}}.{table} WHERE session_id = %s", self._database)
                removed[name] = await run(connection, text, values=(session_id,))
            await run(connection, sql(REMOVE_MEMBERS, self._database), values=(session_id,))
            values = (erased_at, orjson.dumps(removed).decode(), session_id, row.version)
            if not await run(connection, sql(_BURY, self._database), values=values):
                raise LeaseLostError(session_id=session_id, token=lease.token, current=None)
            return ErasureReceipt(session_id, erased_at, removed)

        lost: KipuError | None = None
        for number in range(_LOST_TRIES):
            self._heads.forget(session_id)
            try:
                receipt = await self._database.together(work, is_patient=True)
                break
            except KipuError as error:
                known = None if lost is None else await self._erased(session_id, erased_at)
                if known is not None:
                    return known
                if error.__cause__ is None or not is_lost(error.__cause__):
                    raise
                lost = error
                await pause(number)
        else:
            raise lost or gave_up(self._database.url)
        self._heads.forget(session_id)
        if receipt is None:
            raise gave_up(self._database.url)
        return receipt

    async def _erased(self, session_id: str, erased_at: str) -> ErasureReceipt | None:
        """Return the receipt of an erasure whose answer was lost on the way, or None where it did not happen."""
        rows = await self._database.rows(sql(_RECEIPT, self._database), (session_id, erased_at))
        return ErasureReceipt(session_id, erased_at, orjson.loads(rows[0][0])) if rows else None

    async def drop_index(self) -> None:
        """Forget every term and set every `indexed_seq` to 0, some sessions at a time and both in one transaction."""
        after = ""
        text = sql(_INDEXED, self._database)
        while rows := await self._database.rows(text, (after, _AT_A_TIME)):
            found = {row[0]: HeadRow(row[1], orjson.loads(row[2])) for row in rows}
            done = await self._database.together(partial(self._unindex, found), is_patient=True) or set()
            for session_id in found:
                self._heads.forget(session_id)
                if session_id not in done:  # somebody changed it at this moment
                    await self._unindex_one(session_id)
            after = rows[-1][0]

    async def _unindex(self, found: Mapping[str, HeadRow], connection: Connection) -> set[str]:
        after = {one: {**(row.data or {}), "indexed_seq": 0} for one, row in found.items()}
        values = (
            list(after),
            [row.version for row in found.values()],
            [orjson.dumps(data).decode() for data in after.values()],
            [columns_of(data)[COLUMNS.index("lagging")] for data in after.values()],
        )
        done = {row[0] for row in await fetch(connection, sql(_UNINDEX, self._database), values=values)}
        await run(connection, sql(_DROP_DOCS, self._database), values=(sorted(done),))
        return done

    async def _unindex_one(self, session_id: str) -> None:
        async def drop(connection: Connection) -> None:
            await run(connection, sql(_DROP_DOCS, self._database), values=([session_id],))

        with suppress(SessionNotFoundError):
            await self._change(session_id, lambda row: ({**row, "indexed_seq": 0}, None), more=drop)
