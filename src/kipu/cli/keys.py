"""`kipu key`: the key of an encrypted store made, rotated, and looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import ChainOption, FieldsOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.sealing.diagnosis import KeyState
    from kipu.sealing.rotating import Rotated

app = typer.Typer(add_completion=False)
key = typer.Typer(add_completion=False, help="The key of an encrypted store: `init`, `rotate`, `status`.")
app.add_typer(key, name="key")

_SOURCES = "file:PATH, keyring:NAME, env:NAME, passphrase or service:NAME"
SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE", help=f"Where the key is to be: {_SOURCES}.")]


@key.callback(invoke_without_command=True)
def key_alone(context: typer.Context, *, store: StoreOption = None, json: JsonOption = False) -> None:
    """The key of an encrypted store: `init`, `rotate`, `status`; alone it is `status`."""
    if context.invoked_subcommand is None:
        _status(begin(context, store=store, json=json))


@key.command("init")
def init(
    context: typer.Context,
    *,
    source: SourceArgument,
    chain: ChainOption = False,
    fields: FieldsOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Make a key, unless it is there, and the store in force an encrypted one, if it holds nothing yet.

    A store that holds sessions is encrypted by `kipu encrypt`.
    """
    invocation = begin(context, store=store, json=json)
    invocation.run(_init(invocation, source, chain=chain, fields=fields))


async def _init(invocation: Invocation, source: str, *, chain: bool, fields: str | None) -> None:
    from kipu.cli.passphrase import asking
    from kipu.sealing.beginning import absolute_source, make_key
    from kipu.security.key_finder import KeyFinder
    from kipu.wiring import begin_encrypted

    finder, text = invocation.find_keys, absolute_source(source)
    if text.partition(":")[0] == "passphrase":
        finder = KeyFinder(finder.environment, entropy=finder.entropy, ask=asking("A new passphrase", twice=True))
    holds = await _holds_sessions(invocation.store_url)
    made = make_key(text, finder)
    if not holds and made.line is None:
        await begin_encrypted(invocation.store_url, finder.open(text), source=text, chain=chain, fields=fields)
    output = invocation.output
    encrypted = not holds and made.line is None
    if output.json:
        output.emit(
            {
                "source": text,
                "made": made.made,
                "line": made.line,
                "store": invocation.store_url,
                "encrypted": encrypted,
            }
        )
        return
    if made.line is not None:
        output.write(made.line + "\n")
        output.say(f"Put this line into the variable {text.partition(':')[2]}, keep a copy of it, and run this again.")
        return
    output.say(
        f"{'made a key in' if made.made else 'the key is in'} {text}; whoever loses it loses the sessions: keep a copy"
    )
    if encrypted:
        output.say(f"{invocation.store_url} is encrypted with it from now on")
    else:
        output.say(f"{invocation.store_url} holds sessions: encrypt them by `kipu encrypt --key {text}`")


async def _holds_sessions(url: str) -> bool:
    """Return whether there are sessions to encrypt. Raises: InputError where the store is encrypted already."""
    from kipu.cli.place import is_there
    from kipu.errors import InputError
    from kipu.store_parts import refuse_remains, shown_url, vault_place
    from kipu.store_url import StoreUrl
    from kipu.stores.sealed_mark import newest
    from kipu.wiring import look_inside

    parsed = StoreUrl.parse(url)
    refuse_remains(parsed)
    if await vault_place(parsed).is_there():
        raise InputError(reason=f"{shown_url(parsed)} is encrypted already; `kipu key status` says with which key")
    return parsed.kind != "memory" and is_there(url) and await look_inside(url, newest) is not None


