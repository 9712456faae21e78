"""The runtime of one process: messages in, turns run, answers out; everything around a manager, begun and ended together."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from kipu.manager.lifecycle.keeper import LifecycleKeeper
from kipu.manager.manager import SessionManager
from kipu.memory.keeper import MemoryKeeper
from kipu.memory.memory import Memory
from kipu.runtime.agent_builder import CodingAgentBuilder
from kipu.runtime.approvals import ApprovalDesk
from kipu.runtime.live.relay import LiveRelay
from kipu.runtime.live.streams import LiveStreams
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.control import ControlLane
from kipu.runtime.observer import LiveFeed
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.turns.elsewhere import ASKED_WAIT_S, WAIT_S, Elsewhere
from kipu.runtime.worker import Worker
from kipu.runtime.workspaces.copy_keeper import CopyKeeper
from kipu.runtime.workspaces.presence import Presence
from kipu.session.busy import PolicyChoice


class Runtime:
    """Hold a worker, its agents, the bus and memory. Use it as `async with`; the manager stays the caller's."""

    def __init__(
        self,
        manager: SessionManager,
        builder: CodingAgentBuilder,
        *,
        feed: LiveFeed,
        streams: LiveStreams,
        relay: LiveRelay | None = None,
        max_turns: int = 64,
        max_agents: int = 128,
        idle_s: float = 1800.0,
        accepts: Callable[[str], bool] | None = None,
        channel_policies: Mapping[str, PolicyChoice] | None = None,
        default_policy: PolicyChoice = None,
        delivering: Collection[str] = (),
        may_approve_own: bool = False,
        drain_s: float = 0.0,
        bound_wait_s: float | None = None,
        memory: Memory | None = None,
        keeper: MemoryKeeper | None = None,
        lifecycle: LifecycleKeeper | None = None,
    ) -> None:
        self.manager = manager
        self.builder = builder
        self.feed = feed
        self.streams = streams
        self.relay = relay
        self.orchestrator = Orchestrator(
            manager, builder, max_agents=max_agents, idle_s=idle_s, monotonic_s=time.monotonic
        )
        builder.orchestrator = self.orchestrator
        self.placing = builder.workspaces.placing
        self._presence = Presence(manager, self.placing, monotonic_s=time.monotonic)
        self._copies = CopyKeeper(manager, self.placing, copies=builder.workspaces.copies)
        self._is_for_all = accepts is None
        wait_s = bound_wait_s if bound_wait_s is not None else WAIT_S if self._is_for_all else ASKED_WAIT_S
        self.elsewhere = Elsewhere(self.placing, self._presence, monotonic_s=time.monotonic, wait_s=wait_s)
        self.worker = Worker(manager, self.orchestrator, max_turns=max_turns, accepts=accepts, elsewhere=self.elsewhere)
        self.desk = ApprovalDesk(manager, grants=builder.grants, wake=self.worker.wake, may_approve_own=may_approve_own)
        self.bus = MessageBus(
            manager,
            wake=self.worker.wake,
            channel_policies=channel_policies,
            default_policy=default_policy,
            delivering=delivering,
            approvals=self.desk,
            streams=streams,
        )
        self._drain_s = drain_s
        self.memory = memory
        self._keeper = keeper
        self._lifecycle = lifecycle
        self._stack = AsyncExitStack()

    @property
    def control(self) -> ControlLane:
        """Return the lane that never waits for a turn."""
        return self.bus.control

    async def __aenter__(self) -> Self:
        if self.memory is not None:
            self._stack.push_async_callback(self.memory.store.close)
        if self.relay is not None:
            self._stack.push_async_callback(self.relay.close)
            await self.relay.open()
        self._stack.push_async_callback(self.builder.close)
        self._stack.push_async_callback(self.orchestrator.close)
        if self._is_for_all:
            await self._stack.enter_async_context(self._presence)
            await self._stack.enter_async_context(self._copies)
        else:  # a command that does one thing is no worker that others count on
            await self._presence.confirm()
        await self._stack.enter_async_context(self.worker)
        if self._keeper is not None:
            await self._stack.enter_async_context(self._keeper)
        if self._lifecycle is not None:
            await self._stack.enter_async_context(self._lifecycle)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drain_s:
            await self.worker.drain(timeout_s=self._drain_s)
        await self._stack.aclose()
