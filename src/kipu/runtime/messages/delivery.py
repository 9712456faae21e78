"""`Delivery`: answers go out through their channels, also those that a crash left in the log (C5, C30)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, Self

from kipu.errors import InputError, KipuError, StoreClosedError
from kipu.events.event import SessionEvent, utc_text_us
from kipu.events.normalise import normalise
from kipu.events.turn import (
    DeliveryEvent,
    MessageSettledEvent,
    TurnFinishedEvent,
    TurnStartedEvent,
    TurnSteeredEvent,
)
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.owner import Liveness
from kipu.ports.store import SessionQuery, StoredEvent
from kipu.runtime.messages.delivery_claims import Claims, Debt, DeliveryClaims
from kipu.runtime.messages.outbound import Outbound, outbound_of
from kipu.session.mailbox import Address, address_of
from kipu.stores.host import SystemLiveness

logger = logging.getLogger(__name__)

Sender = Callable[[Outbound], Awaitable[str | None]]
"""Send one thing and return the platform's id of it, as text. InputError: it can never be sent; any other error: try again later."""

CLAIM_MARGIN_S = 10.0  # beyond the time that a send may take
FOLLOW_AGAIN_S = 1.0
_ENDS = frozenset({"turn_finished", "message_settled"})


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """How delivery tries again: first after `first_wait_s`, then twice as long each time, `tries` times in all.

    `sweep_s` is how often sessions are looked through for what was missed, those active within `look_back_s`.
    """

    first_wait_s: float = 1.0
    longest_wait_s: float = 300.0
    tries: int = 10
    sweep_s: float = 60.0
    look_back_s: float = 7 * 24 * 3600.0
    at_once: int = 16  # sends of one channel
    send_timeout_s: float = 60.0
    grace_s: float = 5.0  # for what is being sent when it ends


