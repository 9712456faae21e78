"""Following every session at once, though nothing numbers the commits of all of them.

No number that is given before a commit says in which order commits come to be seen. So what is looked at again is a stretch of
the server's time: it begins before every transaction that was still under way at the look before, and a second back at least; now
and then, for transactions that cannot be seen (a standby's, another role's), further back than any statement may take. What was
given of a session is remembered by its seq. Within a session times never go back (`heads.UPDATE`), so that its new events are its
last ones.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import NamedTuple

from kipu.stores.event_row import FIELDS, event_of
from kipu.stores.follow import FollowPage
from kipu.stores.postgres.database import Database, Row
from kipu.stores.postgres.heads import sql

_FIELDS = ", ".join(f"e.{name}" for name in FIELDS)
MARGIN_S = 5.0
_NEAR_S = 1.0
_FAR_EVERY_S = 0.5
_PAGE = 1_000
_FIRST_LOOK = 16  # of a session that was quiet: so many of its last events are looked at, then eight times as many
# What lies on a disk takes milliseconds for each session: thousands in one statement would be longer than any statement may take.
_QUIET_AT_A_TIME = 256
# A transaction that has a number may commit; one of ours may still be given one. A standby and other roles' are not told.
_SETTLED = (
    "(SELECT least(now() - %s * interval '1 second', a.oldest), least(now() - %s * interval '1 second', a.oldest)"
    " FROM (SELECT min(xact_start) - interval '1 millisecond' AS oldest FROM pg_catalog.pg_stat_activity"
    " WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
    " AND (backend_xid IS NOT NULL OR application_name = 'kipu' AND state <> 'idle')) AS a) AS s(far, near)"
)
_BEGIN = f"SELECT s.far FROM {_SETTLED}"
_CHANGED = (
    f"SELECT s.far, s.near, h.session_id, h.last_seq, h.changed_at FROM {_SETTLED}"
    " LEFT JOIN {schema}.heads AS h ON h.changed_at > %s::timestamptz AND h.data IS NOT NULL"
)
_QUIET = (
    "SELECT s.session_id, b.first, b.looked < %s OR b.reached FROM unnest(%s::text[], %s::bigint[]) AS s(session_id, until)"
    " CROSS JOIN LATERAL (SELECT min(n.seq) AS first, count(*) AS looked, bool_or(n.at <= %s::timestamptz) AS reached"
    " FROM (SELECT e.seq, e.at FROM {schema}.events AS e WHERE e.session_id = s.session_id AND e.seq <= s.until"
    " ORDER BY e.seq DESC LIMIT %s) AS n) AS b"
)
_NEW = (
    f"SELECT e.session_id, {_FIELDS} FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS s(session_id, after, until)"
    " JOIN {schema}.events AS e ON e.session_id = s.session_id AND e.seq > s.after AND e.seq <= s.until"
    " WHERE e.at > %s::timestamptz AND (%s::text[] IS NULL OR e.event_type = ANY(%s::text[]))"
    " ORDER BY e.session_id, e.seq LIMIT %s"
)


class _Settled(NamedTuple):
    """Up to which times all is over: for a look that goes far back, and for one that trusts what can be seen."""

    far: datetime
    near: datetime


class Everything:
    """Give the events of all sessions from now on, in order within each; remembers how far it came."""

    def __init__(self, database: Database, *, types: AbstractSet[str] | None) -> None:
        self._database = database
        self._types = None if types is None else sorted(types)
        self._overlap_s = database.address.statement_timeout_s + MARGIN_S
        self._seen: dict[str, int] = {}
        self._floor: datetime | None = None  # of far looks; sessions that changed after it are in `_seen`
        self._next: _Settled | None = None
        self._near: datetime | None = None
        self._far_at_s = 0.0

    async def begin(self) -> None:
        """Begin: what was committed before is no news."""
        if self._floor is not None:
            return
        floor: datetime = (await self._database.rows(_BEGIN, (self._overlap_s, _NEAR_S)))[0][0]
        _, rows = await self._changed(floor)
        if self._floor is None:
            self._floor, self._seen = floor, {session_id: last_seq for session_id, last_seq, _ in rows}

    async def read_page(self, _: None) -> FollowPage[None]:
        """Return events that nobody has been given yet."""
        await self.begin()
        is_far = self._near is None or time.monotonic() - self._far_at_s > _FAR_EVERY_S
        settled, rows = await self._changed(self._floor if is_far else self._near)
        grown = {session_id: seq for session_id, seq, _ in rows if seq > self._seen.get(session_id, 0)}
        found = await self._new(grown, self._floor) if grown else []
        more = len(found) == _PAGE
        if more:  # the last session may go on, and those behind it were not reached
            last_id, last_seq = found[-1][0], found[-1][1]
            grown = {one: seq for one, seq in grown.items() if one < last_id} | {last_id: last_seq}
        self._seen.update(grown)
        if not more:
            self._move(settled, {one: changed_at for one, _, changed_at in rows} if is_far else None)
        events = (event_of(row[0], row[1:]) for row in found)
        return FollowPage([event for event in events if event is not None], None, more)

    async def _changed(self, floor: datetime | None) -> tuple[_Settled, list[Row]]:
        """Return up to which times all is over, as of now, and the sessions that changed after `floor`."""
        values = (self._overlap_s, _NEAR_S, floor)
        rows = await self._database.rows(sql(_CHANGED, self._database), values)
        return _Settled(*rows[0][:2]), [row[2:] for row in rows if row[2] is not None]

    async def _new(self, grown: Mapping[str, int], floor: datetime | None) -> list[Row]:
        quiet = await self._quiet({one: until for one, until in grown.items() if one not in self._seen}, floor)
        after = [self._seen.get(one, quiet.get(one, 0)) for one in grown]
        values = (list(grown), after, list(grown.values()), floor, self._types, self._types, _PAGE)
        return await self._database.rows(sql(_NEW, self._database), values)

    async def _quiet(self, unknown: dict[str, int], floor: datetime | None) -> dict[str, int]:
        """Return a seq of each session before which nothing is new, without reading through all of it."""
        found: dict[str, int] = {}
        count = _FIRST_LOOK
        while unknown:
            names = list(unknown)
            for at in range(0, len(names), _QUIET_AT_A_TIME):
                some = names[at : at + _QUIET_AT_A_TIME]
                values = (count, some, [unknown[one] for one in some], floor, count)
                for session_id, first, is_enough in await self._database.rows(sql(_QUIET, self._database), values):
                    if is_enough:
                        found[session_id] = (first or 1) - 1
            unknown = {one: until for one, until in unknown.items() if one not in found}
            count *= 8
        return found

    def _move(self, settled: _Settled, changed: Mapping[str, datetime] | None) -> None:
        """Look from a later time on, and after a far look forget sessions that did not change since: what they had was given.

        A transaction may have ended between the look's snapshot and its question who is under way: so the answer counts from the
        next look on.
        """
        if self._next is not None:
            self._near = self._next.near
            if changed is not None and (self._floor is None or self._next.far > self._floor):
                self._floor = floor = self._next.far
                self._seen = {one: seq for one, seq in self._seen.items() if one in changed and changed[one] > floor}
        if changed is not None:
            self._far_at_s = time.monotonic()
        self._next = settled
