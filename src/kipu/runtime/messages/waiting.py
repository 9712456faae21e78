"""The messages that wait in a session, as the mailbox judges them."""

from __future__ import annotations

from dataclasses import dataclass

from kipu.events.conversation import UserMessageEvent
from kipu.manager.session import Session
from kipu.session.mailbox import Address, Arrival, Author, arrival_of

SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """One waiting message as people see it: how long it waits, under which policy, and until when (seconds from now)."""

    seq: int
    author: Author
    address: Address
    mode: str
    age_s: float
    text: str
    due_in_s: float
    expires_in_s: float | None


async def waiting_arrivals(session: Session) -> list[Arrival]:
    """Return what waits, in order of arrival, as far as this process knows it (`refresh` first for all of it).

    A message that cannot be read is left out: it stays in the head, and `kipu verify` reports it.
    """
    wanted = set(session.head.waiting)
    found: dict[int, Arrival] = {}
    for item in reversed(session.history.items):
        if len(found) == len(wanted):
            break
        if item.seq in wanted and isinstance(item.event, UserMessageEvent):
            found[item.seq] = arrival_of(item.event)
    for seq, item in (await session.history.reader.at(sorted(wanted - found.keys()))).items():
        if isinstance(item.event, UserMessageEvent):
            found[seq] = arrival_of(item.event)
    return [found[seq] for seq in sorted(found)]


def queued_message(arrival: Arrival, *, now_us: int) -> QueuedMessage:
    """Return a waiting message as people see it."""
    expires_us = arrival.expires_us()
    return QueuedMessage(
        seq=arrival.seq,
        author=arrival.author,
        address=arrival.address,
        mode=arrival.policy.mode,
        age_s=max(0.0, (now_us - arrival.arrived_us) / 1e6),
        text=arrival.text[:SHOWN_CHARACTERS],
        due_in_s=max(0.0, (arrival.due_us - now_us) / 1e6) if arrival.due_us else 0.0,
        expires_in_s=None if expires_us is None else max(0.0, (expires_us - now_us) / 1e6),
    )