class Delivery:
    """Send what the sessions owe their channels, each thing until it is sent or given up, and record which (C30).

    `senders` are by channel. Several processes may deliver one: each thing is claimed in the log before it is sent. What was
    sent and not recorded at a crash is sent again after it, nothing else twice. Use it as `async with`; it works until the block
    ends.
    """

    def __init__(
        self,
        manager: SessionManager,
        senders: Mapping[str, Sender],
        *,
        limits: DeliveryLimits | None = None,
        liveness: Liveness | None = None,
    ) -> None:
        self._manager = manager
        self._senders = dict(senders)
        self._limits = limits or DeliveryLimits()
        lasts_s = self._limits.send_timeout_s + CLAIM_MARGIN_S
        self._claims = DeliveryClaims(manager, liveness or SystemLiveness(), lasts_s=lasts_s)
        self._places = {channel: asyncio.Semaphore(self._limits.at_once) for channel in senders}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._failures: dict[Debt, int] = {}
        self._unrecorded: dict[Debt, DeliveryEvent] = {}  # sent, and the log could not be written
        self._paid: dict[str, int] = {}  # up to which seq a session that owes something has nothing to send yet
        self._loops: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        # Followed from here on, looked through afterwards: what falls between is seen twice, and sent once.
        self._loops.append(asyncio.create_task(self._follow(self._manager.store.follow(types=_ENDS))))
        await self.sweep()
        self._loops.append(asyncio.create_task(self._sweep_again()))
        return self

    async def __aexit__(self, *_error: object) -> None:
        await _end(self._loops)
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=self._limits.grace_s)
        await _end(list(self._tasks.values()))
        self._loops.clear()

    async def sweep(self) -> int:
        """Look for sessions that owe an answer, by their heads alone, and return how many there are."""
        since = utc_text_us(self._manager.now_us() - int(self._limits.look_back_s * 1e6))
        query = SessionQuery(active_after=since, limit=500)
        owing = 0
        while True:
            page = await self._manager.store.list(query)
            for head in page.items:
                if head.undelivered:
                    owing += 1
                    self._start(head.session_id)
            if page.cursor is None:
                return owing
            query = replace(query, cursor=page.cursor)

    async def settle(self) -> None:
        """Return when everything that is under way now is sent, given up, or waits for its next try."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _sweep_again(self) -> None:
        while True:
            await asyncio.sleep(self._limits.sweep_s)
            try:
                await self.sweep()
            except StoreClosedError:
                return
            except KipuError as error:
                logger.warning("sessions could not be looked through for undelivered answers: %s", error)

    async def _follow(self, events: AsyncIterator[StoredEvent]) -> None:
        """Hear what ends, also after a moment in which the store could not be followed."""
        while True:
            try:
                async for stored in events:
                    self._start(stored.session_id)
            except StoreClosedError:
                return
            except KipuError as error:
                logger.warning("the store cannot be followed; it is tried again: %s", error)
            await asyncio.sleep(FOLLOW_AGAIN_S)
            events = self._manager.store.follow(types=_ENDS)
            with suppress(KipuError):  # what ended meanwhile; what this misses, the next sweep finds
                await self.sweep()

    def _start(self, session_id: str) -> None:
        """Have the session's debts looked at, once more where that is under way."""
        if session_id in self._tasks:
            self._again.add(session_id)
            return
        task = asyncio.create_task(self._deliver(session_id))
        self._tasks[session_id] = task
        task.add_done_callback(lambda _task: self._done(session_id))

    def _done(self, session_id: str) -> None:
        self._tasks.pop(session_id, None)
        if session_id in self._again and self._loops:  # something ended after its last look
            self._start(session_id)

    async def _deliver(self, session_id: str) -> None:
        while True:
            self._again.discard(session_id)
            try:
                wait_s = await self._deliver_once(session_id)
            except StoreClosedError:
                return
            except KipuError as error:
                logger.warning("the answers of session %s could not be delivered: %s", session_id, error)
                return
            if wait_s is not None and session_id not in self._again:
                self._later(session_id, wait_s)
            if session_id not in self._again:
                return

    def _later(self, session_id: str, wait_s: float) -> None:
        async def start_later() -> None:
            await asyncio.sleep(wait_s)
            self._start(session_id)

        self._loops = [task for task in self._loops if not task.done()]
        self._loops.append(asyncio.create_task(start_later()))

    async def _deliver_once(self, session_id: str) -> float | None:
        """Send what the session owes now; return when to try again, None for never."""
        head = await self._manager.store.head(session_id)
        if head is None or not head.undelivered:
            self._paid.pop(session_id, None)
            return None
        if self._paid.get(session_id) == head.last_seq:
            return None
        session = await self._manager.open(session_id, principal=owner_of(head))
        await session.refresh()
        owed, claims = await self._owed(session)
        if not owed:
            self._paid[session_id] = session.history.last_seq
        waits: dict[Address, float] = {}
        for outbound in owed:
            place = address_of(outbound.channel, outbound.address)
            if place in waits:  # what goes to one address goes in order
                continue
            debt = (session.session_id, outbound.seq, place)
            wait_s = None
            if debt not in self._unrecorded:
                wait_s = await self._claims.take(session, outbound, debt=debt, claims=claims)
            wait_s = wait_s if wait_s is not None else await self._send(session, outbound, debt=debt)
            if wait_s is not None:
                waits[place] = wait_s
        return min(waits.values(), default=None)

    async def _owed(self, session: Session) -> tuple[list[Outbound], Claims]:
        """Return what ended the messages that still wait for their answer to go out, in order, and who sends what already."""
        undelivered = set(session.head.undelivered)
        ends: dict[int, SessionEvent] = {}
        turns: dict[str, set[int]] = {}
        claims: Claims = {}
        async for event in session.events(after=min(undelivered, default=1) - 1, principal=owner_of(session.head)):
            self._claims.take_in(event, claims)
            if isinstance(event, TurnStartedEvent | TurnSteeredEvent):
                turns.setdefault(event.turn_id, set()).update(undelivered.intersection(event.consumes))
            elif isinstance(event, TurnFinishedEvent):
                ends.update(dict.fromkeys(turns.pop(event.turn_id, ()), event))
            elif isinstance(event, MessageSettledEvent):
                ends.update(dict.fromkeys(undelivered.intersection(event.seqs), event))
        owed: list[Outbound] = []
        for end in sorted({event.seq: event for event in ends.values()}.values(), key=lambda event: event.seq):
            mine = {seq for seq, event in ends.items() if event.seq == end.seq}
            for outbound in await outbound_of(session, end):
                answers = tuple(seq for seq in outbound.answers if seq in mine)
                if answers and outbound.channel in self._senders:
                    owed.append(replace(outbound, answers=answers))
        return owed, claims

    async def _send(self, session: Session, outbound: Outbound, *, debt: Debt) -> float | None:
        """Send and record; return when to try again if that failed, None if it is done with."""
        delivered = self._unrecorded.get(debt)
        if delivered is None:
            try:
                tried = await self._tried(outbound, debt)
            except asyncio.CancelledError:
                with suppress(KipuError):
                    await asyncio.shield(self._claims.release(session, outbound, debt=debt))
                raise
            if not isinstance(tried, DeliveryEvent):
                return tried
            delivered = self._unrecorded[debt] = tried
        # Once it is sent it is recorded, also when this is being ended: else it would be sent twice.
        await asyncio.shield(self._record(session, delivered, debt=debt))
        return None

    async def _tried(self, outbound: Outbound, debt: Debt) -> DeliveryEvent | float:
        """Send; return what to record of it, or the seconds until the next try."""
        channel = outbound.channel or ""
        status: Literal["sent", "failed"] = "sent"
        platform_message_id: str | None = None
        try:
            async with self._places[channel], asyncio.timeout(self._limits.send_timeout_s):
                platform_message_id = _text_of_id(await self._senders[channel](outbound))
        except InputError as error:
            logger.warning("an answer of session %s cannot be sent: %s", outbound.session_id, error)
            status = "failed"
        except BaseException as error:  # a platform's client may raise anything; it is tried again
            if isinstance(error, KeyboardInterrupt | GeneratorExit) or _is_being_ended():
                raise
            failures = self._failures[debt] = self._failures.get(debt, 0) + 1
            logger.warning("an answer of session %s was not sent (try %d): %r", outbound.session_id, failures, error)
            if failures < self._limits.tries:
                return self._wait_s(failures)
            status = "failed"
        self._failures.pop(debt, None)
        return DeliveryEvent(
            message_seq=outbound.seq,
            address=outbound.address,
            status=status,
            platform_message_id=platform_message_id,
            answers=list(outbound.answers),
        )

    async def _record(self, session: Session, delivered: DeliveryEvent, *, debt: Debt) -> None:
        await session.add_event(delivered, principal=owner_of(session.head))
        self._unrecorded.pop(debt, None)
        self._claims.forget(debt)

    def _wait_s(self, failures: int) -> float:
        wait_s: float = self._limits.first_wait_s * 2 ** min(failures - 1, 30)
        return min(wait_s, self._limits.longest_wait_s)


def _text_of_id(given: object) -> str | None:
    """Return a platform's id of what was sent, which many have as a number: once sent it is recorded, whatever its id is."""
    return None if given is None else str(normalise(given)[0])


def _is_being_ended() -> bool:
    """Say whether this task is cancelled, and not just something that a platform's client waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
