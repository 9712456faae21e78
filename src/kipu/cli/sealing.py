"""`kipu encrypt` and `kipu decrypt`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import ChainOption, FieldsOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.cli.progress import Bar
    from kipu.manager.copying import CopyProgress
    from kipu.sealing.conversion import Converted

app = typer.Typer(add_completion=False)
KeepOption = Annotated[
    bool, typer.Option("--keep", help="Keep the old store beside the new one, as NAME.before, instead of erasing it.")
]


@app.command("encrypt")
def encrypt(
    context: typer.Context,
    *,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="SOURCE", help="file:PATH, keyring:NAME, env:NAME, passphrase or service:NAME."),
    ] = None,
    chain: ChainOption = False,
    fields: FieldsOption = None,
    keep: KeepOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Encrypt a store in place: copied, verified, exchanged, the old one erased. Stopped and run again it goes on.

    No other process may use it meanwhile. The key is one that `kipu key init` made; the store remembers where it is.
    """
    invocation = begin(context, store=store, json=json)
    _tell(invocation, invocation.run(_encrypt(invocation, key, chain=chain, fields=fields, keep=keep)), "encrypted")


async def _encrypt(
    invocation: Invocation, key: str | None, *, chain: bool, fields: str | None, keep: bool
) -> Converted:
    from kipu.cli.passphrase import asking
    from kipu.cli.progress import progress_bar
    from kipu.errors import KeySourceError
    from kipu.sealing.beginning import absolute_source
    from kipu.sealing.converting import encrypt_store
    from kipu.security.key_finder import KeyFinder
    from kipu.store_url import StoreUrl
    from kipu.stores.host import this_process_owner
    from kipu.wiring import store_place

    found = invocation.find_keys
    asked = (
        found
        if found.ask is None
        else KeyFinder(found.environment, entropy=found.entropy, ask=asking("A new passphrase", twice=True))
    )
    settings = StoreUrl.parse(invocation.store_url).settings
    text = found.name_of(key or settings.get("encrypt"), {})
    if text is None:
        reason = "nobody named it: --key file:PATH (`kipu key init` makes one), --key passphrase, or KIPU_KEY"
        raise KeySourceError(source="this store", reason=reason)
    text = absolute_source(text)
    names = fields or settings.get("fields")
    with progress_bar(invocation.output, "encrypting", unit="events") as bar:
        return await encrypt_store(
            store_place(invocation.store_url),
            asked.open(text),
            source=text,
            owner=this_process_owner("encrypt"),
            chain=chain or "chain" in settings,
            fields=names.split(",") if names else (),
            keep=keep,
            told=_drawing(bar),
        )


@app.command("decrypt")
def decrypt(
    context: typer.Context,
    *,
    keep: KeepOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Make an encrypted store a plain one again, in the same way; its key vault is destroyed with the old store."""
    invocation = begin(context, store=store, json=json)
    _tell(invocation, invocation.run(_decrypt(invocation, keep=keep)), "decrypted")


async def _decrypt(invocation: Invocation, *, keep: bool) -> Converted:
    from kipu.cli.progress import progress_bar
    from kipu.sealing.converting import decrypt_store
    from kipu.store_url import StoreUrl
    from kipu.stores.host import this_process_owner
    from kipu.wiring import store_place

    named = StoreUrl.parse(invocation.store_url).settings.get("encrypt")
    with progress_bar(invocation.output, "decrypting", unit="events") as bar:
        return await decrypt_store(
            store_place(invocation.store_url),
            invocation.find_keys,
            named=named,
            owner=this_process_owner("decrypt"),
            keep=keep,
            told=_drawing(bar),
        )


def _drawing(bar: Bar) -> Callable[[str, CopyProgress], None]:
    def moved(what: str, progress: CopyProgress) -> None:
        bar.expect(progress.events_total)
        bar.done(progress.events_done)

    return moved


def _tell(invocation: Invocation, done: Converted, verb: str) -> None:
    output = invocation.output
    for note in done.notes:
        output.say(note, style="yellow")
    if done.lost:
        output.say(f"{done.lost} records are lost in the old store; `damaged` events stand for them", style="yellow")
    if output.json:
        from dataclasses import asdict

        output.emit(
            {"store": invocation.store_url, **asdict(done), "kept": None if done.kept is None else str(done.kept)}
        )
        return
    output.say(f"{invocation.store_url} is {verb}: {done.sessions} sessions, verified event by event")
    if done.kept is not None:
        output.say(f"the old store is kept as {done.kept}: erase it when you need it no more")
    else:
        output.say("the old store is erased; backups of it are not")
