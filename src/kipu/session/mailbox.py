"""The mailbox: which waiting messages a turn takes, which join one, which get none, and why. Pure (C12).

Every message that arrived is in exactly one of three places: consumed by a turn, settled with a reason, or waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from kipu.errors import InvalidBusyPolicyError
from kipu.events.content import Content, text_of
from kipu.events.conversation import UserMessageEvent
from kipu.session.busy import FOLLOWUP, BusyPolicy

Reason = Literal["merged", "dropped", "expired", "superseded", "cancelled"]
StopMode = Literal["interrupt", "rollback", "rollback_forced"]
MERGED = "kipu.merged"  # in a message's metadata: the messages that its first part tells of
URGENT_MODES = frozenset({"interrupt", "rollback"})
AT_ONCE_US = 0
RETRY_BUSY_S = 5.0
RETRY_PARKED_S = 60.0  # a parked turn waits for a person
_MESSAGE_PART_NAMES = frozenset({"message_id"})  # of an address: which message is answered, not where


class Author(NamedTuple):
    """Who a message comes from: who was authenticated, and whom that one speaks for."""

    principal: str | None
    sender_id: str | None


class Settlement(NamedTuple):
    """Messages that get no turn of their own, and why: one `message_settled` event."""

    seqs: tuple[int, ...]
    reason: Reason


Address = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message as the mailbox sees it. Times are microseconds since 1970; `due_us` is 0 for at once."""

    seq: int
    author: Author
    address: Address
    policy: BusyPolicy
    arrived_us: int
    due_us: int = AT_ONCE_US
    text: str = ""
    carried: tuple[str, ...] = ()  # lines of earlier messages that were merged into it

    @property
    def group(self) -> tuple[Author, Address]:
        """Return what messages of one collected turn have in common: one sender, one reply address."""
        return self.author, self.address

    def expires_us(self) -> int | None:
        """Return when it has waited as long as it may, or None."""
        return None if self.policy.ttl_ms is None else self.arrived_us + self.policy.ttl_ms * 1000

    def is_expired(self, now_us: int) -> bool:
        """Return True when it has waited longer than it may."""
        expires_us = self.expires_us()
        return expires_us is not None and expires_us <= now_us


@dataclass(frozen=True, slots=True)
class NextTurn:
    """What to do with the waiting messages while no turn is open.

    `consumes` is the next turn's, empty while there is none to run; `due_us` then says when to look again (None: when
    something arrives). `settle` comes first either way. `mode` belongs into `turn_started.policy`.
    """

    consumes: tuple[int, ...] = ()
    mode: str = "followup"
    settle: tuple[Settlement, ...] = ()
    due_us: int | None = None


@dataclass(frozen=True, slots=True)
class Joining:
    """What a running turn does with the waiting messages at a boundary.

    `consumes` joins it. `downgraded` asked to, with less authority than the turn has: they wait as `followup`, and that is
    said once in the log (a `kipu.downgraded` note). `settle` has waited too long.
    """

    consumes: tuple[int, ...] = ()
    downgraded: tuple[int, ...] = ()
    settle: tuple[Settlement, ...] = ()


@dataclass(frozen=True, slots=True)
class Reception:
    """What is appended with an arrival, or instead of it.

    With `refusal` the message is not taken. `settle` and `stop` go into its batch; `merges` are the settled messages whose
    text the new one carries on; `due_us` is its quiet time's end, and `behind` the message that is due before it.
    """

    refusal: Literal["busy", "full"] | None = None
    retry_after_s: float = 0.0
    settle: tuple[Settlement, ...] = ()
    merges: tuple[Arrival, ...] = ()
    stop: StopMode | None = None
    due_us: int = AT_ONCE_US
    behind: int | None = None


def arrival_of(event: UserMessageEvent) -> Arrival:
    """Return a stored message as the mailbox sees it; one without a policy, or with a newer one, is a `followup`."""
    busy = event.busy or {}
    own = {name: value for name, value in busy.items() if name not in ("due_at", "behind", "wakes_at")}
    try:
        policy = BusyPolicy.from_json(own) if own else FOLLOWUP
    except InvalidBusyPolicyError:
        policy = FOLLOWUP
    carried, content = _carried(event)
    return Arrival(
        seq=event.seq,
        author=Author(event.principal, event.sender_id),
        address=address_of(event.channel, event.reply_to),
        policy=policy,
        arrived_us=_micros(event.timestamp),
        due_us=_due_us(busy.get("due_at")),
        text=text_of(content),
        carried=carried,
    )


def _carried(event: UserMessageEvent) -> tuple[tuple[str, ...], Content]:
    """Return what a message carries of those merged into it, line by line, and its own content."""
    if MERGED not in event.metadata or not isinstance(event.content, list) or len(event.content) < 2:
        return (), event.content
    return tuple(text_of(event.content[:1]).splitlines()[1:]), event.content[1:]


def address_of(channel: str | None, reply_to: dict[str, Any] | None) -> Address:
    """Return where the answer goes, as something to compare: which message is quoted is no part of it."""
    parts = {"channel": channel, **(reply_to or {})}
    return tuple(sorted((name, str(value)) for name, value in parts.items() if _is_part(name, value)))


def next_turn(arrivals: Sequence[Arrival], *, now_us: int) -> NextTurn:
    """Return what a worker does next with the messages that wait, in order of arrival, while no turn is open.

    An `interrupt` or `rollback` comes before what waited already; everything else is first in, first out. `collect` takes
    all of one sender and one reply address, never past a message that has a turn of its own, and not before its quiet
    time is over. Expired ones are settled.
    """
    settle = _expired(arrivals, now_us)
    waiting = [arrival for arrival in arrivals if not arrival.is_expired(now_us)]
    if not waiting:
        return NextTurn(settle=settle)
    first = next((arrival for arrival in waiting if arrival.policy.mode in URGENT_MODES), waiting[0])
    if first.policy.mode != "collect":
        return NextTurn((first.seq,), first.policy.mode, settle)
    collected, due_us = _collected(waiting)
    if due_us > now_us:
        return NextTurn(settle=settle, due_us=min([due_us, *_expiries(waiting)]))
    return NextTurn(tuple(arrival.seq for arrival in collected), "collect", settle)


