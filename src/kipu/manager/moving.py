"""A store that is in use moved to another place: followed until the end of its use there is a matter of seconds (C22).

Both stores say by a mark what is under way, and the marks say what a killed move has to do next. The source is `leaving`, then
`closed`, then `moved`; the target is `filling` all the time, and loses that mark last of all. So one of the two can be written
at any moment but between `closed` and the end, and never both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from kipu.errors import InputError, KipuError, MoveRunningError, MoveStoppedError, StoreBeingFilledError
from kipu.manager.copying import heads_of, tombstones_of
from kipu.manager.store_tail import StoreTail
from kipu.ports.head import Head
from kipu.ports.owner import Liveness
from kipu.ports.store import EventStore, MarkState, SessionQuery, StoreMark
from kipu.stores.store_mark import refusal

Begun = Literal["begun", "finished", "over"]
_FEW_SESSIONS = 16  # so many that have changed are copied in a moment
_MOST_ROUNDS = 20
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class CutOver:
    """How the end of a move went. In `pause_s` neither store took anything; `open_turns` were cut by it and go on in the target."""

    pause_s: float
    open_turns: int
    tail_sessions: int


class StoreMove:
    """Move `source` to `target`, which are named by URLs without passwords."""

    def __init__(
        self,
        source: EventStore,
        target: EventStore,
        *,
        names: tuple[str, str],
        tail: StoreTail,
        owner: str,
        liveness: Liveness,
        move: str,
        now: Callable[[], str],
        beside: Callable[[], Awaitable[None]],
    ) -> None:
        self._source = source
        self._target = target
        self._names = names
        self._tail = tail
        self._owner = owner
        self._liveness = liveness
        self._move = move  # the id of a move that is new
        self._now = now
        self._beside = beside  # carries what stands beside the sessions: memory

    # ---- beginning ---------------------------------------------------------------------------------------------------

    async def begin(self) -> Begun:
        """Mark the target, or go on with what an earlier run of the same move has marked.

        Return `finished` where that had only the target left to open, and `over` where everything was done already.
        Raises: MoveRunningError, InputError, StoreMovedError and StoreBeingFilledError of another move.
        """
        here, there = await self._source.mark(), await self._target.mark()
        if here is not None and here.state == "filling":
            raise StoreBeingFilledError(store=self._names[0], other=here.other)
        if here is not None and here.other != self._names[1]:
            raise refusal(here, own=None, store=self._names[0], claims=True) or InputError(reason="it moves elsewhere")
        if here is not None and here.state == "moved":
            if there is None or there.move != here.move:
                return "over"
            await self._target.set_mark(None, expected=there)
            return "finished"
        self._refuse_other(there)
        if there is None or there.state == "moved":
            await self._refuse_strangers()
        else:
            self._move = there.move
        filling = self._mark("filling", self._names[0])
        await self._target.set_mark(filling, expected=there)
        if await self._source.mark() == filling:
            # One store under two names, by a link or another spelling: filled from itself, nobody could write to it again.
            await self._target.set_mark(there, expected=filling)
            raise InputError(reason=f"both stores are the same: {self._names[0]} and {self._names[1]}")
        if here is not None:
            await self._source.set_mark(None, expected=here)  # a cut-over that was stopped begins anew
        return "begun"

    def _mark(self, state: MarkState, other: str) -> StoreMark:
        return StoreMark(state, self._move, other, holder=self._owner, since=self._now())

    def _refuse_other(self, there: StoreMark | None) -> None:
        if there is None or (there.state == "moved" and there.other == self._names[0]):
            return  # it is free, or what is to be moved came from there and goes back
        if there.state != "filling" or there.other != self._names[0]:
            refused = refusal(there, own=None, store=self._names[1], claims=True)
            raise refused or InputError(reason="the target moves elsewhere")
        if there.holder not in {"", self._owner} and not self._liveness.is_dead(there.holder):
            raise MoveRunningError(store=self._names[0], other=self._names[1], holder=there.holder)

    async def _refuse_strangers(self) -> None:
        """Raise where the target has sessions of its own: they would be nobody's while it is filled. Raises: InputError."""
        erased: set[str] | None = None
        async for head in heads_of(self._target):
            session_id = head.session_id
            if await self._source.head(session_id) is not None:
                continue
            if erased is None:
                erased = {each.session_id async for page in tombstones_of(self._source) for each in page}
            if session_id not in erased:
                reason = f"{self._names[1]} has sessions of its own ({session_id}); move to an empty place, or copy"
                raise InputError(reason=f"{reason} without --follow and --cut-over")

    # ---- following ---------------------------------------------------------------------------------------------------

    async def copy(self) -> None:
        """Copy everything once, and hear what changes from before that on."""
        self._tail.begin()
        await self._tail.look_at_all()

    async def keep_up(self, *, every_s: float, told: Callable[[int], None] | None = None) -> None:
        """Copy what changes, until this is cancelled; `told` is how many sessions were copied each time."""
        while True:
            await asyncio.sleep(every_s)
            copied = await self._tail.catch_up()
            if copied and told is not None:
                told(copied)

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def cut_over(self, *, wait_s: float, leave_out: bool = False) -> CutOver:
        """End the use of the source: no more turns there, then nothing; copy the rest, compare, and open the target.

        Turns that run get `wait_s` to end; the others are cut and go on in the target, as after a crash. Where anything differs,
        or this is interrupted before the source says `moved`, the source is in use as before. Raises: MoveStoppedError.
        """
        await self._catch_up(leave_out=leave_out)
        said = leaving = self._mark("leaving", self._names[1])
        try:
            await self._source.set_mark(leaving)  # cancelled, it may stand all the same
            await self._wait_for_turns(wait_s)
            await self._catch_up(leave_out=leave_out)
            said = replace(leaving, state="closed")
            began_s = time.monotonic()
            await self._source.set_mark(said, expected=leaving)
            open_turns = len([head async for head in self._held()])
            tail = await self._finish(leave_out=leave_out)
            moved = replace(said, state="moved")
            await self._source.set_mark(moved, expected=said)
            said = moved
        except BaseException as error:
            await asyncio.shield(self._take_back())
            if isinstance(error, KipuError) and not isinstance(error, MoveStoppedError):
                raise MoveStoppedError(store=self._names[0], other=self._names[1], reason=str(error)) from error
            raise
        await asyncio.shield(self._target.set_mark(None, expected=await self._target.mark()))
        return CutOver(time.monotonic() - began_s, open_turns, tail)

    async def _catch_up(self, *, leave_out: bool) -> None:
        """Follow until little is left. Raises: MoveStoppedError where a session cannot be copied."""
        for _ in range(_MOST_ROUNDS):
            if await self._tail.catch_up() <= _FEW_SESSIONS:
                break
        await self._beside()
        self._require_whole(leave_out=leave_out)

    def _require_whole(self, *, leave_out: bool) -> None:
        skipped = self._tail.report.skipped
        if skipped and not leave_out:
            reason = (
                f"session {skipped[0].session_id} cannot be copied: {skipped[0].reason} (--leave-out moves the others)"
            )
            raise self._stopped(reason)

    def _stopped(self, reason: str) -> MoveStoppedError:
        return MoveStoppedError(store=self._names[0], other=self._names[1], reason=reason)

    async def _wait_for_turns(self, wait_s: float) -> None:
        deadline_s = time.monotonic() + wait_s
        while time.monotonic() < deadline_s:
            if not [head async for head in self._held()]:
                return
            await self._tail.catch_up()
            await asyncio.sleep(_LOOK_S)

    async def _held(self) -> AsyncIterator[Head]:
        """Yield the sessions of the source with a turn that somebody runs now."""
        query, now = SessionQuery(open_turn=True, limit=500), self._now()
        while True:
            page = await self._source.list(query)
            for head in page.items:
                holder, until = head.lease_owner, head.lease_until
                if holder and until and until > now and not self._liveness.is_dead(holder):
                    yield head
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    async def _finish(self, *, leave_out: bool) -> int:
        """Copy the rest of a source that nobody writes to any more, and compare."""
        tail = await self._tail.look_at_all()
        await self._tail.look_at_keys()
        await self._beside()
        self._require_whole(leave_out=leave_out)
        differs = await self._tail.first_difference()
        if differs is not None:
            raise self._stopped(differs)
        return tail

    async def _take_back(self) -> None:
        """Let the source be used again, whatever of the cut-over was done."""
        with suppress(KipuError):  # a source that cannot be reached now keeps its mark: `cancel` takes it away
            mark = await self._source.mark()
            if mark is not None and mark.move == self._move and mark.state != "moved":
                await self._source.set_mark(None, expected=mark)


async def cancel_move(source: EventStore, target: EventStore | None, *, names: tuple[str, str]) -> bool:
    """Let the source be used as before and the target wait; return False where the source has no mark.

    Without the target, which cannot be reached, that is possible until the source says `moved`.
    Raises: InputError: it has moved, and the target may have been used since.
    """
    here, there = await source.mark(), None if target is None else await target.mark()
    if here is not None and here.state == "filling" and here == there:  # one store under two names
        await source.set_mark(None, expected=here)
        return True
    if here is not None and here.state == "moved" and (there is None or there.move != here.move):
        raise InputError(
            reason=f"{names[0]} has moved to {names[1]}, which is in use. Move it back the other way round"
        )
    if target is not None and there is not None and there.state == "filling":
        await target.set_mark(replace(there, holder=""), expected=there)
    if here is None or here.state == "filling":
        return False
    await source.set_mark(None, expected=here)
    return True
