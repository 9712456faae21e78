"""`kipu store`: a store made, looked at, and brought to what this release knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption
from kipu.errors import StoreUrlError

if TYPE_CHECKING:
    from kipu.stores.postgres.database import Database

app = typer.Typer(add_completion=False)
store_app = typer.Typer(add_completion=False, help="The store as a whole: `init`, `check`, `migrate`.")
app.add_typer(store_app, name="store")


@store_app.callback(invoke_without_command=True)
def store_alone(context: typer.Context, *, store: StoreOption = None, json: JsonOption = False) -> None:
    """The store as a whole: `init`, `check`, `migrate`; alone it is `check`."""
    if context.invoked_subcommand is None:
        _check(begin(context, store=store, json=json))


@store_app.command("init")
def init(
    context: typer.Context,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", help="Keep events, search terms and blobs of a new PostgreSQL store in so many parts."
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Make the store in force, or leave the one that is there as it is."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_init(invocation, partitions=partitions))


async def _init(invocation: Invocation, *, partitions: int | None) -> None:
    from kipu.wiring import open_store

    if partitions is not None:
        await _make_in_parts(invocation, partitions)
    store = await open_store(invocation.store_url, find_keys=invocation.find_keys)
    try:
        described = store.describe()
    finally:
        await store.close()
    if invocation.json:
        invocation.output.emit({"store": described.url, "kind": described.kind, "read_only": described.read_only})
    else:
        invocation.output.say(f"{described.url} is there")


async def _make_in_parts(invocation: Invocation, partitions: int) -> None:
    if not _is_on_server(invocation.store_url):
        raise StoreUrlError(url=invocation.store_url, reason="only a PostgreSQL store has partitions")
    from kipu.stores.postgres.partitioning import make_in_parts

    async with _database(invocation) as database:
        await make_in_parts(database, partitions)


@store_app.command("check")
def check(context: typer.Context, *, store: StoreOption = None, json: JsonOption = False) -> None:
    """Say what the store is and whether this release can work with it; ends with 1 where it cannot. Changes nothing."""
    _check(begin(context, store=store, json=json))


def _check(invocation: Invocation) -> None:
    if not invocation.run(_checked(invocation)):
        raise typer.Exit(ExitCode.FAILURE)


async def _checked(invocation: Invocation) -> bool:
    if not _is_on_server(invocation.store_url):
        return await _described(invocation)
    from kipu.stores.postgres.upkeep import check

    async with _database(invocation) as database:
        state = await check(database)
        shown = database.url
    if invocation.json:
        invocation.output.emit({"store": shown, "is_sound": state.is_sound, **asdict(state)})
        return state.is_sound
    formats = "no tables: run `kipu store init`" if state.format is None else f"format {state.format}"
    facts = {"store": shown, "server": f"PostgreSQL {state.server}", "tables": formats}
    if state.oldest is not None:
        facts["written by releases of format"] = f"{state.oldest} and later (this one has {state.known})"
    facts["durability"] = state.durability
    facts["a power cut may take"] = state.loss_window
    if state.missing and state.format is not None:
        facts["missing"] = ", ".join(state.missing)
    _write_facts(invocation, facts, notes=state.notes)
    return state.is_sound


async def _described(invocation: Invocation) -> bool:
    async with invocation.store() as store:
        described = store.describe()
    if invocation.json:
        invocation.output.emit({**asdict(described), "is_sound": not described.read_only})
    else:
        facts = {
            "store": described.url,
            "kind": described.kind,
            "durability": described.durability,
            "a power cut may take": described.loss_window,
        }
        _write_facts(invocation, facts, notes=described.notes)
    return not described.read_only


def _write_facts(invocation: Invocation, facts: dict[str, str], *, notes: tuple[str, ...]) -> None:
    for name, value in facts.items():
        invocation.output.line(f"{name}: {value}")
    for note in notes:
        invocation.output.say(note)


@store_app.command("migrate")
def migrate(
    context: typer.Context,
    *,
    contract: Annotated[
        bool, typer.Option("--contract", help="Take away what only older releases need, once none of them runs.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Bring the store's tables to what this release knows. Without --contract the release before goes on working."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_migrate(invocation, contract=contract))


async def _migrate(invocation: Invocation, *, contract: bool) -> None:
    done: list[int] = []
    if _is_on_server(invocation.store_url):
        from kipu.stores.postgres.upkeep import migrate

        async with _database(invocation) as database:
            done = await migrate(database, narrow=contract)
    else:
        async with invocation.store():
            pass  # a store of files is brought on by whoever opens it
    answer: dict[str, Any] = {"done": done, "contract": contract}
    if invocation.json:
        invocation.output.emit(answer)
    elif done:
        invocation.output.say(f"{'narrowed' if contract else 'widened'} to format {done[-1]}")
    else:
        invocation.output.say("nothing to do: the store is as this release has it")


def _is_on_server(url: str) -> bool:
    from kipu.store_url import StoreUrl

    return StoreUrl.parse(url).is_on_server


@asynccontextmanager
async def _database(invocation: Invocation) -> AsyncIterator[Database]:
    from kipu.stores.postgres.upkeep import opened

    database = await opened(invocation.store_url)
    try:
        yield database
    finally:
        await database.close()
