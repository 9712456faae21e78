"""`kipu window`: exactly what the model is shown."""

from __future__ import annotations

from typing import Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

MOST = 2**53 - 1  # what every reader of JSON takes
app = typer.Typer(add_completion=False)


@app.command("window")
def window(
    context: typer.Context,
    *,
    session: SessionArgument,
    target: Annotated[
        str, typer.Option(help="neutral, openai_chat, openai_responses, anthropic or gemini.")
    ] = "neutral",
    max_tokens: Annotated[int | None, typer.Option(min=1, max=MOST, help="Under this token budget.")] = None,
    max_messages: Annotated[int | None, typer.Option(min=1, max=MOST, help="With at most so many messages.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show the messages the model is shown, their tokens, and every adjustment that was made for them."""
    invocation = begin(context, store=store, json=json)
    bounds = {name: value for name, value in (("max_tokens", max_tokens), ("max_messages", max_messages)) if value}
    invocation.run(_window(invocation, session, target, bounds=bounds))


async def _window(invocation: Invocation, text: str, target: str, *, bounds: dict[str, int]) -> None:
    from dataclasses import replace
    from typing import Any

    from kipu.cli.reference import find_session
    from kipu.cli.window_view import window_json, window_lines
    from kipu.context.policy import WindowPolicy
    from kipu.runtime.turns.shown_window import last_call

    async with invocation.manager() as manager:
        session = await find_session(manager, text)
        # As the last model was shown it: under its budget, and with the reasoning that only it may read.
        call = await last_call(session)
        shown = call.window if call is not None else {}
        policy = WindowPolicy.from_json(shown["policy"]) if "policy" in shown else session.policy
        changes: dict[str, Any] = dict(bounds)
        policy = replace(policy, **changes)
        if policy != session.policy:
            await session.set_policy(policy)
        reader = shown.get("reader", {})
        rendering = await session.render(target, provider=reader.get("provider"), model=reader.get("model"))
        if invocation.json:
            invocation.output.emit(window_json(session, rendering))
            return
        for line in window_lines(session, rendering):
            invocation.output.line(line)
