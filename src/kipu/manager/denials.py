"""What was refused, on record in the session it was about, in few events however often somebody tries (C19)."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from kipu.errors import KipuError
from kipu.events.access import AccessDeniedEvent
from kipu.manager.access import READING, Owned, Verb, may, refusal, role_of
from kipu.manager.writer import EventWriter
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import EventStore
from kipu.session.patch import patch_for

logger = logging.getLogger(__name__)

FREE_EVENTS = 16  # of a session, each told at once
SPACING_S = 600  # from then on, and between two events about the same person and verb
EVENTS_AT_ONCE = 8
KINDS_KEPT = 64  # of (person, verb) that are told apart in one session
SESSIONS_KEPT = 1_024
OTHERS = ""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OwnedT = TypeVar("OwnedT", bound=Owned)


class _Kind(NamedTuple):
    who: str
    tenant: str | None
    verb: str
    role: str | None


@dataclass(slots=True)
class _Count:
    """Refusals of one kind that no event stands for yet, and when one last did."""

    number: int = 0
    first_us: int = 0
    last_us: int = 0
    told_us: int | None = None


class Denials:
    """Refuse, and leave an `access_denied` event of it in the session's log, also for those who may not see the session.

    The first of a kind (person and verb) is told at once. Repetitions are counted and told together, at most one event of a
    kind in `SPACING_S`; and once a session has `FREE_EVENTS` of them, at most `EVENTS_AT_ONCE` in `SPACING_S`, whatever the
    number of people and processes. What is counted and not told yet is told by the next refusal that may, by `tell`, and at
    the end of the process as far as the spacing allows it; the rest is said in the process's own log.
    """

    def __init__(self, store: EventStore, writer: EventWriter, *, now_us: Callable[[], int]) -> None:
        self._store = store
        self._writer = writer
        self._now_us = now_us
        self._counts: OrderedDict[str, dict[_Kind, _Count]] = OrderedDict()

    async def require(self, principal: Principal, verb: Verb, *, head: OwnedT | None, session_id: str) -> OwnedT:
        """Return what is owned when the principal may; a refusal is on record when it is raised.

        Raises:
            SessionNotFoundError: there is none, or it is not for this principal: both look the same from outside (A20).
            AccessDeniedError: they may see it, and not do this.
        """
        if head is None or not may(principal, verb, head=head):
            await self.note(principal, verb, head=head, session_id=session_id)
            raise refusal(principal, verb, head=head, session_id=session_id)
        return head

    async def note(self, principal: Principal, verb: Verb, *, head: Owned | None, session_id: str) -> None:
        """Record that the principal was refused. Never raises for the store: a refusal stays one."""
        if self.count(principal, verb, head=head, session_id=session_id):
            await self.tell(session_id)

    def count(self, principal: Principal, verb: Verb, *, head: Owned | None, session_id: str) -> bool:
        """Count a refusal, and return True where an event about it is due."""
        if head is None or verb in READING:
            return False
        role = role_of(principal, head)
        tenant = principal.tenant if principal.tenant != head.tenant else None
        kinds = self._kinds(session_id)
        kind = _Kind(principal.id, tenant, verb.value, None if role is None else role.value)
        now_us = self._now_us()
        if kind not in kinds and len(kinds) >= KINDS_KEPT:
            _forget_told(kinds, now_us)
            kind = kind if len(kinds) < KINDS_KEPT else _Kind(OTHERS, None, verb.value, None)
        count = kinds.setdefault(kind, _Count())
        count.first_us = count.first_us if count.number else now_us
        count.number, count.last_us = count.number + 1, now_us
        return not _is_recent(count.told_us, now_us)

    async def tell(self, session_id: str, *, asked: bool = False) -> None:
        """Append what is due; where somebody who may `asked` for it, all that is counted."""
        now_us, kinds = self._now_us(), self._counts.get(session_id, {})
        if not any(_is_due(count, now_us, asked=asked) for count in kinds.values()):
            return
        try:
            head = await self._store.head(session_id)
            if head is None:
                self._counts.pop(session_id, None)
            elif asked or not _is_full(head, now_us):
                due = [(kind, count) for kind, count in kinds.items() if _is_due(count, now_us, asked=asked)]
                await self._append(session_id, due if asked else due[:EVENTS_AT_ONCE], now_us)
        except KipuError as error:
            logger.warning("refusals in session %s are not on record yet: %s", session_id, error)

    async def close(self) -> None:
        """Tell what may be told, and say in the process's log what is counted and was not."""
        for session_id in list(self._counts):
            for count in self._counts[session_id].values():
                count.told_us = None
            await self.tell(session_id)
            left = sum(count.number for count in self._counts.get(session_id, {}).values())
            if left:
                logger.warning("%s refusals in session %s are in no event: there were too many", left, session_id)

    async def _append(self, session_id: str, due: list[tuple[_Kind, _Count]], now_us: int) -> None:
        # They are taken before anything is waited for: two tasks never tell the same ones.
        taken = [(count, replace(count)) for _, count in due]
        prepared = [self._writer.ready(session_id, _event(kind, count)) for kind, count in due]
        for count, _ in taken:
            count.number, count.told_us = 0, now_us
        try:
            patch = patch_for([entry.event for entry in prepared])
            await self._store.append(session_id, [entry.record for entry in prepared], head=patch)
        except BaseException:
            for count, before in taken:
                count.number += before.number
                count.first_us, count.told_us = before.first_us, before.told_us
            raise

    def _kinds(self, session_id: str) -> dict[_Kind, _Count]:
        kinds = self._counts.setdefault(session_id, {})
        self._counts.move_to_end(session_id)
        while len(self._counts) > SESSIONS_KEPT:
            self._counts.popitem(last=False)
        return kinds


def _forget_told(kinds: dict[_Kind, _Count], now_us: int) -> None:
    for kind in [kind for kind, count in kinds.items() if not count.number and not _is_recent(count.told_us, now_us)]:
        del kinds[kind]


def _is_due(count: _Count, now_us: int, *, asked: bool) -> bool:
    return count.number > 0 and (asked or not _is_recent(count.told_us, now_us))


def _is_recent(told_us: int | None, now_us: int) -> bool:
    # A time in the future is one that a clock told before it was set back.
    return told_us is not None and 0 <= now_us - told_us < SPACING_S * 1_000_000


def _is_full(head: Head, now_us: int) -> bool:
    if head.denied_count < FREE_EVENTS or not head.denied_at:
        return False
    denied_us = (datetime.fromisoformat(head.denied_at) - _EPOCH) // timedelta(microseconds=1)
    return _is_recent(denied_us, now_us)


def _event(kind: _Kind, count: _Count) -> AccessDeniedEvent:
    return AccessDeniedEvent(
        who=kind.who,
        tenant=kind.tenant,
        verb=kind.verb,
        role=kind.role,
        count=count.number,
        first_at=_EPOCH + timedelta(microseconds=count.first_us),
        last_at=_EPOCH + timedelta(microseconds=count.last_us),
    )
