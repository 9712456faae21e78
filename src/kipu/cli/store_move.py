"""`kipu copy --follow`, `--cut-over` and `--cancel`: a store that is in use moved to another place."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kipu.cli.copying import open_both, tell_left_out
from kipu.cli.invocation import Invocation
from kipu.errors import InputError, KipuError
from kipu.manager.copying import CopyProgress
from kipu.manager.moving import CutOver, StoreMove, cancel_move
from kipu.manager.store_tail import StoreTail
from kipu.stores.host import SystemClock, SystemEntropy, SystemLiveness, this_process_owner
from kipu.stores.times import iso_from_us

if TYPE_CHECKING:
    from kipu.ports.store import EventStore

_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class MoveWishes:
    """What the command line asked for."""

    cut_over: bool
    cancel: bool
    wait_s: float
    leave_out: bool
    decrypt: bool

    def require_alone(self, *, sessions: list[str] | None, verify: bool, follow: bool) -> None:
        """Raise where options were named that mean nothing together. Raises: InputError."""
        if sessions:
            raise InputError(reason="--session copies some sessions; a store that moves is moved whole")
        if not verify:
            raise InputError(reason="a move is always verified: leave --no-verify out")
        if self.cancel and (follow or self.cut_over):
            raise InputError(reason="--cancel stands alone")


async def move(invocation: Invocation, source: str, *, target: str, wishes: MoveWishes) -> bool:
    """Do what was asked for; return True where the target is not all that the source once was."""
    async with AsyncExitStack() as stack:
        if wishes.cancel:
            await _cancel(invocation, stack, source=source, target=target)
            return False
        stores = await open_both(invocation, stack, source=source, target=target, decrypt=wishes.decrypt)
        return await _move(invocation, stack, stores, urls=(source, target), wishes=wishes)


def shown_name(url: str) -> str:
    """Return the URL by which the other end, and every user of a moved store, is to find it: whole, and without a password."""
    from kipu.store_parts import shown_url
    from kipu.store_url import StoreUrl

    parsed = StoreUrl.parse(url)
    if parsed.is_on_server or parsed.kind == "memory":
        return shown_url(parsed)
    return f"{parsed.kind}:///{parsed.path.absolute()}"


async def _cancel(invocation: Invocation, stack: AsyncExitStack, *, source: str, target: str) -> None:
    """Let the source be used again, also where the target cannot be opened now."""
    from kipu.cli.place import is_there, require_place
    from kipu.wiring import open_store

    names = shown_name(source), shown_name(target)
    require_place(source, create=False)
    begins = await open_store(source, find_keys=invocation.find_keys)
    stack.push_async_callback(begins.close)
    ends: EventStore | None = None
    mark = await begins.mark()
    try:
        if is_there(target):
            ends = await open_store(target, find_keys=invocation.find_keys)
            stack.push_async_callback(ends.close)
    except KipuError as error:
        if mark is None or mark.state == "moved":
            raise
        invocation.output.say(f"{names[1]} cannot be opened now, and stays as it is: {error}", style="yellow")
    was_marked = await cancel_move(begins, ends, names=names)
    if invocation.json:
        invocation.output.emit({"event": "cancelled", "was_marked": was_marked})
    elif was_marked:
        invocation.output.say(f"{names[0]} is in use as before; {names[1]} keeps what was copied, to go on with")
    else:
        invocation.output.say(f"{names[0]} was in use all the time")


async def _move(
    invocation: Invocation,
    stack: AsyncExitStack,
    stores: tuple[EventStore, EventStore],
    *,
    urls: tuple[str, str],
    wishes: MoveWishes,
) -> bool:
    from kipu.cli.progress import progress_bar
    from kipu.memory.moving import mirror_memory
    from kipu.wiring import memory_store_of

    owner, clock = this_process_owner("copy"), SystemClock()
    memories = [memory_store_of(url, opened) for url, opened in zip(urls, stores, strict=True)]
    for memory in memories:
        stack.push_async_callback(memory.close)

    async def carry_memory() -> None:
        await mirror_memory(memories[0], memories[1])

    with progress_bar(invocation.output, "copying", unit="events") as bar:

        def moved(progress: CopyProgress) -> None:
            bar.expect(progress.events_total)
            bar.done(progress.events_done)

        tail = StoreTail(stores[0], stores[1], owner=owner, progress=moved)
        stack.push_async_callback(tail.end)
        work = StoreMove(
            stores[0],
            stores[1],
            names=(shown_name(urls[0]), shown_name(urls[1])),
            tail=tail,
            owner=owner,
            liveness=SystemLiveness(),
            move=SystemEntropy().random_bytes(8).hex(),
            now=lambda: iso_from_us(clock.now_us()),
            beside=carry_memory,
        )
        begun = await work.begin()
        if begun == "begun":
            await work.copy()
            await carry_memory()
    if begun != "begun":
        _tell_over(invocation, shown_name(urls[1]), finished=begun == "finished")
        return False
    _tell_copied(invocation, tail)
    if not wishes.cut_over:
        await _follow(invocation, work, tail=tail)
        return bool(tail.report.skipped or tail.report.lost)
    done = await work.cut_over(wait_s=wishes.wait_s, leave_out=wishes.leave_out)
    _tell_moved(invocation, done, tail=tail, target=shown_name(urls[1]))
    return bool(tail.report.skipped or tail.report.lost)


async def _follow(invocation: Invocation, work: StoreMove, *, tail: StoreTail) -> None:
    def told(sessions: int) -> None:
        if invocation.json:
            invocation.output.emit({"event": "followed", "sessions": sessions, "behind": tail.behind})

    if not invocation.json:
        invocation.output.say("following what changes; Ctrl-C ends that, --cut-over makes TO the store")
    with suppress(asyncio.CancelledError):
        await work.keep_up(every_s=_EVERY_S, told=told)


def _tell_copied(invocation: Invocation, tail: StoreTail) -> None:
    report = tail.report
    tell_left_out(invocation, report)
    if invocation.json:
        invocation.output.emit({"event": "copied", **asdict(report)})
    else:
        invocation.output.say(f"{report.sessions} sessions are the same in both stores; added {report.events} events")


def _tell_moved(invocation: Invocation, done: CutOver, *, tail: StoreTail, target: str) -> None:
    report = tail.report
    if invocation.json:
        invocation.output.emit({"event": "moved", "to": target, **asdict(done), **asdict(report)})
        return
    cut = f"; {done.open_turns} turns were cut and go on there" if done.open_turns else ""
    invocation.output.say(
        f"moved to {target}: {report.sessions} sessions, verified event by event; for {done.pause_s:.1f} s neither store took"
        f" anything{cut}. Start workers with --store {target}"
    )


def _tell_over(invocation: Invocation, target: str, *, finished: bool) -> None:
    if invocation.json:
        invocation.output.emit({"event": "moved", "to": target, "finished": finished})
    else:
        how = "the move is finished now" if finished else "everything has been moved before"
        invocation.output.say(f"{how}: {target} is the store")
