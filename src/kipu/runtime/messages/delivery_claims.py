"""Who sends an answer: of several processes that deliver one channel, the one whose claim stands in the log first (C5, C30)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kipu.errors import ConflictError
from kipu.events.event import SessionEvent
from kipu.events.turn import DeliveryEvent
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.owner import Liveness
from kipu.runtime.messages.outbound import Outbound
from kipu.session.mailbox import Address, address_of

CLAIMED, RELEASED = "claimed", "released"
Debt = tuple[str, int, Address]  # one thing that one session owes to one place
Claims = dict[Debt, DeliveryEvent]


class DeliveryClaims:
    """Claim what is to be sent before it is sent, by compare-and-set on the session's log.

    A claim ends with its time, and at once when its process is dead: then somebody else may send, maybe for a second time.
    """

    def __init__(self, manager: SessionManager, liveness: Liveness, *, lasts_s: float) -> None:
        self._manager = manager
        self._liveness = liveness
        self._lasts_s = lasts_s
        self._own: dict[Debt, str] = {}  # ids of the events that claim for this object

    def take_in(self, event: SessionEvent, claims: Claims) -> None:
        """Note what an event says about claims; the newest about a debt counts."""
        if isinstance(event, DeliveryEvent) and event.status in (CLAIMED, RELEASED):
            debt = (event.session_id or "", event.message_seq, _place(event.address))
            claims[debt] = event

    async def take(self, session: Session, outbound: Outbound, *, debt: Debt, claims: Claims) -> float | None:
        """Return None where it is ours to send now, else in how many seconds to look again."""
        now = self._now()
        found = claims.get(debt)
        if found is not None and found.until is not None and found.until > now:
            if found.event_id == self._own.get(debt):
                return None
            if not (found.by and self._liveness.is_dead(found.by)):
                return (found.until - now).total_seconds()
        claim = self._event(outbound, CLAIMED, until=now + timedelta(seconds=self._lasts_s))
        try:
            last_seq = session.history.last_seq
            stored = await session.add_event(claim, principal=owner_of(session.head), expected_seq=last_seq)
        except ConflictError:  # something was appended meanwhile, maybe another's claim
            return 0.0
        self._own[debt] = stored.event_id or ""
        return None

    async def release(self, session: Session, outbound: Outbound, *, debt: Debt) -> None:
        """Give a claim back that was not made use of to the end."""
        if self._own.pop(debt, None) is not None:
            await session.add_event(self._event(outbound, RELEASED, until=None), principal=owner_of(session.head))

    def forget(self, debt: Debt) -> None:
        """Forget a claim that the record of the sending has ended."""
        self._own.pop(debt, None)

    def _event(self, outbound: Outbound, status: str, *, until: datetime | None) -> DeliveryEvent:
        return DeliveryEvent(
            message_seq=outbound.seq, address=outbound.address, status=status, by=self._manager.owner, until=until
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._manager.now_us() / 1_000_000, UTC)


def _place(address: dict[str, object]) -> Address:
    return address_of(None, address)
