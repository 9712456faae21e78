"""`kipu replay`: what a past model call was shown, rendered again and checked (C6)."""

from __future__ import annotations

from typing import Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

app = typer.Typer(add_completion=False)


@app.command("replay")
def replay(
    context: typer.Context,
    *,
    session: SessionArgument,
    turn: Annotated[
        str, typer.Option(metavar="N", help="Which turn: a number from 1, -1 for the last, or a turn id.")
    ] = "-1",
    every: Annotated[bool, typer.Option("--all", help="Check every model call, and print only what came out.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Render a past model call from the log, and check its digest. Ends with 1 where it differs."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_replay(invocation, session, turn, every=every))


async def _replay(invocation: Invocation, text: str, turn: str, *, every: bool) -> None:
    from kipu.cli.number import number_or_name
    from kipu.cli.reference import find_session
    from kipu.cli.window_view import message_lines
    from kipu.errors import ReplayMismatchError
    from kipu.runtime.turns.shown_window import call_of_turn, model_calls
    from kipu.runtime.turns.shown_window import replay as replay_call

    output = invocation.output
    async with invocation.manager() as manager:
        session = await find_session(manager, text)
        calls = await model_calls(session)
        wanted = calls if every else [call_of_turn(calls, number_or_name(turn))]
        replays = [(call, await replay_call(session, call, store=manager.store)) for call in wanted]
    records = [
        {
            "session_id": session.session_id,
            "seq": call.seq,
            "turn_id": call.turn_id,
            "model": call.model,
            "window": call.window,
            "digest": each.digest,
            "matches": each.matches,
            **({} if every else {"messages": each.rendering.messages}),
        }
        for call, each in replays
    ]
    if output.json:
        output.emit(records if every else records[0])
    elif not every:
        for message in replays[0][1].rendering.messages:
            for line in message_lines(message):
                output.line(line)
    for call, each in replays:
        if not each.matches:
            expected = call.window.get("digest", "nothing")
            raise ReplayMismatchError(
                session_id=session.session_id, seq=call.seq, expected=expected, actual=each.digest
            )
        if not output.json:
            output.say(f"model call {call.seq} of {call.turn_id}: digest {each.digest} as recorded")