def _collected(waiting: Sequence[Arrival]) -> tuple[list[Arrival], int]:
    """Return the first message's group, and when it is due: at once where a message behind it ends its growing."""
    group: list[Arrival] = []
    due_us = AT_ONCE_US
    for arrival in waiting:
        if arrival.policy.mode != "collect":
            return group, AT_ONCE_US
        due_us = arrival.due_us
        if arrival.group == waiting[0].group:
            group.append(arrival)
    return group, due_us


def same_author(joining: Author, started: Author) -> bool:
    """Return True when both are the same one: nobody else has at least the authority, unless a program says so."""
    return joining == started


def joining(
    arrivals: Iterable[Arrival],
    *,
    started_by: Author,
    now_us: int,
    may_steer: Callable[[Author, Author], bool] = same_author,
) -> Joining:
    """Return what joins a running turn at a boundary: every `steer` message, in order, whose author may.

    `may_steer(author, started_by)` says whether an author has at least the authority that started the turn.
    """
    arrivals = list(arrivals)
    steering = [arrival for arrival in arrivals if arrival.policy.mode == "steer" and not arrival.is_expired(now_us)]
    allowed = {arrival.seq for arrival in steering if may_steer(arrival.author, started_by)}
    return Joining(
        consumes=tuple(arrival.seq for arrival in steering if arrival.seq in allowed),
        downgraded=tuple(arrival.seq for arrival in steering if arrival.seq not in allowed),
        settle=_expired(arrivals, now_us),
    )


def on_arrival(
    arriving: Arrival, *, waiting: Sequence[Arrival], open_turn: str | None, parked: bool, now_us: int
) -> Reception:
    """Return what is appended with a new message (its `seq` is not known yet), or that it is refused.

    A parked turn counts as running. A message that is refused stops nothing.
    """
    policy = arriving.policy
    retry_after_s = RETRY_PARKED_S if parked else RETRY_BUSY_S
    waiting = [arrival for arrival in waiting if not arrival.is_expired(now_us)]
    if policy.mode == "reject" and (open_turn is not None or waiting):
        return Reception("busy", retry_after_s)
    settle, merges = _room(arriving, waiting)
    if policy.cap is not None and len(waiting) - sum(len(entry.seqs) for entry in settle) >= policy.cap:
        return Reception("full", retry_after_s)
    gone = {seq for entry in settle for seq in entry.seqs}
    stop = _stop_mode(policy) if open_turn is not None else None
    due_us, behind = _quiet(arriving, [arrival for arrival in waiting if arrival.seq not in gone])
    return Reception(settle=settle, merges=merges, stop=stop, due_us=due_us, behind=behind)


def _room(arriving: Arrival, waiting: Sequence[Arrival]) -> tuple[tuple[Settlement, ...], tuple[Arrival, ...]]:
    """Return what gives way to a new message where the mailbox is full."""
    policy = arriving.policy
    if policy.cap is None or len(waiting) < policy.cap or policy.on_full == "reject_new":
        return (), ()
    if policy.on_full == "drop_oldest":
        oldest = tuple(arrival.seq for arrival in waiting[: len(waiting) - policy.cap + 1])
        return (Settlement(oldest, "dropped"),), ()
    # Only what goes to the same place is told there: another's words are not merged into this one's.
    # Where nothing does, nothing gives way, and the new one is refused.
    merges = tuple(arrival for arrival in waiting if arrival.group == arriving.group)
    return (Settlement(tuple(arrival.seq for arrival in merges), "merged"),), merges


def _stop_mode(policy: BusyPolicy) -> StopMode | None:
    if policy.mode == "rollback":
        return "rollback_forced" if policy.forced else "rollback"
    return "interrupt" if policy.mode == "interrupt" else None


def _quiet(arriving: Arrival, waiting: Sequence[Arrival]) -> tuple[int, int | None]:
    """Return when a new message's quiet time ends, and the waiting message that is due before it, if there is one."""
    policy = arriving.policy
    if policy.mode != "collect":
        return AT_ONCE_US, None
    behind = next((arrival.seq for arrival in waiting if arrival.policy.mode != "collect"), None)
    oldest = next((arrival for arrival in waiting if arrival.policy.mode == "collect"), arriving)
    latest_us = oldest.arrived_us + oldest.policy.max_wait_ms * 1000
    return min(arriving.arrived_us + policy.debounce_ms * 1000, latest_us), behind


def _expired(arrivals: Iterable[Arrival], now_us: int) -> tuple[Settlement, ...]:
    seqs = tuple(arrival.seq for arrival in arrivals if arrival.is_expired(now_us))
    return (Settlement(seqs, "expired"),) if seqs else ()


def _expiries(waiting: Iterable[Arrival]) -> list[int]:
    return [expires_us for arrival in waiting if (expires_us := arrival.expires_us()) is not None]


def _is_part(name: str, value: object) -> bool:
    return value is not None and name not in _MESSAGE_PART_NAMES


def _micros(moment: datetime | None) -> int:
    if moment is None:
        return 0
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def _due_us(text: object) -> int:
    if not isinstance(text, str):
        return AT_ONCE_US
    try:
        return _micros(datetime.fromisoformat(text))
    except ValueError:
        return AT_ONCE_US
