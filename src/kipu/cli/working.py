"""`kipu worker`: run the turns of a store's sessions, one process of any number on any number of machines."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.number import number_in
from kipu.cli.options import JsonOption, StoreOption
from kipu.errors import InputError, KipuError

if TYPE_CHECKING:
    from kipu.ports.store import EventStore
    from kipu.runtime.runtime import Runtime
    from kipu.runtime.workspaces.place import Place

app = typer.Typer(add_completion=False)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_S = 1.0  # how often it is looked whether the store has moved


@app.command("worker")
def worker(
    context: typer.Context,
    *,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=1_000, help="Turns at once.")] = 16,
    drain_s: Annotated[
        float, typer.Option("--drain-s", min=0, help="At SIGTERM, give running turns so long to end.")
    ] = 30.0,
    health: Annotated[
        str | None,
        typer.Option("--health", metavar="HOST:PORT", help="Answer /healthz, /readyz and /metrics there."),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Run turns until SIGTERM: then begin no more, let those that run end or hand them over at once. A second signal ends at once."""
    invocation = begin(context, store=store, json=json)
    place = None if health is None else _host_and_port(health)
    invocation.run(_work(invocation, concurrency=concurrency, drain_s=drain_s, place=place))


async def _work(invocation: Invocation, *, concurrency: int, drain_s: float, place: tuple[str, int] | None) -> None:
    from kipu.cli.health import Health
    from kipu.cli.runtime_settings import open_cli_runtime

    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(invocation.manager(create=True))
        runtime = open_cli_runtime(invocation, manager, max_turns=concurrency, max_agents=max(128, 2 * concurrency))
        runtime.elsewhere.tell = partial(_say_elsewhere, invocation)
        async with runtime:
            health = Health(runtime, capacity=concurrency)
            if place is not None:
                await stack.enter_async_context(health.served(*place))
            described = manager.store.describe()
            _say_ready(
                invocation,
                store=described.url,
                concurrency=concurrency,
                notes=(*described.notes, *_local_notes(invocation)),
            )
            with _signalled() as wishes:
                moved = await _until_end(manager.store, asked=wishes[0])
                health.is_draining = True
                await _drain(runtime, drain_s if moved is None else 0.0, at_once=wishes[1])
        if moved is not None:
            raise moved
    if invocation.json:
        invocation.output.emit({"event": "ended"})


async def _until_end(store: EventStore, *, asked: asyncio.Event) -> KipuError | None:
    """Wait until somebody asks for the end, or until there is nothing left to do here: then return why."""
    from kipu.stores.store_mark import refusal

    while not asked.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), _LOOK_S)
        with suppress(KipuError):
            mark = await store.mark()
            if mark is not None and mark.state == "moved":
                return refusal(mark, own=None, store=store.describe().url)
    return None


async def _drain(runtime: Runtime, drain_s: float, *, at_once: asyncio.Event) -> None:
    """Let running turns end for a while; whatever runs then is handed over, its lease given back."""
    draining = asyncio.ensure_future(runtime.worker.drain(timeout_s=drain_s))
    hurried = asyncio.ensure_future(at_once.wait())
    await asyncio.wait([draining, hurried], return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    if not draining.done():
        draining.cancel()
        await runtime.worker.drain(timeout_s=0.0)
    await asyncio.gather(draining, hurried, return_exceptions=True)


def _say_elsewhere(invocation: Invocation, session_id: str, place: Place) -> None:
    if invocation.json:
        invocation.output.emit({"event": "elsewhere", "session_id": session_id, "bound_to": place.name})
    else:
        invocation.output.say(
            f"session {session_id} has work, and its files are on {place.name}: left to a worker there"
        )


def _local_notes(invocation: Invocation) -> tuple[str, ...]:
    from kipu.store_parts import local_notes
    from kipu.store_url import StoreUrl

    return local_notes(StoreUrl.parse(invocation.store_url), archive=invocation.settings["archive"])


def _say_ready(invocation: Invocation, *, store: str, concurrency: int, notes: tuple[str, ...]) -> None:
    for note in notes:
        invocation.output.say(note)
    if invocation.json:
        invocation.output.emit({"event": "ready", "store": store, "concurrency": concurrency})
    else:
        invocation.output.say(f"works on {store}, {concurrency} turns at once; SIGTERM ends it in order")


@contextmanager
def _signalled() -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Give two events: set by the first signal to end, and by the second."""
    first, second = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear() -> None:
        (second if first.is_set() else first).set()

    for each in _SIGNALS:
        loop.add_signal_handler(each, hear)
    try:
        yield first, second
    finally:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    number = number_in(port)
    if not colon or number is None or number > 65_535:
        raise InputError(reason=f"--health is HOST:PORT, such as 127.0.0.1:8080, not {text!r}")
    return host.strip("[]") or "127.0.0.1", number
