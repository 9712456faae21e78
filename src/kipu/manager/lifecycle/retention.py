"""What is due for a session that nobody uses, as pure code over its head (A54, A55, B47)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from kipu.errors import ConfigurationError
from kipu.manager.holding import hold_of
from kipu.manager.lifecycle.archiver import is_at_work
from kipu.manager.listing import OWN_CHANNEL
from kipu.ports.head import Head
from kipu.session.lifecycle import ARCHIVED, EXPIRED, TRANSITIONS, TRASHED

ERASED = "erased"  # no status: it ends the session
NEVER = "never"
_MAX_DAYS = 36_500
# A step that takes a session further away waits until the one before it has stood for so long. A clock that jumps forward
# makes every session look old at once; what it then puts aside can all be brought back until this time has passed as well.
REST_DAYS = 7
# Where the whole store has been silent for so long, a wrong clock is likelier than a forgotten store: only what use undoes
# by itself is done, until somebody says that the clock is right.
SILENCE_DAYS = 90


# From which statuses each step is taken: by the table of transitions, but for erasing, which ends what is in the trash.
_STATUSES_BEFORE = MappingProxyType(
    {
        **{
            step: frozenset(before for before, after in TRANSITIONS.items() if step in after)
            for step in (EXPIRED, ARCHIVED, TRASHED)
        },
        ERASED: frozenset({TRASHED}),
    }
)


@dataclass(frozen=True, slots=True)
class Retention:
    """After how many days without a message or a turn a session takes each step; None is never. Only expiry is on by itself.

    Expiring and archiving take nothing away, and use brings back. The trash and erasing are for whoever asks for them.
    """

    expire_after_days: int | None = 30
    archive_after_days: int | None = None
    trash_after_days: int | None = None
    erase_after_days: int | None = None

    @classmethod
    def parse(cls, table: Mapping[str, Any], *, source: str) -> Retention:
        """Return what a table of settings says. Nought is refused: it has meant "all of it, now" to too many (situation 68).

        Raises: ConfigurationError.
        """
        names = {field.name.removesuffix("_days"): field.name for field in fields(cls)}
        values: dict[str, int | None] = {}
        for name, value in table.items():
            if name not in names:
                known = ", ".join(names)
                raise ConfigurationError(reason=f"retention in {source} has no {name!r}; it has {known}")
            if value == NEVER:
                values[names[name]] = None
            elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_DAYS:
                reason = f"retention.{name} in {source} is {value!r:.40}, not a number of days from 1 on, or {NEVER!r}"
                raise ConfigurationError(reason=reason)
            else:
                values[names[name]] = value
        said = [(name, days) for name, full in names.items() if (days := values.get(full)) is not None]
        for (earlier, few), (later, many) in itertools.pairwise(said):
            if many < few:
                reason = f"retention in {source} says {later} = {many}, which is before {earlier} = {few}"
                raise ConfigurationError(reason=reason)
        return cls(**values)

    @property
    def steps(self) -> tuple[tuple[str, int], ...]:
        """Return each step that is on, the furthest first, and after how many days it is due."""
        days = (
            (ERASED, self.erase_after_days),
            (TRASHED, self.trash_after_days),
            (ARCHIVED, self.archive_after_days),
            (EXPIRED, self.expire_after_days),
        )
        return tuple((step, value) for step, value in days if value is not None)

    @property
    def statuses(self) -> frozenset[str]:
        """Return the statuses from which something is due."""
        return frozenset().union(*(_STATUSES_BEFORE[step] for step, _ in self.steps))


class Moment:
    """What is due under a retention at one time. Times are compared as text, as heads have them: a sweep asks of many."""

    def __init__(self, retention: Retention, now: datetime, *, is_doubtful: bool = False) -> None:
        steps = [(step, days) for step, days in retention.steps if step == EXPIRED or not is_doubtful]
        self._before = [(step, text_before(now, days=days), _STATUSES_BEFORE[step]) for step, days in steps]
        self._rested = text_before(now, days=REST_DAYS)
        self.is_doubtful = is_doubtful
        self.now = text_before(now, days=0)
        self.cutoff = max((before for _, before, _ in self._before), default=None)

    def due_step(self, head: Head) -> str | None:
        """Return the one step that is due, or None. Every step is one of the table, taken from the status before it."""
        active_at = head.last_activity_at or head.created_at
        for step, before, statuses in self._before:
            if active_at < before and head.status in statuses:
                if step in {TRASHED, ERASED} and head.last_event_at >= self._rested:
                    continue
                return step
        return None


def kept_by(head: Head, *, now: str) -> str | None:
    """Return why nothing may be done to the session now, as a stable word, or None."""
    if (head.key or "").startswith(OWN_CHANNEL):
        return "own"
    if hold_of(head) is not None:
        return "held"
    if head.pinned:
        return "pinned"
    if head.parked:
        return "approval"
    if head.open_turn:
        return "turn"
    if is_at_work(head):
        return "waiting"
    if head.lease_owner and (head.lease_until or "") > now:
        return "in_use"
    return None


def text_before(now: datetime, *, days: int) -> str:
    """Return the time so many days before `now` as heads write it."""
    try:
        moment = now - timedelta(days=days)
    except OverflowError:
        moment = datetime(1, 1, 1, tzinfo=UTC)
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
