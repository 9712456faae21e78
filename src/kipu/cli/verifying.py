"""`kipu verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kipu.cli.completion import complete_session
from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

app = typer.Typer(add_completion=False)


@app.command("verify")
def verify(
    context: typer.Context,
    *,
    session: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="One session (default: the store).", autocompletion=complete_session),
    ] = None,
    chain: Annotated[
        bool,
        typer.Option("--chain", help="Follow the keyed chains alone: the first altered, dropped or reordered event."),
    ] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="With --chain: write every chain's last link there.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="FILE", help="With --chain: find what was set back since these links were saved."
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Read everything and report what is damaged, with places and offsets; nothing is changed. Ends with 1 where damage is."""
    invocation = begin(context, store=store, json=json)
    if chain or save or against:
        from kipu.cli.chain_checking import check_chains

        found = invocation.run(check_chains(invocation, session, save=save, against=against))
    else:
        found = invocation.run(_verify(invocation, session))
    if found:
        raise typer.Exit(ExitCode.FAILURE)


async def _verify(invocation: Invocation, text: str | None) -> int:
    from dataclasses import asdict

    from kipu.cli.reference import find_head
    from kipu.errors import StoreCorruptError
    from kipu.ports.store import Damage

    output, url, session_id = invocation.output, invocation.store_url, text
    try:
        async with invocation.manager() as manager:
            session_id = await find_head(manager, text) if text is not None else None
            found = list(await manager.store.verify(session_id))
            url = manager.store.describe().url
    except StoreCorruptError as error:  # its message says to run this command: what it found is told as damage instead
        found = [Damage(session_id, "unreadable", "store", detail=str(error.data.get("reason", error)))]
    if output.json:
        output.emit({"store": url, "session_id": session_id, "damages": [asdict(damage) for damage in found]})
        return len(found)
    rows = (
        (
            d.session_id or "",
            d.reason,
            d.where,
            _place(d.offset, d.length),
            "" if d.seq is None else str(d.seq),
            d.detail,
        )
        for d in found
    )
    output.table(("session", "damage", "where", "bytes", "seq", "detail"), rows)
    output.say(f"{url}: {len(found)} damaged places" if found else f"{url}: no damage found")
    return len(found)


def _place(offset: int | None, length: int | None) -> str:
    if offset is None:
        return ""
    return f"{offset}+{length}" if length is not None else str(offset)
