"""`MessageBus`: from entries into sessions, from sessions back to where messages came from (C5, C12, C13, C30)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import cast

from kipu.errors import SessionNotFoundError
from kipu.events.event import SessionEvent
from kipu.manager.access import Verb
from kipu.manager.loader import item_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.runtime.approvals import ApprovalDesk
from kipu.runtime.live.streams import LiveStreams
from kipu.runtime.live.watch import Happening, SessionWatch
from kipu.runtime.messages.control import ControlLane
from kipu.runtime.messages.inbound import InboundEvent
from kipu.runtime.messages.outbound import OUTBOUND_TYPES, Outbound, outbound_of
from kipu.runtime.messages.reception import Receipt, Receiver
from kipu.session.busy import SESSION_POLICY, BusyPolicy, PolicyChoice

DEFAULT_MAX_INBOUND = 256
DEFAULT_MAX_WAITING = 1_000


class MessageBus:
    """Take messages from every entry into the sessions they belong to, and give answers back.

    A message is durable before `publish` returns, and stored once however often it is delivered. At most `max_inbound` are
    taken at a time; further callers wait (back-pressure). At most `max_waiting` wait in one session. Messages for one session
    are taken in the order of the calls, those for different sessions side by side (A36). `wake(session_id)` is called after
    everything that may be work for a worker of this process. `delivering` names the channels whose answers `Delivery` sends.
    """

    def __init__(
        self,
        manager: SessionManager,
        *,
        wake: Callable[[str], None] | None = None,
        channel_policies: Mapping[str, PolicyChoice] | None = None,
        default_policy: PolicyChoice = None,
        delivering: Collection[str] = (),
        max_inbound: int = DEFAULT_MAX_INBOUND,
        max_waiting: int = DEFAULT_MAX_WAITING,
        approvals: ApprovalDesk | None = None,
        streams: LiveStreams | None = None,
    ) -> None:
        self._manager = manager
        self._streams = streams or LiveStreams("")
        self._wake = wake or _nobody
        self._channel_policies = dict(channel_policies or {})
        self._default_policy = BusyPolicy.resolve(default=default_policy)
        for choice in self._channel_policies.values():
            BusyPolicy.resolve(channel=choice)  # what cannot be used is said now, not at the first message
        self._delivering = frozenset(delivering)
        self._receiver = Receiver(now_us=manager.now_us, max_waiting=max_waiting)
        self._places = asyncio.Semaphore(max_inbound)
        self._turns = _KeyLocks()
        self.control = ControlLane(manager, wake=self._wake, approvals=approvals)

    async def publish(self, event: InboundEvent, principal: Principal | None = None) -> Receipt:
        """Put a message into its session's mailbox, durably, and return where it stands (C5).

        The same message delivered again (same tenant, channel, account, source message id, revision) is not stored again.
        Raises: MessageRejectedError (`reject`, or too many wait), InvalidBusyPolicyError, SessionNotFoundError,
        AccessDeniedError, StoreError.
        """
        caller = principal or self._manager.principal
        key = event.session_key()
        async with self._places, self._turns.of(f"{caller.tenant}\0{key}"):
            session = await self._manager.get_or_create(key, principal=caller, verb=Verb.SEND)
            receipt = await self._take(session, event, caller)
        self._wake(receipt.session_id)
        return receipt

    async def send(self, session_id: str, event: InboundEvent, *, principal: Principal | None = None) -> Receipt:
        """Put a message into this very session, wherever its key leads by now; the rest is as with `publish`.

        Raises: SessionNotFoundError, and what `publish` raises.
        """
        caller = principal or self._manager.principal
        async with self._places, self._turns.of(f"{caller.tenant}\0{session_id}"):
            session = await self._manager.open(session_id, principal=caller, verb=Verb.SEND)
            receipt = await self._take(session, event, caller)
        self._wake(receipt.session_id)
        return receipt

    async def _take(self, session: Session, event: InboundEvent, caller: Principal) -> Receipt:
        await session.refresh()  # its own policy may have been set elsewhere
        return await self._receiver.take(
            session,
            event,
            policy=BusyPolicy.resolve(
                message=event.policy,
                session=session.head.metadata.get(SESSION_POLICY),
                channel=self._channel_policies.get(event.channel),
                default=self._default_policy,
            ),
            delivers=event.address.channel in self._delivering,
            principal=caller,
        )

    async def subscribe(
        self, session_id: str, *, after: int | None = None, principal: Principal | None = None
    ) -> AsyncIterator[Outbound]:
        """Return an iterator over answers and settlements of one session: those behind `after` (None: from now on).

        Each subscriber sees each of them once; going on after the last `cursor` skips none (A9).
        Raises: SessionNotFoundError.
        """
        session = await self._manager.open(session_id, principal=principal)
        await session.refresh()
        start = session.history.last_seq if after is None else after

        async def outbounds() -> AsyncIterator[Outbound]:
            followed = cast("AsyncGenerator[SessionEvent, None]", session.follow(after=start, principal=principal))
            async with aclosing(followed):
                async for event in followed:
                    for outbound in await outbound_of(session, event):
                        yield outbound

        return outbounds()

    async def watch(
        self, session_id: str, *, after: int | None = None, principal: Principal | None = None
    ) -> AsyncGenerator[Happening, None]:
        """Return an iterator over what happens in a session, in this process or another: events, and pieces as they stream.

        Events behind `after` (None: from now on) come once each, in order, like `Session.follow`. Between them come pieces of
        answers and of calls' output (`runtime/observer.py`), from the beginning of what streams now; pieces may be missing where a
        line is lost or whoever watches is slow, and the event that has it whole comes all the same. Close it when it is not read on.
        Raises: SessionNotFoundError, also later, when the principal may read the session no more.
        """
        session = await self._manager.open(session_id, principal=principal)
        await session.refresh()
        start = session.history.last_seq if after is None else after
        return SessionWatch(session, self._streams, after=start, principal=principal).__aiter__()

    def subscribe_channel(
        self, channel: str, *, account: str | None = None, principal: Principal | None = None
    ) -> AsyncIterator[Outbound]:
        """Return an iterator over what goes out to a channel from now on, of every session that the principal may read."""
        caller = principal or self._manager.principal
        # From here on, also before the iterator is asked for the first time.
        events = self._manager.store.follow(types=OUTBOUND_TYPES)

        async def outbounds() -> AsyncIterator[Outbound]:
            async for stored in events:
                try:
                    session = await self._manager.open(stored.session_id, principal=caller)
                except SessionNotFoundError:  # somebody else's
                    continue
                for outbound in await outbound_of(session, item_of(stored).event):
                    if outbound.channel == channel and account in (None, outbound.address.get("account")):
                        yield outbound

        return outbounds()


class _KeyLocks:
    """One lock for each key that is in use, first come, first served."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        """Hold the key's lock."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)


def _nobody(_session_id: str) -> None:
    """Wake nobody: the workers look by themselves."""
