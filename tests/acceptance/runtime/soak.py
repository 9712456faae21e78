"""A soak: many senders, all policies, people who stop, cancel and decide, and workers that are killed all the while."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kipu.errors import (
    ApprovalNotFoundError,
    ConflictError,
    MessageRejectedError,
    SessionBusyError,
    StoreUnavailableError,
)
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.head import Head
from kipu.runtime.approvals import ApprovalDesk
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.control import StopMode
from kipu.runtime.messages.inbound import InboundEvent
from kipu.session.busy import MODES, ON_FULL
from kipu.wiring import open_manager
from tests.acceptance.runtime import soak_worker
from tests.acceptance.runtime.soak_check import SoakLog, windows_refused
from tests.acceptance.runtime.soak_worker import Book

T = TypeVar("T")
STUCK_S = 120.0  # nothing is appended anywhere for so long: it will not end


@dataclass(frozen=True)
class SoakSize:
    """How much of what."""

    messages: int
    sessions: int
    senders: int
    workers: int = 1
    kill_every_s: float = 1.0
    kills_after_s: float = 2.0  # once everything is sent: a backlog is worked off under fire for so long
    pause_s: float = 0.0  # of each sender between two messages, on average
    modes: Sequence[str] = (*MODES, "followup", "steer")
    rarities: float = 1.0  # how many messages have a cap or a time to live, of those that are usual here
    plans: Sequence[str] = (
        "",
        "",
        "",
        "read",
        "write",
        "read,look",
        "write,send",
        "danger",
        "read,write,danger",
        "danger,danger",
    )
    lease_wait_s: float = 0.0  # where nobody can say that a holder is dead, its lease has to end
    worker_options: Mapping[str, Any] = field(default_factory=lambda: {"sweep_s": 0.3, "max_turns": 32})


@dataclass
class Outcome:
    """What happened."""

    acknowledged: dict[tuple[str, int], str] = field(default_factory=dict)
    cancelled: set[tuple[str, int]] = field(default_factory=set)
    refused: int = 0
    stops: int = 0
    decisions: int = 0
    kills: int = 0
    problems: list[str] = field(default_factory=list)
    turns: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)


class Soak:
    """Run one over a store."""

    def __init__(self, url: str, book: Path, size: SoakSize, *, seed: int) -> None:
        self._url, self._book, self._size = url, Book(book), size
        self._book_path, self._seed = book, seed
        self._chance = random.Random(seed)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.acceptance.runtime.soak_worker"])
        self._workers: list[Any] = []
        self._sent = 0
        self.outcome = Outcome()

    async def run(self) -> Outcome:
        """Send everything, kill on the way, let it come to its end, and judge what the logs say."""
        async with await open_manager(self._url) as manager:
            desk = ApprovalDesk(manager)
            bus = MessageBus(manager, approvals=desk)
            people = asyncio.ensure_future(self._decide_often(desk, bus))
            killer = asyncio.ensure_future(self._trouble())
            try:
                await asyncio.gather(*(self._send_all(bus, f"sender-{n}") for n in range(self._size.senders)))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._size.kills_after_s):
                        await self._until_quiet(manager, kills=True)
                await self._end_trouble(killer)
                await self._until_quiet(manager, kills=False)
            finally:
                for task in (people, killer):
                    task.cancel()
                await asyncio.gather(people, killer, return_exceptions=True)
                await self._end_workers()
            await self._judge(manager)
        return self.outcome

    # ---- senders and other people ------------------------------------------------------------------------------------

    async def _send_all(self, bus: MessageBus, sender: str) -> None:
        while self._sent < self._size.messages:
            self._sent += 1
            number = self._sent
            message = self._message(number, sender)
            await self._send(bus, message)
            if self._size.pause_s:
                await asyncio.sleep(self._chance.random() * 2 * self._size.pause_s)

    async def _send(self, bus: MessageBus, message: InboundEvent) -> None:
        try:
            receipt = await surely(lambda: bus.publish(message))
            if self._chance.random() < 0.03:
                again = await surely(lambda: bus.publish(message))
                if (again.seq, again.duplicate) != (receipt.seq, True):
                    self.outcome.problems.append(f"{message.source_message_id} was stored twice")
        except MessageRejectedError:
            self.outcome.refused += 1
            return
        where = (receipt.session_id, receipt.seq)
        self.outcome.acknowledged[where] = str(message.source_message_id)
        if self._chance.random() < 0.05:
            try:
                await bus.control.cancel(*where)
                self.outcome.cancelled.add(where)
            except (ConflictError, StoreUnavailableError):
                pass  # a turn has it, or it was settled; or nobody knows
        if self._chance.random() < 0.03:
            mode: StopMode = self._chance.choice(["stop", "interrupt", "rollback", "rollback_forced"])
            with suppress(StoreUnavailableError):
                self.outcome.stops += await bus.control.stop(receipt.session_id, mode) is not None

    def _message(self, number: int, sender: str) -> InboundEvent:
        chance = self._chance
        mode = chance.choice(self._size.modes)
        policy: dict[str, Any] = {"mode": mode}
        if mode == "collect":
            policy |= {"debounce_ms": chance.randrange(200), "max_wait_ms": chance.randrange(500)}
        if chance.random() < 0.2 * self._size.rarities:
            policy |= {"cap": chance.randrange(1, 6), "on_full": chance.choice(ON_FULL)}
        if chance.random() < 0.1 * self._size.rarities:
            policy["ttl_ms"] = chance.randrange(50, 3000)
        return InboundEvent(
            channel="soak",
            chat_id=str(chance.randrange(self._size.sessions)),
            sender_id=sender,
            content=f"message {number} plan={chance.choice(self._size.plans)}",
            source_message_id=f"m-{number}",
            policy=policy,
        )

    async def _decide_often(self, desk: ApprovalDesk, bus: MessageBus) -> None:
        while True:
            for approval in await surely(desk.pending):
                try:
                    if self._chance.random() < 0.7:
                        await desk.approve(approval.approval_id, session_id=approval.session_id)
                    elif self._chance.random() < 0.8:
                        await desk.deny(approval.approval_id, session_id=approval.session_id)
                    else:
                        await bus.control.stop(approval.session_id)
                    self.outcome.decisions += 1
                except (ApprovalNotFoundError, StoreUnavailableError):
                    pass  # its turn ended meanwhile; or it is looked at again
            await asyncio.sleep(0.5)

    # ---- workers -----------------------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        seed = self._chance.randrange(10**9)
        arguments = (self._url, str(self._book_path), seed, dict(self._size.worker_options))
        worker = self._context.Process(target=soak_worker.main, args=arguments, daemon=True)
        worker.start()
        self._workers.append(worker)

    async def _trouble(self) -> None:
        """Kill one worker after the other; start a new one each time."""
        while True:
            while len(self._workers) < self._size.workers:
                self._start_worker()
            await self._begun()
            await asyncio.sleep(self._size.kill_every_s)
            victim = self._workers.pop(self._chance.randrange(len(self._workers)))
            if victim.exitcode is not None:
                self.outcome.problems.append(f"a worker ended by itself with {victim.exitcode}")
            victim.kill()
            await asyncio.to_thread(victim.join)
            self.outcome.kills += 1

    async def _end_trouble(self, trouble: asyncio.Future[None]) -> None:
        """Let no more come: from now on all has to come to its end."""
        trouble.cancel()
        with suppress(asyncio.CancelledError):
            await trouble

    async def _begun(self) -> None:
        """Wait until every worker has begun: a busy machine must not leave them no time at all."""
        async with asyncio.timeout(60):
            while not all(self._book.has_begun(worker.pid) for worker in self._workers):  # noqa: ASYNC110 - another process tells
                await asyncio.sleep(0.02)

    async def _end_workers(self) -> None:
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            await asyncio.to_thread(worker.join, 60)
            if worker.exitcode not in (0, -signal.SIGKILL):
                self.outcome.problems.append(f"a worker ended with {worker.exitcode}")

    async def _until_quiet(self, manager: SessionManager, *, kills: bool) -> None:
        """Wait until nothing waits and no turn is open; with `kills` only until little is left."""
        while not kills and len(self._workers) < self._size.workers:
            self._start_worker()
        loop = asyncio.get_running_loop()
        moved_s, before = loop.time(), -1
        while True:
            heads = await surely(lambda: heads_of(manager))
            busy = [head for head in heads if head.waiting or head.open_turn]
            total = sum(head.last_seq for head in heads)
            if total != before:
                moved_s, before = loop.time(), total
            if len(busy) <= (self._size.sessions // 20 if kills else 0):
                return
            if loop.time() - moved_s > STUCK_S:
                self.outcome.problems.append(f"stuck: {[_busy(head) for head in busy[:5]]}")
                return
            await asyncio.sleep(0.3)

    # ---- the judgement -----------------------------------------------------------------------------------------------

    async def _judge(self, manager: SessionManager) -> None:
        lines = self._book.lines()
        ran = Counter(words[3] for words in lines if words[0] == "ran")
        found = self.outcome.problems
        found += [f"a window was refused: {words[1:]}" for words in lines if words[0] == "refused"]
        known: set[tuple[str, int]] = set()
        async for head in manager.heads():
            session = await manager.open(head.session_id)
            log = SoakLog(await session.get_full_history())
            log.check_effects(ran)
            if await self._is_free(session):
                await session.lock.release()
            else:
                log.say(f"the lease is still held by {head.lease_owner}")
            found += [f"{head.key}: {problem}" for problem in [*log.problems, *await windows_refused(session)]]
            known |= {(head.session_id, seq) for seq in log.messages}
            self._count(log)
            found += [
                f"{head.key}: cancelled message {seq} was settled {log.settled.get(seq)}"
                for session_id, seq in self.outcome.cancelled
                if session_id == head.session_id and log.settled.get(seq) != ["cancelled"]
            ]
        found += [f"{where} was acknowledged and lost" for where in self.outcome.acknowledged.keys() - known]
        found += [f"{where} is nobody's message" for where in known - self.outcome.acknowledged.keys()]

    async def _is_free(self, session: Session) -> bool:
        """Take the session's lock; of a dead owner's nothing is left to wait for, unless nobody can know of it."""
        if not self._size.lease_wait_s:
            return await session.lock.try_acquire()
        with suppress(SessionBusyError):
            await session.lock.acquire(wait_s=self._size.lease_wait_s)
            return True
        return False

    def _count(self, log: SoakLog) -> None:
        self.outcome.turns.update(turn.finished.outcome if turn.finished else "open" for turn in log.turns)
        self.outcome.turns["undone"] += sum(turn.undone for turn in log.turns)
        self.outcome.settled.update(reason for reasons in log.settled.values() for reason in reasons)


async def surely(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until the store is there: what a sender does who has no acknowledgement yet."""
    while True:
        try:
            return await ask()
        except StoreUnavailableError:
            await asyncio.sleep(0.1)


async def heads_of(manager: SessionManager) -> list[Head]:
    """Return every head."""
    return [head async for head in manager.heads()]


def _busy(head: Head) -> dict[str, Any]:
    return {
        "key": head.key,
        "waiting": head.waiting,
        "open_turn": head.open_turn,
        "parked": head.parked,
        "due_at": head.due_at,
        "lease": head.lease_owner,
    }
