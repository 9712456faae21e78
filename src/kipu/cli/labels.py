"""`kipu rename`, `kipu tag` and `kipu pin`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

if TYPE_CHECKING:
    from kipu.ports.head import Head

app = typer.Typer(add_completion=False)


@app.command("rename")
def rename(
    context: typer.Context,
    *,
    session: SessionArgument,
    title: Annotated[str, typer.Argument(help="The new title; an empty one shows the first message again.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Give a session a title."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_change(invocation, session, title=title.strip() or None))


@app.command("tag")
def tag(
    context: typer.Context,
    *,
    session: SessionArgument,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Tags to add; -TAG after -- takes one away.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Add tags to a session, or take them away: kipu tag ID work -- -draft."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_tag(invocation, session, tags))


@app.command("pin")
def pin(
    context: typer.Context,
    *,
    session: SessionArgument,
    seqs: Annotated[
        list[int] | None,
        typer.Argument(metavar="[SEQ]...", help="Keep these events in the window (default: pin the session)."),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="No longer.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Keep events in what the model is shown; without events, keep the session out of sweeps and mark it in lists."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_pin(invocation, session, seqs or [], on=not off))


async def _change(invocation: Invocation, text: str, **values: Any) -> None:
    from kipu.cli.reference import find_session
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.CONFIGURE)
        unset = [name for name, value in values.items() if value is None]
        await session.set_metadata(unset=unset, **{name: value for name, value in values.items() if value is not None})
        _report(invocation, session.head)


async def _tag(invocation: Invocation, text: str, tags: list[str]) -> None:
    from kipu.cli.reference import find_session
    from kipu.errors import InputError
    from kipu.manager.access import Verb

    if any(not tag.lstrip("-+").strip() for tag in tags):
        raise InputError(reason="a tag is empty")
    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.CONFIGURE)
        gone = {tag[1:] for tag in tags if tag.startswith("-")}
        added = [tag.removeprefix("+") for tag in tags if not tag.startswith("-")]
        kept = [tag for tag in dict.fromkeys([*session.head.tags, *added]) if tag not in gone]
        await session.set_metadata(tags=kept)
        _report(invocation, session.head)


async def _pin(invocation: Invocation, text: str, seqs: list[int], *, on: bool) -> None:
    from kipu.cli.reference import find_session
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.CONFIGURE)
        if seqs:
            await session.pin(*seqs, on=on)
        else:
            await session.set_metadata(pinned=on)
        _report(invocation, session.head)


def _report(invocation: Invocation, head: Head) -> None:
    from kipu.cli.head_view import head_json, head_row

    if invocation.json:
        invocation.output.emit(head_json(head))
    else:
        invocation.output.say("  ".join(head_row(head)))
        if head.pins:
            invocation.output.say(f"pinned events: {', '.join(map(str, head.pins))}")
