"""Rewind: move the tip back to a turn boundary by an appended event (C11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kipu.errors import InputError
from kipu.events.boundary import RewindEvent
from kipu.events.conversation import ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import MessageSettledEvent, TurnFinishedEvent, TurnStartedEvent, TurnSteeredEvent
from kipu.manager.anchors import anchors_at
from kipu.manager.loader import PAGE
from kipu.manager.pins import is_undone_in
from kipu.ports.principal import Principal
from kipu.session.branch import visible

if TYPE_CHECKING:
    from kipu.manager.session import Session


async def rewind_session(
    session: Session, *, to_seq: int | None, turns: int, principal: Principal | None
) -> SessionEvent:
    """Append the rewind under the session's lock and settle the messages whose turns it undoes; return the rewind.

    Raises:
        InputError: there is no such turn or event, the point lies inside a turn, or a turn is open.
    """
    async with session.holding():
        await session.refresh()
        if session.head.open_turn is not None:
            raise InputError(
                reason=f"turn {session.head.open_turn} of session {session.session_id} is still open; stop it first"
            )
        target = await before_turns(session, turns) if to_seq is None else await _boundary(session, to_seq)
        return (await session.add_events(await _batch(session, target), principal=principal))[0]


async def undoing(session: Session, *, started_seq: int) -> list[SessionEvent]:
    """Return what undoes the newest turn, to be appended in one batch with its end: no crash falls between the two.

    Raises: InputError: it did not begin at a boundary.
    """
    return await _batch(session, await _boundary(session, started_seq - 1))


async def _batch(session: Session, target: int) -> list[SessionEvent]:
    anchors = await anchors_at(session.history, target)
    undone = await _undone_messages(session, target)
    rewind = RewindEvent(
        to_seq=target,
        instruction_seq=anchors["instruction_seq"],
        compaction_seq=anchors["compaction_seq"],
        window_seq=anchors["window_seq"],
        previous_seq=session.head.rewind_seq,
    )
    return [rewind, MessageSettledEvent(seqs=undone, reason="superseded")] if undone else [rewind]


async def _visible_back(session: Session, until: int, *, after: int = 0) -> list[SessionEvent]:
    """Return one page of visible events before `until`, oldest first."""
    page = await session.history.reader.backwards(until=until, after=after, limit=PAGE)
    return visible([item.event for item in reversed(page)])


async def before_turns(session: Session, turns: int) -> int:
    """Return the seq just before the last `turns` turns: where a message was consumed, or said directly."""
    if type(turns) is not int or turns < 1:
        raise InputError(reason=f"turns must be a number, at least 1, not {turns!r}")
    events: list[SessionEvent] = []
    until = session.history.last_seq
    while until > 0:
        page = await session.history.reader.backwards(until=until, limit=PAGE)
        if not page:
            break
        events[:0] = [item.event for item in reversed(page)]
        until = page[-1].seq - 1
        starts = [event.seq for event in visible(events) if _starts_turn(event)]
        if len(starts) >= turns:
            return starts[-turns] - 1
    raise InputError(reason=f"session {session.session_id} does not have {turns} turns to go back")


def _starts_turn(event: SessionEvent) -> bool:
    if isinstance(event, TurnStartedEvent):
        return bool(event.consumes)
    return isinstance(event, UserMessageEvent) and not event.queued and event.turn_id is None


async def _boundary(session: Session, to_seq: int) -> int:
    """Return `to_seq` when it is a turn boundary."""
    reader = session.history.reader
    if type(to_seq) is not int or not 0 <= to_seq < session.history.last_seq:
        raise InputError(reason=f"session {session.session_id} has no event {to_seq!r} to go back to")
    if await is_undone_in(reader, to_seq, newest=session.head.rewind_seq, tip=session.history.last_seq):
        raise InputError(reason=f"event {to_seq} was undone already; fork from it, or go further back")
    before = await _visible_back(session, to_seq)
    after = [item.event for item in await reader.forwards(after=to_seq, limit=1)]
    if _open_calls(before) or _open_turn(before) or (after and isinstance(after[0], ToolCallEvent)):
        raise InputError(reason=f"event {to_seq} lies inside a turn; go to the end of one, or give turns=N")
    return to_seq


def _open_calls(events: list[SessionEvent]) -> bool:
    answered = {event.tool_call_id for event in events if isinstance(event, ToolResultEvent)}
    return any(isinstance(event, ToolCallEvent) and event.tool_call_id not in answered for event in events)


def _open_turn(events: list[SessionEvent]) -> bool:
    for event in reversed(events):
        if isinstance(event, TurnFinishedEvent):
            return False
        if isinstance(event, TurnStartedEvent):
            return True
    return False


async def _undone_messages(session: Session, target: int) -> list[int]:
    """Return the messages that turns after `target` consumed: they will not be answered again.

    Those of turns that were undone before are settled already, and each message is settled once.
    """
    seqs: set[int] = set()
    settled: set[int] = set()
    until = session.history.last_seq
    while until > target:
        page = await session.history.reader.backwards(until=until, after=target, limit=PAGE)
        if not page:
            break
        for item in page:
            if isinstance(item.event, TurnStartedEvent | TurnSteeredEvent):
                seqs.update(item.event.consumes)
            elif isinstance(item.event, MessageSettledEvent):
                settled.update(item.event.seqs)
        until = page[-1].seq - 1
    return sorted(seqs - settled)
