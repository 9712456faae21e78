"""`kipu chat`, its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.completion import complete_session
from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.cli.chat.opening import Wanted

app = typer.Typer(add_completion=False)


@app.command("chat")
def chat(
    context: typer.Context,
    *,
    target: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID or WORDS", help="With --resume: which session.", autocompletion=complete_session),
    ] = None,
    last: Annotated[bool, typer.Option("--continue", "-c", help="Go on with the project's newest session.")] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", "-r", help="Go on with the session of this id or these words; without any, pick one."),
    ] = False,
    new: Annotated[bool, typer.Option("--new", help="Begin a session (the default).")] = False,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which model answers, such as openai:… or demo.")
    ] = None,
    project: Annotated[str | None, typer.Option(metavar="NAME", help="Whose chats to begin and continue.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Chat with a model, each line a message; /help lists what else can be written. Reads piped lines without a terminal."""
    if last + resume + new > 1:
        raise typer.BadParameter("give one of --continue, --resume and --new")
    if target and not resume:
        raise typer.BadParameter("a session is given after --resume; messages are written in the chat")
    from kipu.cli.chat.opening import Wanted

    invocation = begin(context, store=store, json=json, model=model, project=project)
    wanted = Wanted(last=last, resume=" ".join(target or []) if resume else None, model=model)
    code = invocation.run(_chat(invocation, wanted))
    if code:
        raise typer.Exit(code)


async def _chat(invocation: Invocation, wanted: Wanted) -> ExitCode:
    from kipu.cli.chat.conversation import Conversation
    from kipu.cli.chat.lines import line_source
    from kipu.cli.chat.opening import choose_session
    from kipu.cli.chat.screen import screen_for
    from kipu.session.key import SessionKey

    key = SessionKey("cli", invocation.settings["project"] or "default")
    async with invocation.manager(create=True) as manager:
        session = await choose_session(manager, wanted, key=key, output=invocation.output)
        if wanted.resume == "" and session is None:
            return ExitCode.OK  # the picker was left without a choice
        conversation = Conversation(
            manager, screen_for(invocation.output), settings=invocation.settings, key=key, model_name=wanted.model
        )
        try:
            await conversation.begin(session)
            return await conversation.talk(line_source(conversation.completions, is_edited=not invocation.json))
        finally:
            await conversation.close()
