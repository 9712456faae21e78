"""Following every session at once, though nothing numbers the commits of all of them.

No number that is given before a commit says in which order commits come to be seen. So what is looked at again is a stretch of
the server's time that is longer than any statement may take: whatever began before it has ended, and what was given of a session
is remembered by its seq.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta

from kipu.stores.event_row import FIELDS, event_of
from kipu.stores.follow import FollowPage
from kipu.stores.postgres.database import Database, Row
from kipu.stores.postgres.heads import sql

_FIELDS = ", ".join(f"e.{name}" for name in FIELDS)
MARGIN_S = 5.0
_PAGE = 1_000
_CHANGED = (
    "SELECT now(), h.session_id, h.last_seq, h.changed_at FROM {schema}.heads AS h"
    " WHERE h.changed_at > %s::timestamptz AND h.data IS NOT NULL"
)
_NOW = "SELECT now()"
_NEW = (
    f"SELECT e.session_id, {_FIELDS} FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS s(session_id, after, until)"
    " JOIN {schema}.events AS e ON e.session_id = s.session_id AND e.seq > s.after AND e.seq <= s.until"
    " WHERE e.at > %s::timestamptz AND (%s::text[] IS NULL OR e.event_type = ANY(%s::text[]))"
    " ORDER BY e.session_id, e.seq LIMIT %s"
)


class Everything:
    """Give the events of all sessions from now on, in order within each; remembers how far it came."""

    def __init__(self, database: Database, *, types: AbstractSet[str] | None) -> None:
        self._database = database
        self._types = None if types is None else sorted(types)
        self._overlap = timedelta(seconds=database.address.statement_timeout_s + MARGIN_S)
        self._seen: dict[str, int] = {}
        self._floor: datetime | None = None

    async def begin(self) -> None:
        """Begin: what was committed before is no news."""
        if self._floor is not None:
            return
        now: datetime = (await self._database.rows(_NOW))[0][0]
        floor = now - self._overlap
        rows = await self._database.rows(sql(_CHANGED, self._database), (floor,))
        if self._floor is None:
            self._floor, self._seen = floor, {session_id: last_seq for _, session_id, last_seq, _ in rows}

    async def read_page(self, _: None) -> FollowPage[None]:
        """Return events that nobody has been given yet."""
        await self.begin()
        floor = self._floor
        rows = await self._database.rows(sql(_CHANGED, self._database), (floor,))
        grown = {row[1]: row[2] for row in rows if row[2] > self._seen.get(row[1], 0)}
        found = await self._new(grown, floor) if grown else []
        more = len(found) == _PAGE
        if more:  # the last session may go on, and those behind it were not reached
            last_id, last_seq = found[-1][0], found[-1][1]
            grown = {one: seq for one, seq in grown.items() if one < last_id} | {last_id: last_seq}
        self._seen.update(grown)
        if rows and not more:
            self._move(rows[0][0] - self._overlap, {row[1]: row[3] for row in rows})
        events = (event_of(row[0], row[1:]) for row in found)
        return FollowPage([event for event in events if event is not None], None, more)

    async def _new(self, grown: dict[str, int], floor: datetime | None) -> list[Row]:
        after = [self._seen.get(session_id, 0) for session_id in grown]
        values = (list(grown), after, list(grown.values()), floor, self._types, self._types, _PAGE)
        return await self._database.rows(sql(_NEW, self._database), values)

    def _move(self, floor: datetime, changed: dict[str, datetime]) -> None:
        """Look from a later time on, and forget sessions that did not change since: what they had was given."""
        self._floor = floor
        self._seen = {one: seq for one, seq in self._seen.items() if one in changed and changed[one] > floor}
