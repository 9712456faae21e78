"""`kipu status`, `kipu stop`, `kipu queue` and `kipu send`: what a session does, and having a say in it from any process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.number import number_in
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

if TYPE_CHECKING:
    from kipu.events.turn import TurnFinishedEvent
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session
    from kipu.runtime.messages.control import ControlLane, SessionStatus
    from kipu.runtime.messages.waiting import QueuedMessage

app = typer.Typer(add_completion=False)
STOP_WAIT_S = 10.0  # for the process that runs the turn


@app.command("status")
def status(
    context: typer.Context, *, session: SessionArgument, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Say what a session is doing: idle, waiting, running, parked (a person is asked) or stopping, and who runs it."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_status(invocation, session))


async def _status(invocation: Invocation, text: str) -> None:
    from dataclasses import asdict

    from kipu.cli.reference import find_session
    from kipu.cli.runner import live_owner
    from kipu.runtime.approvals import ApprovalDesk

    output = invocation.output
    async with invocation.manager() as manager:
        session = await find_session(manager, text)
        now = await _control(manager).status(session.session_id)
        pending = await ApprovalDesk(manager).pending(session_id=session.session_id)
    owner = live_owner(now.owner)
    if output.json:
        run_by = owner.pid if owner is not None else None
        output.emit({**asdict(now), "run_by": run_by, "approvals": [one.approval_id for one in pending]})
        return
    output.facts(
        [
            ("session", now.session_id),
            ("state", now.state),
            ("turn", now.open_turn),
            ("run by", f"process {owner.pid} on {owner.host}" if owner else None),
            ("waiting", now.waiting or None),
            ("due", None if not now.due_at else now.due_at),
            ("files", _files(now)),
            ("events", now.last_seq),
            *(("asks", f"{one.approval_id}  {one.tool_name}: {one.shown.get('summary', '')}") for one in pending),
        ]
    )
    if now.state in ("running", "stopping") and owner is None:
        output.say(f"nobody runs the turn now; go on with: kipu run --resume {now.session_id}")


def _files(now: SessionStatus) -> str | None:
    if now.bound_to is not None:
        why = f" ({now.bound_why})" if now.bound_why else ""
        return f"only on {now.bound_to}{why}: a worker there takes its turns"
    return f"kept in the store; last in use on {now.files_at}" if now.files_at is not None else None


@app.command("stop")
def stop(
    context: typer.Context,
    *,
    session: SessionArgument,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """End the open turn in order, wherever it runs; its calls are closed and what it had said is kept."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_stop(invocation, session))


async def _stop(invocation: Invocation, text: str) -> None:
    from kipu.cli.reference import find_session
    from kipu.cli.runner import LIVE_WAIT_S, finished, last_worker, live_owner
    from kipu.manager.access import Verb

    output = invocation.output
    ended: TurnFinishedEvent | None = None
    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.STOP)
        turn_id = await _control(manager).stop(session.session_id)
        if turn_id is not None:
            after = session.history.last_seq
            head = await manager.store.head(session.session_id)
            if head is not None and live_owner(head.lease_owner) is not None:
                ended = await finished(session, turn_id, after=after, wait_s=STOP_WAIT_S)
            elif await last_worker(session) is not None:
                # Nobody holds a parked turn; who ran it may take it up at once.
                ended = await finished(session, turn_id, after=after, wait_s=LIVE_WAIT_S)
            if ended is None and await _close(invocation, manager, session):
                ended = await finished(session, turn_id, after=after, wait_s=STOP_WAIT_S)
    if output.json:
        outcome = ended.outcome if ended is not None else None
        output.emit({"session_id": session.session_id, "turn_id": turn_id, "outcome": outcome})
    elif turn_id is None:
        output.say("no turn is open")
    elif ended is None:
        output.say(
            f"turn {turn_id} is asked to end; whoever runs it has not done so yet: kipu status {session.session_id}"
        )
    else:
        output.say(f"turn {turn_id} is {ended.outcome}")


async def _close(invocation: Invocation, manager: SessionManager, session: Session) -> bool:
    """End a turn that nobody runs, here and now; False where somebody has it after all."""
    from kipu.cli.serving import runtime_for
    from kipu.runtime.turns.session_turns import SessionTurns
    from kipu.runtime.turns.turn_control import TurnControl

    async with runtime_for(invocation, manager, serves=lambda _session_id: False) as runtime:
        if not await session.lock.try_acquire():
            return False
        try:
            turns = SessionTurns(manager, runtime.orchestrator, session=session, principal=manager.principal)
            await session.refresh()
            if session.head.open_turn is not None:
                await turns.run_next(TurnControl())
        finally:
            await session.lock.release()
    return True


