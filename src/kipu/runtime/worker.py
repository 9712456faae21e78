"""The worker: takes sessions that have work, one turn at a time each, many sessions side by side (A39-A41, C14)."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from kipu.errors import (
    KipuError,
    LeaseLostError,
    SessionNotFoundError,
    StoreBeingFilledError,
    StoreClosedError,
    StoreError,
    StoreMovedError,
)
from kipu.events.event import utc_text_us
from kipu.events.turn import StopRequestedEvent
from kipu.manager.access import owner_of
from kipu.manager.loader import item_of
from kipu.manager.manager import SessionManager
from kipu.ports.head import Head
from kipu.ports.store import StoredEvent
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.turns.ancestry import bond_of, tell_parents, why_on
from kipu.runtime.turns.elsewhere import Elsewhere
from kipu.runtime.turns.quarantine import Quarantine
from kipu.runtime.turns.session_turns import SessionTurns
from kipu.runtime.turns.turn_control import HANDOVER, TurnControl
from kipu.runtime.turns.turn_run import read_story

logger = logging.getLogger(__name__)

WAKING_TYPES = frozenset({"user_message", "approval_decision", "stop_requested", "message_settled"})
RETRY_S = 0.2  # when somebody else holds the session; most turns are short
RETRIES = 3  # each after twice as long; then the sweep finds it when it is free
FAULT_RETRY_S = 2.0


class _Running:
    """A session that is being served: its task, its stop switch, and whether something came meanwhile."""

    __slots__ = ("again", "control", "task")

    def __init__(self) -> None:
        self.control = TurnControl()
        self.task: asyncio.Task[None] | None = None
        self.again = False


class Worker:
    """Run the turns of a store's sessions. Use it as `async with`; `wake` is what makes it start at once.

    - One session has one turn at a time, in every process together: the lease says so (A38, C3).
    - At most `max_turns` run at once; sessions that wait get their turn in the order they came, one turn each (fairness).
    - What other processes append is seen by following the store; what was missed, by a sweep every `sweep_s`.
    - `accepts` bounds which sessions it serves, and `elsewhere` those whose files another machine has.
    """

    def __init__(
        self,
        manager: SessionManager,
        orchestrator: Orchestrator,
        *,
        max_turns: int = 64,
        sweep_s: float = 1.0,
        accepts: Callable[[str], bool] | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._manager = manager
        self._orchestrator = orchestrator
        self._max_turns = max_turns
        self._sweep_s = sweep_s
        self._accepts = accepts or (lambda _session_id: True)
        self._elsewhere = elsewhere
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._running: dict[str, _Running] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._quarantine = Quarantine()
        self._is_draining = False
        self._held: dict[str, int] = {}  # sessions that somebody else has, and how often that was seen
        self.served_count = 0  # turns that were run here, or a part of them, and times that serving a session failed
        self.failed_count = 0
        self.claimed_count = 0  # sessions that were taken, that somebody else had, and that were lost to somebody
        self.held_count = 0
        self.fenced_count = 0
        self.due_count = 0  # sessions with work that nobody had at the last look
        self._idle = asyncio.Event()
        self._idle.set()

    # ---- beginning and ending --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._watchers = [asyncio.ensure_future(self._follow()), asyncio.ensure_future(self._sweep_often())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain(timeout_s=0.0)

    async def drain(self, *, timeout_s: float) -> None:
        """Begin no turn any more, give those that run `timeout_s` to end, and leave the others to be taken over."""
        self._is_draining = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._ready.clear()
        for watcher in self._watchers:
            watcher.cancel()
        tasks = [running.task for running in self._running.values() if running.task is not None]
        if tasks and timeout_s > 0:
            await asyncio.wait(tasks, timeout=timeout_s)
        for running in list(self._running.values()):
            running.control.stop(HANDOVER)
        await asyncio.gather(*tasks, *self._watchers, return_exceptions=True)
        self._watchers.clear()

    async def until_idle(self) -> None:
        """Return when nothing runs or is ready here; what waits for its time or for a person does not count."""
        await self._idle.wait()

    @property
    def waiting_count(self) -> int:
        """Return how many sessions wait here for a free place."""
        return len(self._ready)

    @property
    def running(self) -> frozenset[str]:
        """Return the sessions whose turn runs here."""
        return frozenset(self._running)

    # ---- who is next -----------------------------------------------------------------------------------------------

    def wake(self, session_id: str) -> None:
        """Look at the session now: something was appended to it."""
        if self._is_draining or not self._accepts(session_id):
            return
        timer = self._timers.pop(session_id, None)
        if timer is not None:
            timer.cancel()
        running = self._running.get(session_id)
        if running is not None:
            running.again = True
            return
        self._ready.setdefault(session_id)
        self._idle.clear()
        self._start_ready()

    def stop(self, session_id: str, *, turn_id: str | None = None, mode: str = "stop") -> bool:
        """End the session's turn if it runs here; the wish has to be in the log already."""
        running = self._running.get(session_id)
        if running is None or running.task is None:
            return False
        if turn_id is not None and turn_id != running.control.turn_id:
            return False  # about a turn that has ended; one that begins finds the wish in its own story
        running.control.stop(mode)
        return True

    def _start_ready(self) -> None:
        while self._ready and len(self._running) < self._max_turns:
            session_id, _ = self._ready.popitem(last=False)
            running = self._running[session_id] = _Running()
            running.task = asyncio.ensure_future(self._serve(session_id, running))
            running.task.add_done_callback(partial(self._served, session_id))

    def _served(self, session_id: str, task: asyncio.Task[None]) -> None:
        running = self._running.pop(session_id)
        self.served_count += running.control.turn_id is not None
        if not task.cancelled() and task.exception() is not None:
            self.failed_count += 1
            logger.error("serving session %s failed", session_id, exc_info=task.exception())
            self._later(session_id, FAULT_RETRY_S)
        if running.again:
            self.wake(session_id)
        self._start_ready()
        if not self._running and not self._ready:
            self._idle.set()

    def _later(self, session_id: str, seconds: float) -> None:
        if self._is_draining or session_id in self._timers:
            return
        self._timers[session_id] = asyncio.get_running_loop().call_later(max(seconds, 0.0), self._due, session_id)

    def _due(self, session_id: str) -> None:
        self._timers.pop(session_id, None)
        self.wake(session_id)

    # ---- one session -----------------------------------------------------------------------------------------------

    async def _serve(self, session_id: str, running: _Running) -> None:
        """Run one turn of the session if it has work, and come back to it when there is more."""
        held_before = self._held.pop(session_id, 0)
        try:
            head = await self._manager.store.head(session_id)
            if head is None or head.due_at is None or await self._is_elsewhere(head):
                return
            owner = owner_of(head)
            session = await self._manager.open(session_id, principal=owner)
            if not await session.lock.try_acquire():
                self._look_again(session_id, before=held_before)
                return
            self.claimed_count += 1
            try:
                turns = SessionTurns(
                    self._manager,
                    self._orchestrator,
                    session=session,
                    principal=owner,
                    quarantine=self._quarantine,
                )
                due_us = await turns.run_next(running.control)
            finally:
                await session.lock.release()
        except SessionNotFoundError:
            return
        except (StoreMovedError, StoreBeingFilledError) as error:
            logger.info("session %s: %s", session_id, error)  # it may come back, and whoever moves it says what goes on
            self._later(session_id, FAULT_RETRY_S)
            return
        except (LeaseLostError, StoreError) as error:
            self.fenced_count += isinstance(error, LeaseLostError)
            if not isinstance(error, StoreClosedError):
                logger.warning("session %s: %s", session_id, error)
                self._later(session_id, FAULT_RETRY_S)
            return
        if due_us is not None:
            wait_s = (due_us - self._manager.now_us()) / 1_000_000
            if wait_s <= 0:
                running.again = True
            else:
                self._later(session_id, wait_s)

    def _look_again(self, session_id: str, *, before: int) -> None:
        """Come back soon to a session that somebody else has; one that is kept for long is left to the sweep."""
        self.held_count += 1
        if before < RETRIES:
            self._held[session_id] = before + 1
            self._later(session_id, RETRY_S * 2**before)

    # ---- news ------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Hear what is appended, also after a moment in which the store could not be followed."""
        while True:
            events = self._manager.store.follow(types=WAKING_TYPES)
            await self._heed_stops()
            try:
                async for stored in events:
                    self._hear(stored)
            except StoreClosedError:
                return
            except KipuError as error:
                logger.warning("the store cannot be followed; it is tried again: %s", error)
            await asyncio.sleep(self._sweep_s)

    async def _heed_stops(self) -> None:
        """Find the wishes to stop that were appended while nobody heard; all else that was missed, a sweep finds."""
        for session_id in list(self._running):
            with suppress(KipuError):
                head = await self._manager.store.head(session_id)
                if head is None or head.stop is None:
                    continue
                session = await self._manager.open(session_id, principal=owner_of(head))
                story = await read_story(session)
                if story.stop_mode is not None:
                    self.stop(session_id, turn_id=story.turn_id, mode=story.stop_mode)

    def _hear(self, stored: StoredEvent) -> None:
        running = self._running.get(stored.session_id)
        if stored.record.event_type == "stop_requested" and running is not None:
            event = item_of(stored).event
            if isinstance(event, StopRequestedEvent):
                self.stop(stored.session_id, turn_id=event.turn_id, mode=event.mode)
        self.wake(stored.session_id)

    async def sweep(self) -> None:
        """Look for work that nobody told about: what waited before, what became due, what a dead worker left."""
        now, limit = utc_text_us(self._manager.now_us()), max(self._max_turns * 4, 100)
        heads = await self._manager.store.runnable(now=now, limit=limit)
        # Where all that were found are somebody else's, there may be own ones behind them.
        while len(heads) == limit and not any([await self._takes(head) for head in heads]):
            limit *= 4
            heads = await self._manager.store.runnable(now=now, limit=limit)
        self.due_count = len(heads)
        for head in heads:
            if head.session_id not in self._running and await self._takes(head):
                self.wake(head.session_id)
            bond = bond_of(head.metadata)
            if bond is not None and self._accepts(bond.session_id) and not self._accepts(head.session_id):
                await self._wake_above(head)
        await self._orchestrator.close_erased()
        await self._orchestrator.evict_idle()

    async def _takes(self, head: Head) -> bool:
        return self._accepts(head.session_id) and not await self._is_elsewhere(head)

    async def _is_elsewhere(self, head: Head) -> bool:
        return self._elsewhere is not None and await self._elsewhere.holds(head)

    async def _wake_above(self, head: Head) -> None:
        """Let the turns go on that wait for a helper which may: who decided was ended before it could say so there."""
        session = await self._manager.open(head.session_id, principal=owner_of(head))
        await session.refresh()
        why = why_on(await read_story(session), now_us=self._manager.now_us()) if session.head.parked else None
        for session_id in await tell_parents(self._manager, session, decision=why) if why is not None else ():
            self.wake(session_id)

    async def _sweep_often(self) -> None:
        while True:
            try:
                await self.sweep()
            except StoreClosedError:
                return
            except KipuError as error:
                logger.warning("looking for work failed: %s", error)
            await asyncio.sleep(self._sweep_s)
