"""Appending: decided here on the head as it was read, done there by one script that does it only if it still is so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from kipu.errors import ConflictError, KipuError, StoreUnavailableError
from kipu.ports.clock import Clock
from kipu.ports.head import apply_patch
from kipu.ports.owner import Liveness
from kipu.ports.store import IDEMPOTENCY_RETENTION_S, Appended
from kipu.stores.admission import AppendRequest, admit, ends_sharing, taken_over
from kipu.stores.valkey.event_value import check_size, read_value, value_of
from kipu.stores.valkey.failures import is_lost
from kipu.stores.valkey.heads import Command, HeadRow, Heads, head_commands, next_version
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.server import Server, pause
from kipu.stores.valkey.writing import ANY_VERSION, Change, Outcome, Writer

_LOST_TRIES = 5
_CALM_TRIES = 4  # then others are at it too, and a moment's wait lets one of them through
_PAGE = 500
_RETENTION_US = IDEMPOTENCY_RETENTION_S * 1_000_000
# The server's clock is another one, and drops a key by itself only when no clock could want it any more.
_KEPT_S = IDEMPOTENCY_RETENTION_S + 24 * 3600


class _Draft(NamedTuple):
    """What an append comes to, if the head still is as it was."""

    row: HeadRow
    change: Change
    appended: Appended


class Once(NamedTuple):
    """What stands under an idempotency key."""

    session_id: str
    first_seq: int
    last_seq: int
    at_us: int

    @classmethod
    def parse(cls, text: str) -> Once:
        """Return what a value says."""
        session_id, first, last, at_us = text.split(" ")
        return cls(session_id, int(first), int(last), int(at_us))

    def __str__(self) -> str:
        return f"{self.session_id} {self.first_seq} {self.last_seq} {self.at_us}"


class _Attempts:
    """What is known of the tries of one append."""

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.number = 0
        self.key_value = ""  # what may stand under the key without being an outcome: too old, or of an erased session
        self.first_seqs: list[int] = []  # where the batch may stand, as its connection went before the answer came
        self.lost: StoreUnavailableError | None = None


class Appender:
    """Append batches to sessions of one store."""

    def __init__(
        self, server: Server, keys: KeyNames, *, heads: Heads, writer: Writer, clock: Clock, liveness: Liveness
    ) -> None:
        self._server = server
        self._keys = keys
        self._heads = heads
        self._writer = writer
        self._clock = clock
        self._liveness = liveness
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def append(self, request: AppendRequest) -> Appended:
        """Append a batch as the contract says, however many others append at the same moment."""
        check_size(request.records)
        async with self._turns.setdefault(request.session_id, asyncio.Lock()):
            appended = await self._append(request)
        if appended.duplicate:  # whoever appended it may have been told that no replica has it
            await self._server.confirm()
        return appended

    async def _append(self, request: AppendRequest) -> Appended:
        limit_s = self._server.address.timeout_s
        attempts = _Attempts(asyncio.get_running_loop().time() + limit_s)
        row, is_fresh = await self._heads.take(request.session_id)
        while True:
            try:
                draft = await self._draft(request, row, key_value=attempts.key_value)
            except KipuError:
                known = await self._known(request, attempts)
                if known is not None:
                    return known
                if is_fresh:
                    raise
                row, is_fresh = await self._heads.load(request.session_id), True
                continue
            try:
                outcome = await self._writer.write(draft.change)
            except StoreUnavailableError as error:
                self._heads.forget(request.session_id)
                if not is_lost(error):
                    raise
                attempts.first_seqs.append(draft.appended.first_seq)
                attempts.lost = error
                row, is_fresh = await self._settled(request.session_id, attempts), True
                known = await self._known(request, attempts)
                if known is not None:
                    return known
                continue
            if outcome.is_done:
                self._heads.keep(request.session_id, draft.row)
                return draft.appended
            known = await self._judged(request, draft, outcome, attempts)
            if known is not None:
                return known
            row, is_fresh = (outcome.row, True) if outcome.row is not None else (row, is_fresh)

    async def _settled(self, session_id: str, attempts: _Attempts) -> HeadRow:
        """Return the head under a version that what was lost on its way does not know: it happened by now, or never will."""
        for number in range(_LOST_TRIES):
            await pause(number)
            try:
                return await self._heads.fenced(session_id)
            except StoreUnavailableError as error:
                if not is_lost(error):
                    raise
        raise attempts.lost or self._gave_up()

    async def _judged(
        self, request: AppendRequest, draft: _Draft, outcome: Outcome, attempts: _Attempts
    ) -> Appended | None:
        """Return what stands under the key that was taken, or None after a moment: then it is decided anew."""
        attempts.number += 1
        key = request.idempotency_key
        if key is not None and outcome.check == 0:
            known = await self._alive(outcome.found)
            if known is not None:
                return known
            attempts.key_value = outcome.found
        self._heads.forget(request.session_id)
        if asyncio.get_running_loop().time() > attempts.deadline_s:
            raise self._gave_up()
        if attempts.number > _CALM_TRIES:
            await asyncio.sleep(random.random() * 0.004)  # noqa: S311
        return None

    async def _known(self, request: AppendRequest, attempts: _Attempts) -> Appended | None:
        """Return where the batch stands already: under its key, or where a try was to put it whose answer was lost."""
        known = await self.outcome(request.idempotency_key)
        if known is not None and not (attempts.first_seqs and known.first_seq in attempts.first_seqs):
            return known
        events = self._keys.of(request.session_id).events
        for first_seq in attempts.first_seqs:
            value = await self._server.ask("HGET", events, first_seq)
            found = None if value is None else read_value(request.session_id, value, seq=first_seq).event
            if found is not None and found.record.event_id == request.records[0].event_id:
                return Appended(request.session_id, first_seq, first_seq + len(request.records) - 1)
        return known

    async def outcome(self, key: str | None) -> Appended | None:
        """Return what stands under an idempotency key within its retention."""
        if key is None:
            return None
        value = await self._server.ask("GET", self._keys.outcome(key))
        return None if value is None else await self._alive(value.decode())

    async def _alive(self, text: str) -> Appended | None:
        """Return an outcome that counts: not too old, and of a session that was not erased."""
        if not text:
            return None
        once = Once.parse(text)
        if once.at_us <= self._clock.now_us() - _RETENTION_US:
            return None
        if not await self._server.ask("HEXISTS", self._keys.of(once.session_id).head, "d"):
            return None
        return Appended(once.session_id, once.first_seq, once.last_seq, duplicate=True)

    def _gave_up(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            store=self._server.url, reason="others keep changing the session at the same moment"
        )

    # ---- deciding --------------------------------------------------------------------------------------------------

    async def _draft(self, request: AppendRequest, row: HeadRow, *, key_value: str) -> _Draft:
        now_us = self._clock.now_us()
        adopted = await self._adopted(request, row)
        bound_to = None if request.bind is None else await self.bound_to(request.bind.key)
        before = admit(
            request,
            row.data,
            erased=row.is_erased,
            bound_to=bound_to,
            adopted_seq=len(adopted),
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
        own = row.adopted
        if adopted:
            after, own = taken_over(after, adopted), len(adopted)
        new = HeadRow(next_version(row.version), after, own, row.returned)
        appended = Appended(request.session_id, first_seq, after["last_seq"])
        change = self._change(request, row, new, appended, now_us=now_us)
        if request.idempotency_key is not None:
            change.checks.insert(0, (self._keys.outcome(request.idempotency_key), key_value))
        return _Draft(new, change, appended)

    def _change(self, request: AppendRequest, row: HeadRow, new: HeadRow, appended: Appended, *, now_us: int) -> Change:
        commands = head_commands(self._keys, new, before=row.data)
        change = Change(
            request.session_id,
            row.version,
            commands,
            first_seq=appended.first_seq,
            events=[
                value_of(request.session_id, record, seq=seq)
                for seq, record in enumerate(request.records, appended.first_seq)
            ],
            types=frozenset(record.event_type for record in request.records),
        )
        if request.bind is not None:
            change.checks.append((self._keys.binding(request.bind.key), request.bind.expected or ""))
            commands += self._binding(request.bind.key, request.session_id, expected=request.bind.expected)
        if request.idempotency_key is not None:
            commands += self._remembering(request.idempotency_key, appended, now_us=now_us)
        return change

    def _remembering(self, key: str, appended: Appended, *, now_us: int) -> list[Command]:
        outcomes = self._keys.of(appended.session_id).outcomes
        once = Once(appended.session_id, appended.first_seq, appended.last_seq, now_us)
        return [
            ("SET", self._keys.outcome(key), str(once), "EX", _KEPT_S),
            ("ZREMRANGEBYSCORE", outcomes, "-inf", now_us - _RETENTION_US),
            ("ZADD", outcomes, now_us, key),
        ]

    async def _adopted(self, request: AppendRequest, row: HeadRow) -> Sequence[int]:
        """Return what the shared events count that an append makes the session's own."""
        if row.data is None or not ends_sharing(request) or not row.data.get("base_seq"):
            return []
        base, found = row.data["base_seq"], list[int]()
        adopted = self._keys.of(request.session_id).adopted
        while len(found) < base:
            seqs = range(len(found) + 1, min(len(found) + _PAGE, base) + 1)
            values = await self._server.ask("HMGET", adopted, *seqs)
            read = [
                read_value(request.session_id, value, seq=seq).event
                for seq, value in zip(seqs, values, strict=True)
                if value is not None
            ]
            found += [event.record.tokens for event in read if event is not None]
            if len(read) < len(seqs) or None in read:
                break
        return found

    # ---- keys ------------------------------------------------------------------------------------------------------

    async def bound_to(self, key: str) -> str | None:
        """Return the session id that a key leads to."""
        value = await self._server.ask("GET", self._keys.binding(key))
        return None if value is None else value.decode()

    def _binding(self, key: str, session_id: str, *, expected: str | None) -> list[Command]:
        commands: list[Command] = [] if expected is None else [("SREM", self._keys.of(expected).bindings, key)]
        commands.append(("SET", self._keys.binding(key), session_id))
        commands.append(("SADD", self._keys.of(session_id).bindings, key))
        return commands

    async def bind(self, key: str, session_id: str, *, expected: str | None) -> None:
        """Make a key lead to a session if it leads to `expected`. Raises: SessionNotFoundError, ConflictError."""
        version = next_version(str(random.getrandbits(30)))
        change = Change(
            session_id,
            ANY_VERSION,
            # With a version of its own the session is not erased by somebody who did not see this key.
            [
                ("HSET", self._keys.of(session_id).head, "v", version),
                *self._binding(key, session_id, expected=expected),
            ],
            checks=[(self._keys.binding(key), expected or "")],
        )
        self._heads.forget(session_id)
        was_lost = False
        for number in range(_LOST_TRIES):
            try:
                outcome = await self._writer.write(change)
            except StoreUnavailableError as error:
                if not is_lost(error) or number == _LOST_TRIES - 1:
                    raise
                was_lost = True
                await pause(number)
                continue
            if outcome.is_done:
                return
            if was_lost and outcome.found == session_id:
                await self._server.confirm()
                return
            await self._heads.found(session_id)
            raise ConflictError(session_id=key, expected=expected, actual=outcome.found or None)