@app.command("queue")
def queue(
    context: typer.Context,
    *,
    session: SessionArgument,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[cancel SEQ]", help="Take back the message of this number.")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List the messages that wait in a session, or take one back before a turn gets it."""
    seq = number_in(words[1]) if words and len(words) == 2 and words[0] == "cancel" else None
    if words and seq is None:
        raise typer.BadParameter("write: kipu queue ID cancel SEQ, with the number that kipu queue ID shows")
    invocation = begin(context, store=store, json=json)
    invocation.run(_cancel(invocation, session, seq) if seq is not None else _queue(invocation, session))


async def _queue(invocation: Invocation, text: str) -> None:
    from kipu.cli.reference import find_session

    output = invocation.output
    async with invocation.manager() as manager:
        session = await find_session(manager, text)
        waiting = await _control(manager).queue(session.session_id)
    if output.json:
        output.emit([_message_json(message) for message in waiting])
        return
    output.table(("seq", "policy", "waits", "from", "due", "text"), map(_row, waiting))
    if not waiting:
        output.say("no message waits")


def _row(message: QueuedMessage) -> tuple[str, ...]:
    from kipu.cli.approving import span

    sender = message.author.sender_id or message.author.principal or "-"
    due = f"in {span(message.due_in_s)}" if message.due_in_s else "now"
    return str(message.seq), message.mode, span(message.age_s), sender, due, message.text


def _message_json(message: QueuedMessage) -> dict[str, Any]:
    return {
        "seq": message.seq,
        "mode": message.mode,
        "sender_id": message.author.sender_id,
        "principal": message.author.principal,
        "text": message.text,
        "age_s": message.age_s,
        "due_in_s": message.due_in_s,
        "expires_in_s": message.expires_in_s,
    }


async def _cancel(invocation: Invocation, text: str, seq: int) -> None:
    from kipu.cli.reference import find_session
    from kipu.cli.transcript import event_json
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.WITHDRAW)
        event = await _control(manager).cancel(session.session_id, seq)
        if invocation.json:
            invocation.output.emit(event_json(event))
        else:
            invocation.output.say(f"message {seq} is taken back")


@app.command("send")
def send(
    context: typer.Context,
    *,
    session: SessionArgument,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What to say; - reads it from stdin.")],
    policy: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="If it is busy: followup, collect, steer, interrupt, rollback or reject."),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Put a message into a session's mailbox, durably, whoever runs it; say where it stands and who answers it."""
    import sys

    text = sys.stdin.read() if message == "-" else message
    invocation = begin(context, store=store, json=json)
    invocation.run(_send(invocation, session, text, policy=policy))


async def _send(invocation: Invocation, text: str, message: str, *, policy: str | None) -> None:
    from kipu.cli.posting import post
    from kipu.cli.reference import find_session
    from kipu.cli.runner import live_owner
    from kipu.manager.access import Verb

    output = invocation.output
    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.SEND)
        receipt = await post(manager, session, text=message, policy=policy)
        head = await manager.store.head(session.session_id)
        owner = live_owner(head.lease_owner) if head is not None else None
    if output.json:
        record: dict[str, Any] = {
            "session_id": receipt.session_id,
            "seq": receipt.seq,
            "policy": receipt.policy.to_json(),
            "settled": [{"seqs": list(one.seqs), "reason": one.reason} for one in receipt.settled],
            "stopped": receipt.stopped,
            "due_at": receipt.due_at,
            "run_by": owner.pid if owner else None,
        }
        output.emit(record)
        return
    output.write(f"{receipt.seq}\n")
    output.say(f"message {receipt.seq} of {receipt.session_id} is stored ({receipt.policy.mode})")
    for one in receipt.settled:
        output.say(f"  instead of {', '.join(map(str, one.seqs))} ({one.reason})")
    if receipt.stopped is not None:
        output.say(f"  turn {receipt.stopped} is asked to end for it")
    if owner is not None:
        output.say(f"  process {owner.pid} has the session and answers it")
    else:
        output.say(f"  nobody runs the session now: kipu run --resume {receipt.session_id}")


def _control(manager: SessionManager) -> ControlLane:
    from kipu.runtime.messages.control import ControlLane

    return ControlLane(manager, wake=lambda _session_id: None)
