"""`kipu store`: a store made, looked at, and brought to what this release knows."""

from __future__ import annotations

import os
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
    if _kind_of(invocation.store_url) == "valkey":
        return await _checked_keys(invocation)
    if not _is_on_server(invocation.store_url):
        return await _described(invocation)
    from kipu.stores.postgres.upkeep import check

    async with _database(invocation) as database:
        state = await check(database)
        shown = database.url
    here = _local_notes(invocation)
    if invocation.json:
        invocation.output.emit({"store": shown, "is_sound": state.is_sound, **asdict(state), "local": here})
        return state.is_sound
    formats = "no tables: run `kipu store init`" if state.format is None else f"format {state.format}"
    facts = {"store": shown, "server": f"PostgreSQL {state.server}", "tables": formats}
    if state.oldest is not None:
        facts["written by releases of format"] = f"{state.oldest} and later (this one has {state.known})"
    facts["durability"] = state.durability
    facts["a power cut may take"] = state.loss_window
    if state.missing and state.format is not None:
        facts["missing"] = ", ".join(state.missing)
    _write_facts(invocation, facts, notes=(*state.notes, *here))
    return state.is_sound


def _local_notes(invocation: Invocation) -> tuple[str, ...]:
    from kipu.store_parts import local_notes
    from kipu.store_url import StoreUrl

    return local_notes(StoreUrl.parse(invocation.store_url), archive=invocation.settings["archive"])


async def _checked_keys(invocation: Invocation) -> bool:
    from kipu.stores.valkey.upkeep import check

    state, here = await check(invocation.store_url), _local_notes(invocation)
    if invocation.json:
        invocation.output.emit({"is_sound": state.is_sound, **asdict(state), "local": here})
        return state.is_sound
    facts = {
        "store": state.store,
        "server": state.server,
        "keys": "none: run `kipu store init`" if state.format is None else f"format {state.format}",
        "durability": state.durability,
        "a crash of the server may take": state.loss_window,
    }
    _write_facts(invocation, facts, notes=(*state.notes, *here))
    return state.is_sound


async def _described(invocation: Invocation) -> bool:
    async with invocation.store() as store:
        described = store.describe()
    place = _place(invocation.store_url)
    if invocation.json:
        invocation.output.emit({**asdict(described), **place, "is_sound": not described.read_only})
    else:
        facts = {
            "store": described.url,
            "kind": described.kind,
            "durability": described.durability,
            "a power cut may take": described.loss_window,
        }
        if place:
            facts["file system"] = f"{place['file_system'] or 'not told'}, locks hold {_REACH[place['locks_reach']]}"
            if "sync_ms" in place:
                facts["until a line is on the medium"] = f"{place['sync_ms']:.2f} ms"
        _write_facts(invocation, facts, notes=(*described.notes, *_local_notes(invocation)))
    return not described.read_only


_REACH = {"machines": "between machines, as its server keeps them", "machine": "on this machine"}


def _place(url: str) -> dict[str, Any]:
    """Return where a store of files is and how long it takes there until a line is on the medium."""
    from kipu.store_url import StoreUrl
    from kipu.stores.file_system import mount_of, sync_ms

    parsed = StoreUrl.parse(url)
    if parsed.kind not in {"sqlite", "jsonl"}:
        return {}
    mount, folder = mount_of(str(parsed.path)), parsed.path if parsed.kind == "jsonl" else parsed.path.absolute().parent
    found = {
        "file_system": "" if mount is None else mount.kind,
        "locks_reach": "machine" if mount is None else mount.lock_reach,
    }
    return found | ({"sync_ms": sync_ms(str(folder))} if os.access(folder, os.W_OK) else {})


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
    moved: dict[str, int] = {}
    if _is_on_server(invocation.store_url):
        from kipu.stores.postgres.upkeep import migrate

        async with _database(invocation) as database:
            done = await migrate(database, narrow=contract)
        moved = await _moved_in(invocation)
    else:
        async with invocation.store():
            pass  # a store of files is brought on by whoever opens it
    answer: dict[str, Any] = {"done": done, "contract": contract, "moved": moved}
    if invocation.json:
        invocation.output.emit(answer)
        return
    if done:
        invocation.output.say(f"{'narrowed' if contract else 'widened'} to format {done[-1]}")
    for what, count in moved.items():
        invocation.output.say(
            f"moved {count} {what} from a file of this machine into the database, and removed the file"
        )
    if not done and not moved:
        invocation.output.say("nothing to do: the store is as this release has it")


async def _moved_in(invocation: Invocation) -> dict[str, int]:
    """Move what an older release kept on this machine to where the store has it now; return how much of each was new there."""
    from kipu.store_parts import move_memory_in, move_vault_in
    from kipu.store_url import MEMORY, StoreUrl, remains
    from kipu.wiring import open_store

    parsed = StoreUrl.parse(invocation.store_url)
    keys = await move_vault_in(parsed, invocation.find_keys)
    moved = {} if keys is None else {"data keys": keys}
    if MEMORY in remains(parsed):
        store = await open_store(invocation.store_url, find_keys=invocation.find_keys)
        try:
            facts = await move_memory_in(parsed, store)
        finally:
            await store.close()
        moved |= {} if facts is None else {"facts": facts}
    return moved


def _is_on_server(url: str) -> bool:
    return _kind_of(url) == "postgresql"


def _kind_of(url: str) -> str:
    from kipu.store_url import StoreUrl

    return StoreUrl.parse(url).kind


@asynccontextmanager
async def _database(invocation: Invocation) -> AsyncIterator[Database]:
    from kipu.stores.postgres.upkeep import opened

    database = await opened(invocation.store_url)
    try:
        yield database
    finally:
        await database.close()
