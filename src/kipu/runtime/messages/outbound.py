"""What goes out: answers, and what became of messages that get none, each with the address it goes to (C12, C30)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kipu.context.item import Item
from kipu.events.boundary import NoteEvent
from kipu.events.content import Content
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import MessageSettledEvent, TurnFinishedEvent, TurnStartedEvent, TurnSteeredEvent
from kipu.manager.session import Session
from kipu.runtime.messages.reception import REFUSED_NOTE
from kipu.session.mailbox import Address, address_of

Kind = Literal["reply", "ended", "settled", "refused", "downgraded", "not_undone"]
OUTBOUND_TYPES = frozenset({"turn_finished", "message_settled", "note"})
DOWNGRADED_NOTE = "kipu.downgraded"
ROLLBACK_REFUSED_NOTE = "kipu.rollback_refused"
_PAGE = 64


@dataclass(frozen=True, slots=True)
class Outbound:
    """One thing that senders at one address are to see.

    `reply`: a turn's answer, at `seq`. `ended`: a turn that ended otherwise (`reason` is its outcome), with what there is of
    an answer. `settled`, `refused`, `downgraded`: messages that get no turn, were not taken, or may not steer, and why.
    `not_undone`: messages whose turn was to be rolled back and was not.
    `answers` are the messages it is about; going on after `cursor` shows each of these once.
    """

    kind: Kind
    session_id: str
    seq: int
    cursor: int
    address: dict[str, Any]
    answers: tuple[int, ...] = ()
    turn_id: str | None = None
    content: Content = ""
    reason: str | None = None
    detail: str | None = None

    @property
    def channel(self) -> str | None:
        """Return the channel it goes to."""
        return self.address.get("channel")


@dataclass(slots=True)
class _TurnEnd:
    """What a finished turn took in and said."""

    consumes: list[int]
    answer: AgentMessageEvent | None = None


async def outbound_of(session: Session, event: SessionEvent) -> list[Outbound]:
    """Return what this event has to say to senders, one for each address; [] for most events."""
    if isinstance(event, TurnFinishedEvent):
        return await _of_turn(session, event)
    if isinstance(event, MessageSettledEvent):
        return await _about(session, event, seqs=event.seqs, kind="settled", reason=event.reason)
    if isinstance(event, NoteEvent) and event.kind == DOWNGRADED_NOTE:
        seqs = [seq for seq in event.data.get("seqs", ()) if isinstance(seq, int)]
        return await _about(session, event, seqs=seqs, kind="downgraded", reason="followup")
    if isinstance(event, NoteEvent) and event.kind == ROLLBACK_REFUSED_NOTE:
        seqs = [seq for seq in event.data.get("seqs", ()) if isinstance(seq, int)]
        return await _about(session, event, seqs=seqs, kind="not_undone", reason=str(event.data.get("reason")))
    if isinstance(event, NoteEvent) and event.kind == REFUSED_NOTE:
        address, reason = event.data.get("reply_to") or {}, str(event.data.get("refusal"))
        return [Outbound("refused", session.session_id, event.seq, event.seq, address, reason=reason)]
    return []


async def _of_turn(session: Session, finished: TurnFinishedEvent) -> list[Outbound]:
    end = await _end_of(session, finished)
    messages = await messages_at(session, end.consumes)
    if end.consumes and not any(is_published(message) for message in messages):
        return []
    answered = finished.outcome == "completed" and end.answer is not None
    answer = end.answer
    return [
        Outbound(
            kind="reply" if answered else "ended",
            session_id=session.session_id,
            seq=answer.seq if answered and answer is not None else finished.seq,
            cursor=finished.seq,
            address=address,
            answers=answers,
            turn_id=finished.turn_id,
            content="" if answer is None else answer.content,
            reason=finished.outcome,
            detail=finished.error,
        )
        for address, answers in _by_address(messages) or [({}, ())]
    ]


async def _end_of(session: Session, finished: TurnFinishedEvent) -> _TurnEnd:
    """Read a turn back from its end: what it took in, and its last message."""
    end, until = _TurnEnd([]), finished.seq - 1
    while until > 0:
        page = await session.history.reader.backwards(until=until, limit=_PAGE)
        for item in page:
            event = item.event
            if isinstance(event, AgentMessageEvent) and event.turn_id == finished.turn_id:
                end.answer = end.answer or event
            elif isinstance(event, TurnSteeredEvent) and event.turn_id == finished.turn_id:
                end.consumes = [*event.consumes, *end.consumes]
            elif isinstance(event, TurnStartedEvent):
                if event.turn_id == finished.turn_id:
                    end.consumes = [*event.consumes, *end.consumes]
                return end
        if not page:
            break
        until = page[-1].seq - 1
    return end


async def _about(
    session: Session, event: SessionEvent, *, seqs: Sequence[int], kind: Kind, reason: str
) -> list[Outbound]:
    messages = await messages_at(session, seqs)
    return [
        Outbound(kind, session.session_id, event.seq, event.seq, address, answers, reason=reason)
        for address, answers in _by_address(messages)
    ]


async def messages_at(session: Session, seqs: Iterable[int]) -> list[UserMessageEvent]:
    """Return the messages with these seqs that can be read, in order of arrival."""
    items: dict[int, Item] = await session.history.reader.at(sorted(seqs))
    return [item.event for _, item in sorted(items.items()) if isinstance(item.event, UserMessageEvent)]


def is_published(message: UserMessageEvent) -> bool:
    """Return False for a message whose answer stays in the log."""
    return message.metadata.get("publish") is not False


def _by_address(messages: Iterable[UserMessageEvent]) -> list[tuple[dict[str, Any], tuple[int, ...]]]:
    """Return each reply address of these messages, as the last one at it gives it, with the messages from there."""
    found: dict[Address, tuple[dict[str, Any], tuple[int, ...]]] = {}
    for message in messages:
        if not is_published(message):
            continue
        full = {"channel": message.channel, **(message.reply_to or {})}
        address = {name: value for name, value in full.items() if value is not None}
        place = address_of(message.channel, message.reply_to)
        earlier = found[place][1] if place in found else ()
        found[place] = (address, (*earlier, message.seq))
    return list(found.values())
