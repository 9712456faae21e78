"""Going over the heads: what is due is done under the lease, what may not be touched is named with the reason (A55, B47)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from kipu.errors import (
    ConcurrencyError,
    KipuError,
    SessionError,
    SessionForkedError,
    SessionHeldError,
    SessionNotFoundError,
)
from kipu.manager.access import owner_of
from kipu.manager.begun import has_begun
from kipu.manager.lifecycle.archiver import Archiver, set_status
from kipu.manager.lifecycle.retention import ERASED, SILENCE_DAYS, Moment, Retention, kept_by, text_before
from kipu.manager.manager import SessionManager
from kipu.ports.head import Head
from kipu.ports.store import Lease, SessionQuery
from kipu.session.lifecycle import ACTIVE, ARCHIVED, EXPIRED, TRASHED
from kipu.stores.times import iso_from_us

logger = logging.getLogger(__name__)

_PAGE = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Step(NamedTuple):
    """What a sweep did to one session, or would do; with `kept`, why it did not: a stable word."""

    session_id: str
    title: str
    status: str
    step: str
    last_activity_at: str
    kept: str | None = None
    detail: str = ""


@dataclass(slots=True)
class Sweep:
    """What one sweep came to."""

    dry_run: bool
    looked_at: int = 0
    is_doubtful: bool = False  # the clock may be wrong: only expiry was done
    done: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)


Listener = Callable[[Step], None]


class Sweeper:
    """Sweep one store. Several at once do nothing twice: each step is taken under the lease, after a fresh look at the head.

    A session is taken one step at a time, one step a sweep.
    """

    def __init__(
        self,
        manager: SessionManager,
        retention: Retention,
        *,
        erases: bool = True,
        trusts_clock: bool = False,
        archive_to: str | None = None,
    ) -> None:
        self._manager = manager
        self._store = manager.store
        self._retention = retention if erases else replace(retention, erase_after_days=None)
        self._trusts_clock = trusts_clock
        self._archive_to = archive_to
        self.archiver = Archiver(
            manager.store, writer=manager.writer, owner=f"{manager.owner}.sweep", now=self._now_text
        )

    async def sweep(self, *, dry_run: bool = False, tell: Listener | None = None) -> Sweep:
        """Do what is due, or with `dry_run` only say it; `tell` hears of every step, and of every one that is kept from."""
        result = Sweep(dry_run)
        moment = await self._moment()
        result.is_doubtful = moment.is_doubtful
        async for head in self._candidates(moment):
            result.looked_at += 1
            step = moment.due_step(head)
            if step is None:
                continue
            kept, detail = await self._keep_or_take(head, step, moment, dry_run=dry_run)
            (result.kept if kept else result.done)[kept or step] += 1
            if tell is not None:
                told = (head.session_id, head.display_title, head.status, step, head.last_activity_at, kept, detail)
                tell(Step(*told))
        return result

    async def _moment(self) -> Moment:
        """Return the time, doubted where nothing was written for so long before it that the clock is likelier to be wrong."""
        now = _EPOCH + timedelta(microseconds=self._manager.now_us())
        newest = (await self._store.list(SessionQuery(limit=1))).items
        silent = bool(newest) and newest[0].last_activity_at < text_before(now, days=SILENCE_DAYS)
        return Moment(self._retention, now, is_doubtful=silent and not self._trusts_clock)

    async def _candidates(self, moment: Moment) -> AsyncIterator[Head]:
        """Yield the heads for which something can be due, those silent longest first: an index finds them, others are not read."""
        if moment.cutoff is None:
            return
        query = SessionQuery(
            statuses=self._retention.statuses, active_before=moment.cutoff, descending=False, limit=_PAGE
        )
        while True:
            page = await self._store.list(query)
            for head in page.items:
                if await has_begun(self._store, head):
                    yield head
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    async def _keep_or_take(self, head: Head, step: str, moment: Moment, *, dry_run: bool) -> tuple[str | None, str]:
        """Take the step, or return the word that says why not, and what there is to say about it."""
        kept = kept_by(head, now=moment.now)
        if kept is None and step != EXPIRED:
            kept = await self._needed(head, step)
        if kept is not None or dry_run:
            return kept, ""
        try:
            return await self._take(head.session_id, step, moment), ""
        except SessionHeldError:
            return "held", ""
        except SessionForkedError as error:
            return "forks", str(error)
        except (ConcurrencyError, SessionError):  # somebody used it between the two: the next sweep looks again
            return "in_use", ""
        except KipuError as error:
            logger.warning("session %s was not %s: %s", head.session_id, step, error)
            return "failed", str(error)

    async def _needed(self, head: Head, step: str) -> str | None:
        """Return "forks" where others still read the session's events: they would be away, or gone, for those as well."""
        statuses = None if step == ERASED else frozenset({ACTIVE, EXPIRED})
        forks = await self._store.list(SessionQuery(forked_from=head.session_id, statuses=statuses, limit=1))
        return "forks" if forks.items else None

    async def _take(self, session_id: str, step: str, moment: Moment) -> str | None:
        """Take one step under the lease; return why not where a fresh look at the head says so."""
        lock = self.archiver.lock(session_id)
        try:
            if not await lock.try_acquire():
                return "in_use"
        except SessionNotFoundError:
            return "gone"
        try:
            lease, head = lock.lease, await self._store.head(session_id)
            if head is None or lease is None:
                return "gone"
            # Its own lease is none of the reasons to leave it alone.
            fresh = replace(head, lease_owner=None)
            kept = kept_by(fresh, now=moment.now)
            if kept is not None or moment.due_step(fresh) != step:
                return kept or "in_use"
            await self._carry_out(head, step, lease)
        finally:
            await lock.release()
        if step == ERASED:
            await self._manager.erase_session(session_id, principal=owner_of(head))
        return None

    async def _carry_out(self, head: Head, step: str, lease: Lease) -> None:
        reason = f"no activity since {head.last_activity_at[:10]}"
        if step == ARCHIVED:
            await self.archiver.archive_held(head.session_id, lease=lease, to=self._archive_to, reason=reason)
        elif step in {EXPIRED, TRASHED}:
            await set_status(self._store, head, writer=self._manager.writer, status=step, reason=reason, lease=lease)

    def _now_text(self) -> str:
        return iso_from_us(self._manager.now_us())
