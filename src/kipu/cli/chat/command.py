"""`kipu chat`, its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.completion import complete_session
from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from pathlib import Path

    from kipu.cli.chat.conversation import Conversation
    from kipu.cli.chat.editor import EditedLines
    from kipu.cli.chat.lines import Desk
    from kipu.cli.chat.opening import Wanted
    from kipu.cli.chat.workplace import Place

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
    workspace: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|private", help="Where a new session works (default: here), or a directory of its own."
        ),
    ] = None,
    worktree: Annotated[
        bool, typer.Option("--worktree", help="Let a new session work in a git worktree and branch of its own.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Chat with an agent that works in this directory; /help lists what can be written. Reads piped lines without a terminal."""
    if last + resume + new > 1:
        raise typer.BadParameter("give one of --continue, --resume and --new")
    if target and not resume:
        raise typer.BadParameter("a session is given after --resume; messages are written in the chat")
    if (last or resume) and (workspace or worktree):
        raise typer.BadParameter("a session that goes on stays where it works; change that in the chat with /cwd")
    from kipu.cli.chat.opening import Wanted
    from kipu.cli.chat.workplace import Place

    invocation = begin(context, store=store, json=json, model=model, project=project)
    place = Place.chosen(workspace, is_worktree=worktree, default=invocation.settings["workspace"])
    wanted = Wanted(last=last, resume=" ".join(target or []) if resume else None, model=model)
    code = invocation.run(_chat(invocation, wanted, place))
    if code:
        raise typer.Exit(code)


async def _chat(invocation: Invocation, wanted: Wanted, place: Place) -> ExitCode:
    from kipu.cli.chat.chat_models import ChatModels
    from kipu.cli.chat.conversation import Conversation
    from kipu.cli.chat.lines import line_source
    from kipu.cli.chat.opening import choose_session
    from kipu.cli.chat.screen import screen_for
    from kipu.cli.chat.served import Served
    from kipu.cli.runtime_settings import open_cli_runtime
    from kipu.session.key import SessionKey

    key = SessionKey("cli", invocation.settings["project"] or "default")
    async with invocation.manager(create=True) as manager:
        session = await choose_session(manager, wanted, key=key, output=invocation.output)
        if wanted.resume == "" and session is None:
            return ExitCode.OK  # the picker was left without a choice
        screen, served = screen_for(invocation.output), Served()
        models = ChatModels(invocation.settings, asked=wanted.model, warn=lambda text: screen.say(text, style="yellow"))
        conversation = Conversation(
            manager, screen, invocation=invocation, key=key, models=models, served=served, place=place
        )
        runtime = open_cli_runtime(invocation, manager, open_model=models.open, accepts=served.accepts)
        async with runtime:
            lines = line_source(_desk(conversation, invocation), is_edited=not invocation.json)
            screen.is_live = lines.is_live
            try:
                with lines.held():
                    await conversation.begin(runtime, session)
                    return await conversation.talk(lines)
            finally:
                await conversation.leave()
                await models.aclose()


def _desk(conversation: Conversation, invocation: Invocation) -> Desk:
    """Return what an input line needs of the chat."""
    from kipu.cli.chat.commands import COMMANDS
    from kipu.cli.chat.completions import Completions
    from kipu.cli.chat.lines import Desk
    from kipu.store_parts import keys_of

    screen = conversation.screen

    def attach(lines: EditedLines | None) -> None:
        conversation.answering.lines = lines
        screen.attach(lines)

    return Desk(
        complete=Completions(
            lambda: [(name, command.meaning) for name, command in COMMANDS.items()],
            root=lambda: conversation.root,
            sessions=lambda: list(conversation.listed.items()),
        ),
        interrupt=conversation.interrupt,
        live=screen.live_area,
        history=_history_file(invocation, is_sealed=keys_of(conversation.manager.store) is not None),
        kept=conversation.kept,
        attach=attach,
        hint=screen.say,
    )


def _history_file(invocation: Invocation, *, is_sealed: bool) -> Path | None:
    """Return where entered lines are kept: in the user's state folder, and nowhere for a store in memory or under seal."""
    import os

    from kipu.runtime.erasing.history_place import state_folder
    from kipu.store_url import StoreUrl

    parsed = StoreUrl.parse(invocation.store_url)
    return None if parsed.kind == "memory" or is_sealed else state_folder(os.environ) / "chat_history"
