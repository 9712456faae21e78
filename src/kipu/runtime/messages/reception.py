"""Taking one message into a session: what its policy puts beside it goes into the same append (C5, C12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from kipu.errors import ConflictError, MessageRejectedError
from kipu.events.boundary import NoteEvent
from kipu.events.content import Content, TextPart
from kipu.events.conversation import UserMessageEvent
from kipu.events.event import SessionEvent, utc_text_us
from kipu.events.turn import MessageSettledEvent, StopRequestedEvent
from kipu.manager.access import Verb
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.runtime.messages.inbound import InboundEvent
from kipu.runtime.messages.waiting import waiting_arrivals
from kipu.session.busy import FOLLOWUP, BusyPolicy
from kipu.session.key import arrival_key
from kipu.session.mailbox import (
    MERGED,
    Arrival,
    Author,
    Reception,
    Settlement,
    address_of,
    on_arrival,
)

REFUSED_NOTE = "kipu.refused"
MERGED_HEADER = "Earlier messages that get no turn of their own, shortened:"
MOST_MERGED_CHARACTERS = 4_000
MERGED_LINE_CHARACTERS = 200
_NO_SEQ = -1  # no session ever stands there: an append that expects it only tells whether its key is known


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a message: where it stands, durable. With `duplicate` it stood there before (C4).

    `settled` are earlier messages that gave way to it, `stopped` the turn that was asked to end for it. `due_at` is when its
    quiet time ends (None: at once).
    """

    session_id: str
    seq: int
    duplicate: bool = False
    policy: BusyPolicy = FOLLOWUP
    settled: tuple[Settlement, ...] = ()
    stopped: str | None = None
    due_at: str | None = None


class Receiver:
    """Take messages into sessions, one at a time per session."""

    def __init__(self, *, now_us: Callable[[], int], max_waiting: int) -> None:
        self._now_us = now_us
        self._max_waiting = max_waiting

    async def take(
        self, session: Session, event: InboundEvent, *, policy: BusyPolicy, delivers: bool, principal: Principal
    ) -> Receipt:
        """Append the message and what its policy asks for, all or nothing.

        Raises: MessageRejectedError (nothing but the refusal is logged), StoreError.
        """
        key = None
        if event.source_message_id is not None:
            key = arrival_key(
                tenant=principal.tenant,
                channel=event.channel,
                account=event.account or "",
                source_message_id=event.source_message_id,
                revision=event.revision,
            )
        message = _message(event, policy, delivers=delivers and event.is_published)
        if _needs_no_look(policy) and len(session.head.waiting) < self._max_waiting:
            appended, stored = await session.append([message], principal=principal, idempotency_key=key)
            return Receipt(appended.session_id, stored[-1].seq, appended.duplicate, policy)
        chosen = event.policy is not None
        return await self._look_and_take(
            session, message, policy=policy, key=key, principal=principal, sender_chose=chosen
        )

    async def _look_and_take(
        self,
        session: Session,
        message: UserMessageEvent,
        *,
        policy: BusyPolicy,
        key: str | None,
        principal: Principal,
        sender_chose: bool,
    ) -> Receipt:
        while True:
            await session.refresh()
            head, last_seq = session.head, session.history.last_seq
            arriving = self._arrival(message, policy, principal)
            waiting = await waiting_arrivals(session)
            reception = on_arrival(
                arriving,
                waiting=waiting,
                open_turn=head.open_turn,
                parked=head.parked,
                now_us=arriving.arrived_us,
            )
            if len(head.waiting) >= self._max_waiting and not reception.settle:
                reception = Reception("full", reception.retry_after_s)
            if reception.refusal is not None:
                duplicate = await self._known(session, message, key=key, principal=principal)
                if duplicate is not None:
                    return duplicate
                await self._refuse(session, message, reception=reception, policy=policy, principal=principal)
            # What the session's or channel's own policy does is its owner's wish; a wish of the sender's is asked for.
            for verb in _verbs_of(reception, waiting, principal) if sender_chose else ():
                await session.permit(verb, principal)
            batch = _batch(message, reception, policy=policy, open_turn=head.open_turn)
            expires_us = arriving.expires_us()
            if head.parked and expires_us is not None:  # nobody looks at a parked turn before it is due
                batch[-1] = _waking(batch[-1], expires_us, not_before=head.not_before)
            try:
                appended, stored = await session.append(
                    batch, principal=principal, expected_seq=last_seq, idempotency_key=key, verb=Verb.SEND
                )
            except ConflictError:  # a turn went on, or somebody else came first: look again
                continue
            if appended.duplicate:
                return Receipt(appended.session_id, stored[-1].seq, True, policy)
            return Receipt(
                session_id=appended.session_id,
                seq=stored[-1].seq,
                policy=policy,
                settled=reception.settle,
                stopped=head.open_turn if reception.stop else None,
                due_at=utc_text_us(reception.due_us) if reception.due_us else None,
            )

    def _arrival(self, message: UserMessageEvent, policy: BusyPolicy, principal: Principal) -> Arrival:
        return Arrival(
            seq=0,
            author=Author(principal.id, message.sender_id),
            address=address_of(message.channel, message.reply_to),
            policy=policy,
            arrived_us=self._now_us(),
        )

    async def _known(
        self, session: Session, message: UserMessageEvent, *, key: str | None, principal: Principal
    ) -> Receipt | None:
        """Return where the message stands if it was taken before: a repeated delivery of it is no new message."""
        if key is None:
            return None
        try:
            appended, stored = await session.append(
                [message], principal=principal, expected_seq=_NO_SEQ, idempotency_key=key
            )
        except ConflictError:
            return None
        return Receipt(appended.session_id, stored[-1].seq, appended.duplicate)

    async def _refuse(
        self,
        session: Session,
        message: UserMessageEvent,
        *,
        reception: Reception,
        policy: BusyPolicy,
        principal: Principal,
    ) -> NoReturn:
        turn = session.head.open_turn
        data: dict[str, Any] = {
            "refusal": reception.refusal,
            "active_turn": turn,
            "retry_after_s": reception.retry_after_s,
            "sender_id": message.sender_id,
            "reply_to": message.reply_to,
            "source_message_id": message.source_message_id,
            "policy": policy.to_json(),
        }
        await session.append([NoteEvent(kind=REFUSED_NOTE, data=data)], principal=principal, verb=Verb.SEND)
        reason = "it is busy" if reception.refusal == "busy" else "as many messages wait already as may"
        raise MessageRejectedError(
            session_id=session.session_id,
            reason=reason,
            refusal=reception.refusal,
            active_turn=turn,
            retry_after_s=reception.retry_after_s,
        )


