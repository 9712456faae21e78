"""A message of the command line into a session's mailbox, whoever runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session
    from kipu.runtime.messages.reception import Receipt

CHANNEL = "cli"


async def post(manager: SessionManager, session: Session, *, text: str, policy: str | None = None) -> Receipt:
    """Put a message into the mailbox, durably, under the busy policy given, else the session's own; return where it stands.

    Raises: MessageRejectedError, InvalidBusyPolicyError, InvalidEventError, StoreError.
    """
    from kipu.runtime.messages.bus import DEFAULT_MAX_WAITING
    from kipu.runtime.messages.inbound import InboundEvent
    from kipu.runtime.messages.reception import Receiver
    from kipu.session.busy import SESSION_POLICY, BusyPolicy

    await session.refresh()
    caller = manager.principal
    event = InboundEvent(channel=CHANNEL, chat_id=session.session_id, sender_id=caller.id, content=text)
    resolved = BusyPolicy.resolve(message=policy, session=session.head.metadata.get(SESSION_POLICY))
    receiver = Receiver(now_us=manager.now_us, max_waiting=DEFAULT_MAX_WAITING)
    return await receiver.take(session, event, policy=resolved, delivers=False, principal=caller)
