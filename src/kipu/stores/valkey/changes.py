"""What changes a head and appends nothing: leases, taking events in, letting go of them, erasing, the store's mark."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import orjson

from kipu.errors import ConflictError, LeaseLostError, SessionNotFoundError, StoreUnavailableError
from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import ErasureReceipt, Lease, Record, StoredEvent, StoreMark, Tombstone
from kipu.stores.admission import check_adopted
from kipu.stores.leasing import claimed, holds, released, renewed
from kipu.stores.offloading import check_reload, let_go, taken_back
from kipu.stores.server_clock import ServerClock
from kipu.stores.store_mark import check_expected, mark_to_text
from kipu.stores.times import iso_from_us
from kipu.stores.valkey.event_value import NO_COMMIT, in_batches, value_of
from kipu.stores.valkey.failures import is_lost
from kipu.stores.valkey.heads import NEW, Command, HeadRow, Heads, head_commands, next_version
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.places import places_of
from kipu.stores.valkey.scripts import FORGET
from kipu.stores.valkey.server import Server, pause
from kipu.stores.valkey.writing import NO_SESSION, Change, Lane, Outcome, Writer

T = TypeVar("T")
HeadData: TypeAlias = dict[str, Any]
Decide: TypeAlias = Callable[[HeadRow], Awaitable[tuple[HeadRow | None, T, list[Command]]]]

_LOST_TRIES = 5
_CALM_TRIES = 4
_WORDS = 500  # in one command
_FIELDS = ("d", "t", "c", "a", "lo", "s", "b", "o", "au", "ru", "n", "pn", "f")
NO_NEWS = None
NEWS_OF_ANY: frozenset[str] = frozenset()


class Changes:
    """Change heads of one store, each as it was read or not at all."""

    def __init__(
        self, server: Server, keys: KeyNames, *, heads: Heads, writer: Writer, clock: Clock, liveness: Liveness
    ) -> None:
        self._server = server
        self._keys = keys
        self._heads = heads
        self._writer = writer
        self._clock = clock
        self._liveness = liveness

    async def _change(
        self,
        session_id: str,
        decide: Decide[T],
        *,
        lane: Lane = Lane.CHANGE,
        types: frozenset[str] | None = NO_NEWS,
    ) -> T:
        """Replace the head by what `decide` makes of it, with its commands; None leaves it as it is."""
        deadline_s = asyncio.get_running_loop().time() + self._server.address.timeout_s
        row, number, losses = await self._heads.load(session_id), 0, list[StoreUnavailableError]()
        while True:
            if row.data is None:
                raise SessionNotFoundError(session_id=session_id) from (losses[-1] if losses else None)
            after, answer, more = await decide(row)
            if after is None:
                if lane is Lane.CLAIM:  # nothing is to be written, which would have seen the mark
                    await self.mark()
                    self._writer.refuse(lane)
                return answer
            commands = more if after.data is None else [*head_commands(self._keys, after, before=row.data), *more]
            change = Change(session_id, row.version, commands, types=types, lane=lane)
            self._heads.forget(session_id)
            try:
                outcome = await self._writer.write(change)
            except StoreUnavailableError as error:
                # Whatever is decided here may be decided once more: what happened already is found so.
                if not is_lost(error) or len(losses) >= _LOST_TRIES:
                    raise
                await pause(len(losses))
                losses.append(error)
                row = await self._heads.fenced(session_id)
                continue
            if outcome.is_done:
                if after.data is not None:
                    self._heads.keep(session_id, after)
                return answer
            row, number = outcome.row or row, number + 1
            if asyncio.get_running_loop().time() > deadline_s:
                reason = "others keep changing the session at the same moment"
                raise StoreUnavailableError(store=self._server.url, reason=reason)
            if number > _CALM_TRIES:
                await asyncio.sleep(random.random() * 0.004)  # noqa: S311

    async def _change_data(
        self, session_id: str, decide: Callable[[HeadData], tuple[HeadData | None, T]], *, lane: Lane = Lane.CHANGE
    ) -> T:
        async def whole(row: HeadRow) -> tuple[HeadRow | None, T, list[Command]]:
            data, answer = decide(row.data or {})
            return None if data is None else _with(row, data), answer, []

        return await self._change(session_id, whole, lane=lane)

    async def repeated(self, change: Change) -> Outcome:
        """Carry out a change that may be carried out twice."""
        for number in range(_LOST_TRIES):
            try:
                return await self._writer.write(change)
            except StoreUnavailableError as error:
                if not is_lost(error) or number == _LOST_TRIES - 1:
                    raise
                await pause(number)
        raise AssertionError

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

        answer = await self._change_data(session_id, decide, lane=Lane.CLAIM)
        if answer == "look":
            if isinstance(self._clock, ServerClock):
                await self._clock.look(newest=True)
            has_looked = True
            answer = await self._change_data(session_id, decide, lane=Lane.CLAIM)
        return answer if isinstance(answer, Lease) else None

    async def renew(self, lease: Lease) -> Lease:
        """Return the lease with a later expiry."""
        try:
            return await self._change_data(
                lease.session_id, lambda row: renewed(row, lease, now_us=self._clock.now_us())
            )
        except SessionNotFoundError as error:
            raise LeaseLostError(session_id=lease.session_id, token=lease.token, current=None) from error

    async def release(self, lease: Lease, *, expected_seq: int | None) -> bool:
        """Give the lease back; False, still holding it, if something arrived since `expected_seq`."""

        def decide(row: HeadData) -> tuple[HeadData | None, bool]:
            outcome = released(row, lease, expected_seq=expected_seq)
            return (None, outcome) if isinstance(outcome, bool) else (outcome, True)

        try:
            return await self._change_data(lease.session_id, decide, lane=Lane.ALWAYS)
        except SessionNotFoundError:
            return True

    # ---- a fork's own copies, and archives ---------------------------------------------------------------------------

    async def adopt(self, session_id: str, records: Sequence[Record], *, after: int, lease: Lease) -> int:
        """Take in shared events, out of sight for now; return the last one's seq."""
        start, end = 0, 0
        for stop in in_batches(records):
            end = await self._adopt(session_id, records[start:stop], after=after + start, lease=lease)
            start = stop
        return end

    async def _adopt(self, session_id: str, records: Sequence[Record], *, after: int, lease: Lease) -> int:
        adopted = self._keys.of(session_id).adopted

        async def decide(row: HeadRow) -> tuple[HeadRow | None, int, list[Command]]:
            data = row.data or {}
            _require(data, lease)
            end = min(await self._server.ask("HLEN", adopted), data.get("base_seq", 0))
            if not records:
                return None, end, []
            check_adopted(data, len(records), after=after, end=end)
            new = list(enumerate(records[end - after :], end + 1))
            values = [(seq, NO_COMMIT + value_of(session_id, record, seq=seq)) for seq, record in new]
            return _with(row, data), end + len(new), _puts(adopted, values)

        return await self._change(session_id, decide)

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Let go of every own event and of these blobs."""
        keys = self._keys.of(session_id)

        async def decide(row: HeadRow) -> tuple[HeadRow | None, None, list[Command]]:
            data = row.data or {}
            after = let_go(data, lease, until=until, archive=archive)
            if data.get("offloaded_seq") == until:  # it happened: what arrived since then stays
                return None, None, []
            gone = [keys.events, keys.returned, *([keys.adopted] if row.adopted else [])]
            commands: list[Command] = [("UNLINK", *gone)]
            commands += [("HDEL", keys.blobs, *some) for some in _in_parts(blobs)]
            return HeadRow(next_version(row.version), after), None, commands

        await self._change(session_id, decide, types=NEWS_OF_ANY)

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
        start = 0
        for stop in in_batches([event.record for event in events]):
            is_last = stop == len(events)
            await self._reload(
                session_id, events[start:stop], lease=lease, complete=complete and is_last, archive=archive
            )
            start = stop

    async def _reload(
        self,
        session_id: str,
        events: Sequence[StoredEvent],
        *,
        lease: Lease,
        complete: bool,
        archive: Mapping[str, Any] | None,
    ) -> None:
        returned = self._keys.of(session_id).returned
        values = [(event.seq, NO_COMMIT + value_of(session_id, event.record, seq=event.seq)) for event in events]

        async def decide(row: HeadRow) -> tuple[HeadRow | None, None, list[Command]]:
            data = row.data or {}
            check_reload(data, lease, events=events)
            if not complete:
                return _with(row, data), None, _puts(returned, values)
            after = HeadRow(
                next_version(row.version),
                taken_back(data, archive=archive),
                row.adopted,
                max(row.returned, data.get("offloaded_seq", 0)),
            )
            return after, None, _puts(returned, values)

        if events or complete:
            await self._change(session_id, decide)
        else:
            check_reload((await self._heads.found(session_id)).data or {}, lease, events=events)

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Remove everything of the session; its id stays taken. Killed in the middle, the rest goes when called again."""
        await self.finish_erasing(session_id)
        erased_at = iso_from_us(self._clock.now_us())

        async def decide(row: HeadRow) -> tuple[HeadRow, ErasureReceipt, list[Command]]:
            _require(row.data or {}, lease)
            return await self._buried(session_id, row, erased_at=erased_at)

        try:
            receipt = await self._change(session_id, decide, types=NEWS_OF_ANY)
        except SessionNotFoundError as error:
            # Where an answer was lost on the way, it may have been this erasure's.
            known = None if error.__cause__ is None else await self._receipt(session_id, erased_at)
            if known is None:
                raise
            receipt = known
        await self.finish_erasing(session_id)
        return receipt

    async def _buried(
        self, session_id: str, row: HeadRow, *, erased_at: str
    ) -> tuple[HeadRow, ErasureReceipt, list[Command]]:
        keys, ask = self._keys.of(session_id), self._server.ask
        bound = sorted(value.decode() for value in await ask("SMEMBERS", keys.bindings))
        removed = {
            "events": sum([await ask("HLEN", name) for name in (keys.events, keys.returned, keys.adopted)]),
            "blobs": await ask("HLEN", keys.blobs),
            "bindings": len(bound),
            "idempotency_keys": await ask("ZCARD", keys.outcomes),
            "heads": 1,
        }
        version = next_version(row.version)
        commands: list[Command] = [
            ("UNLINK", keys.events, keys.returned, keys.adopted, keys.blobs, keys.bindings),
            *(("UNLINK", *some) for some in _in_parts([self._keys.binding(key) for key in bound])),
            *(("ZREM", *place) for place in sorted(places_of(self._keys, row.data or {}))),
            ("ZREM", self._keys.changed, session_id),
            ("HDEL", keys.head, *_FIELDS),
            ("HSET", keys.head, "v", version, "erased_at", erased_at, "removed", orjson.dumps(removed)),
            ("ZADD", self._keys.tombstones, 0, session_id),
            ("SADD", self._keys.erasing, session_id),
        ]
        return HeadRow(version, None), ErasureReceipt(session_id, erased_at, removed), commands

    async def _receipt(self, session_id: str, erased_at: str) -> ErasureReceipt | None:
        at, removed = await self._server.ask("HMGET", self._keys.of(session_id).head, "erased_at", "removed")
        if at is None or at.decode() != erased_at or removed is None:
            return None
        return ErasureReceipt(session_id, erased_at, orjson.loads(removed))

    async def finish_erasing(self, session_id: str) -> None:
        """Forget the retries of a session that was erased, some at a time; they do not count already."""
        outcomes, root = self._keys.of(session_id).outcomes, self._keys.outcome("")
        if not await self._server.ask("SISMEMBER", self._keys.erasing, session_id):
            return
        while found := await self._server.ask("ZRANGE", outcomes, 0, _WORDS - 1):
            await self._server.look(FORGET, session_id, outcomes, root, *found)
        await self._server.command("SREM", self._keys.erasing, session_id)

    async def finish_all_erasing(self) -> None:
        """Go on with erasures that a kill cut off."""
        for session_id in await self._server.ask("SMEMBERS", self._keys.erasing):
            await self.finish_erasing(session_id.decode())

    # ---- the store as a whole ----------------------------------------------------------------------------------------

    async def mark(self) -> StoreMark | None:
        """Return the store's mark as it is now."""
        text = await self._server.ask("GET", self._keys.mark)
        self._writer.see_mark((text or b"").decode())
        return self._writer.mark

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None) -> None:
        """Let the store have this mark if it now has `expected`."""
        text = "" if mark is None else mark_to_text(mark)
        command: Command = ("SET", self._keys.mark, text) if text else ("UNLINK", self._keys.mark)
        was_lost, found = False, expected
        for number in range(_LOST_TRIES):
            found = await self.mark()
            if was_lost and found == mark:
                await self._server.confirm()
                break
            check_expected(found, expected, store=self._server.url)
            now = "" if found is None else mark_to_text(found)
            change = Change("", NO_SESSION, [command], checks=[(self._keys.mark, now)], lane=Lane.ALWAYS)
            try:
                if (await self._writer.write(change)).is_done:
                    break
            except StoreUnavailableError as error:
                if not is_lost(error) or number == _LOST_TRIES - 1:
                    raise
                was_lost = True
                await pause(number)
        else:
            raise ConflictError(session_id=f"the mark of {self._server.url}", expected=expected, actual=found)
        self._writer.see_mark(text, is_own=True)

    async def tombstones(self, *, after: str, limit: int) -> list[Tombstone]:
        """Return ids that were erased, sorted."""
        low = f"({after}" if after else "-"
        ids = await self._server.ask("ZRANGEBYLEX", self._keys.tombstones, low, "+", "LIMIT", 0, limit)
        found = []
        for session_id in map(bytes.decode, ids):
            at = await self._server.ask("HGET", self._keys.of(session_id).head, "erased_at")
            found.append(Tombstone(session_id, (at or b"").decode()))
        return found

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Make these ids ones that are not used again."""
        for session_id, erased_at in tombstones:
            head = self._keys.of(session_id).head
            commands: list[Command] = [
                ("HSET", head, "v", next_version(NEW), "erased_at", erased_at, "removed", "{}"),
                ("ZADD", self._keys.tombstones, 0, session_id),
            ]
            await self.repeated(Change(session_id, NEW, commands))  # or the id is taken already


def _with(row: HeadRow, data: HeadData) -> HeadRow:
    return HeadRow(next_version(row.version), data, row.adopted, row.returned)


def _require(row: HeadData, lease: Lease) -> None:
    if not holds(row, lease):
        raise LeaseLostError(session_id=lease.session_id, token=lease.token, current=row.get("lease_token", 0))


def _puts(key: str, values: Sequence[tuple[int, bytes]]) -> list[Command]:
    commands: list[Command] = []
    for start in range(0, len(values), _WORDS // 2):
        words = [word for pair in values[start : start + _WORDS // 2] for word in pair]
        commands.append(("HSET", key, *words))
    return commands


def _in_parts(words: Sequence[str]) -> list[Sequence[str]]:
    return [words[start : start + _WORDS] for start in range(0, len(words), _WORDS)]