def _needs_no_look(policy: BusyPolicy) -> bool:
    """Return True when nothing of the session's state says what is appended: the short way of most messages."""
    return policy.mode in ("followup", "steer") and policy.cap is None and policy.ttl_ms is None


def _verbs_of(reception: Reception, waiting: Sequence[Arrival], principal: Principal) -> set[Verb]:
    """Return what a message does to the work and the messages of others."""
    settled = {seq for entry in reception.settle for seq in entry.seqs}
    verbs = set()
    if any(arrival.seq in settled and arrival.author.principal != principal.id for arrival in waiting):
        verbs.add(Verb.CANCEL)
    if reception.stop is not None:
        verbs.add(Verb.REWIND if reception.stop.startswith("rollback") else Verb.STOP)
    return verbs


def _message(event: InboundEvent, policy: BusyPolicy, *, delivers: bool) -> UserMessageEvent:
    metadata = {**event.metadata, "revision": event.revision} if event.revision else event.metadata
    return UserMessageEvent(
        content=event.content,
        sender_id=event.sender_id,
        channel=event.channel,
        source_message_id=event.source_message_id,
        reply_to=event.address.to_json(),
        queued=True,
        busy=policy.to_json(),
        deliver=True if delivers else None,
        metadata=metadata,
    )


def _batch(
    message: UserMessageEvent, reception: Reception, *, policy: BusyPolicy, open_turn: str | None
) -> list[SessionEvent]:
    """Return what is appended, the message last: a repeated delivery then finds it there, whatever stood beside it."""
    busy = policy.to_json()
    if reception.due_us:
        busy["due_at"] = utc_text_us(reception.due_us)
    if reception.behind is not None:
        busy["behind"] = reception.behind
    changes: dict[str, Any] = {"busy": busy}
    if reception.merges:
        changes["content"] = _merged(message.content, reception.merges)
        changes["metadata"] = {**message.metadata, MERGED: [arrival.seq for arrival in reception.merges]}
    batch: list[SessionEvent] = [
        MessageSettledEvent(seqs=list(entry.seqs), reason=entry.reason) for entry in reception.settle
    ]
    if reception.stop is not None and open_turn is not None:
        batch.append(StopRequestedEvent(turn_id=open_turn, mode=reception.stop))
    return [*batch, message.model_copy(update=changes)]


def _waking(message: SessionEvent, expires_us: int, *, not_before: str | None) -> SessionEvent:
    """Return the message so that it makes the parked turn due when it has waited too long, if that is not due before."""
    wakes_at = utc_text_us(expires_us)
    if not isinstance(message, UserMessageEvent) or (not_before is not None and not_before <= wakes_at):
        return message
    return message.model_copy(update={"busy": {**(message.busy or {}), "wakes_at": wakes_at}})


def _merged(content: Content, merges: Sequence[Arrival]) -> Content:
    """Return the content with what the merged messages said before it, shortened; whole they stay in the log."""
    lines = [line for arrival in merges for line in (*arrival.carried, _line(arrival))]
    kept: list[str] = []
    left = MOST_MERGED_CHARACTERS
    for line in reversed(lines):
        left -= len(line)
        if left < 0:
            kept.append("- … and earlier ones")
            break
        kept.append(line)
    own = [TextPart(text=content)] if isinstance(content, str) else content
    return [TextPart(text="\n".join([MERGED_HEADER, *reversed(kept)])), *own]


def _line(arrival: Arrival) -> str:
    text = " ".join(arrival.text.split())
    shown = text if len(text) <= MERGED_LINE_CHARACTERS else text[: MERGED_LINE_CHARACTERS - 1] + "…"
    return f"- (message {arrival.seq}) {shown}"