@key.command("rotate")
def rotate(
    context: typer.Context,
    *,
    to: Annotated[str | None, typer.Option("--to", metavar="SOURCE", help=f"Move to this source: {_SOURCES}.")] = None,
    data_keys: Annotated[
        bool, typer.Option("--data-keys", help="Give every session a fresh data key for new events, instead.")
    ] = False,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Take old keys out of the file; old backups of the vault open no more.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Wrap every data key under a new key, while the store is in use. Stopped and run again it goes on."""
    invocation = begin(context, store=store, json=json)
    if data_keys:
        invocation.run(_new_epochs(invocation))
    else:
        invocation.run(_rotate(invocation, to, drop_old=drop_old))


async def _rotate(invocation: Invocation, to: str | None, *, drop_old: bool) -> None:
    import os

    from kipu.cli.passphrase import asking
    from kipu.cli.progress import progress_bar
    from kipu.sealing.beginning import absolute_source, make_key
    from kipu.sealing.rotating import Rotation

    named, place = await invocation.vault()
    target = None if to is None else absolute_source(to)
    if target is not None:
        make_key(target, invocation.find_keys)
    ask = asking("The new passphrase", twice=True)

    def new_passphrase() -> str:
        return os.environ.get("KIPU_NEW_PASSPHRASE") or (ask() if ask is not None else "")

    vault = await place.open()
    try:
        with progress_bar(invocation.output, "rotating", unit="keys") as bar:
            bar.expect(sum((await vault.counts()).values()))
            work = Rotation(vault, invocation.find_keys, named=named, new_passphrase=new_passphrase, told=bar.done)
            done = await work.run(to=target, drop_old=drop_old)
    finally:
        await vault.close()
    output = invocation.output
    if output.json:
        output.emit(
            {
                "rewrapped": done.keys,
                "key": done.current,
                "source": done.source,
                "made": done.added,
                "dropped": done.dropped,
            }
        )
        return
    output.say(
        f"{done.keys} data keys are under {done.current} now ({done.source}); the old key alone opens nothing more"
    )
    for line in _what_others_need(invocation.store_url, done):
        output.say(line)


def _what_others_need(url: str, done: Rotated) -> list[str]:
    """Return what is to be done where the new key is not yet: until then nothing that was rewrapped opens there."""
    from kipu.store_url import StoreUrl

    kind, _, where = done.source.partition(":")
    if kind == "passphrase":
        return ["processes that are running were given the old passphrase: start them again with the new one"]
    if done.added and kind == "file" and StoreUrl.parse(url).is_on_server:
        return [f"the new key is on this machine only: copy {where} to every other one that uses the store, at once"]
    return []


async def _new_epochs(invocation: Invocation) -> None:
    from kipu.cli.progress import progress_bar
    from kipu.sealing.converting import ring_of

    with progress_bar(invocation.output, "making keys", unit="sessions") as bar:
        async with invocation.store() as store:
            done = await ring_of(store).new_epochs(bar.done)
    if invocation.output.json:
        invocation.output.emit({"sessions": done})
    else:
        invocation.output.say(f"{done} sessions seal what comes with fresh data keys; what is there opens as before")


@key.command("status")
def status(context: typer.Context, *, store: StoreOption = None, json: JsonOption = False) -> None:
    """Say which key the store wants, whether the one that is found opens it, and what to do. Ends with 5 where it does not."""
    _status(begin(context, store=store, json=json))


def _status(invocation: Invocation) -> None:
    state = invocation.run(_state(invocation))
    output = invocation.output
    if output.json:
        from dataclasses import asdict

        output.emit({"store": invocation.store_url, **asdict(state), "advice": state.advice})
    else:
        output.facts(
            [
                ("store", invocation.store_url),
                ("state", state.state),
                ("key from", state.source),
                ("key", state.current),
                ("remembered", state.remembered if state.remembered != state.source else None),
                ("vault", state.vault),
                ("data keys", ", ".join(f"{count} under {name}" for name, count in sorted(state.wraps.items()))),
                ("sessions", f"{state.sessions}, {state.epochs} older data keys, {state.erased} erased"),
                ("chained", "yes" if state.chained else "no"),
                ("sealed fields", ", ".join(state.fields) or "whole bodies"),
            ]
            if state.wraps
            else [("store", invocation.store_url), ("state", state.state), ("vault", state.vault)]
        )
        output.say(state.advice)
    if not state.is_good:
        raise typer.Exit(ExitCode.UNREADABLE)


async def _state(invocation: Invocation) -> KeyState:
    from kipu.cli.place import require_place
    from kipu.errors import InputError
    from kipu.sealing.diagnosis import key_state
    from kipu.store_parts import refuse_remains, vault_place
    from kipu.store_url import StoreUrl
    from kipu.stores.sealed_mark import is_sealed
    from kipu.wiring import look_inside

    url = invocation.store_url
    require_place(url, create=False)
    parsed = StoreUrl.parse(url)
    if parsed.kind == "memory":
        raise InputError(reason="a store in memory keeps no key")
    refuse_remains(parsed)
    place = vault_place(parsed)
    sealed = await place.is_there() or await look_inside(url, is_sealed)
    return await key_state(place, invocation.find_keys, named=parsed.settings.get("encrypt"), sealed=sealed)
