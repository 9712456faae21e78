"""One agent per session: built when it is needed, kept while it is used, closed with everything it holds (B39-B43, B49)."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from kipu.errors import SessionNotFoundError
from kipu.manager.access import Verb
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.head import Head
from kipu.ports.model import ModelClient
from kipu.ports.principal import Principal
from kipu.runtime.agent import Agent

logger = logging.getLogger(__name__)

# A change of one of these makes a new agent; everything else is read when it is needed.
BUILT_FROM = ("model", "env", "tools", "limits")
_NOT_BUILT_FROM = ("saved", "seen", "place", "bound")  # of the workspace's record: where its files are kept


class AgentBuilder(Protocol):
    """Make a session's agent from its settings."""

    async def build(self, session: Session) -> Agent:
        """Return the agent. Raises: KipuError where a setting cannot be met, such as a model that is not there."""
        ...


class Orchestrator:
    """Keep at most `max_agents` agents, the least recently used going first, and none idle for longer than `idle_s`.

    One in use is never closed. Agents of different sessions are built side by side, of one session once.
    """

    def __init__(
        self,
        manager: SessionManager,
        builder: AgentBuilder,
        *,
        max_agents: int = 128,
        idle_s: float = 1800.0,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._manager = manager
        self._builder = builder
        self._max_agents = max_agents
        self._idle_s = idle_s
        self._monotonic_s = monotonic_s
        self._agents: OrderedDict[str, _Kept] = OrderedDict()
        self._locks: dict[str, _BuildLock] = {}

    async def get_or_create_agent_for_session(self, session_id: str, *, principal: Principal | None = None) -> Agent:
        """Return the session's agent, the same one each time; a missing session is made under the id that was asked for (B42).

        Raises: InvalidSessionIdError, SessionErasedError, and what the builder raises.
        """
        try:
            session = await self._manager.open(session_id, principal=principal, verb=Verb.SEND)
        except SessionNotFoundError:
            await self._manager.create_session(session_id, principal=principal)
            session = await self._manager.open(session_id, principal=principal)
        return await self._kept_agent(session)

    async def switch_to_session(self, session_id: str, *, principal: Principal | None = None) -> Agent:
        """Load the session, rebuild its window, restore its settings, and return its agent (B43).

        Raises: SessionNotFoundError: a switch begins nothing. AccessDeniedError: who only reads runs no agent.
        """
        session = await self._manager.open(session_id, principal=principal, verb=Verb.SEND)
        await session.refresh()
        return await self._kept_agent(session)

    @property
    def models(self) -> list[ModelClient]:
        """Return the models that agents have now."""
        return [kept.agent.parts.model for kept in self._agents.values()]

    async def cleanup_session(self, session_id: str) -> bool:
        """Close the session's agent and all it holds; False where it is in use, or there is none (B49)."""
        kept = self._agents.get(session_id)
        if kept is None or kept.in_use:
            return False
        del self._agents[session_id]
        await _close(kept.agent)
        return True

    @asynccontextmanager
    async def using(self, session: Session) -> AsyncIterator[Agent]:
        """Give the session's agent for the length of a block, in which it is not closed."""
        agent = await self._agent(session)
        kept = self._agents[session.session_id]
        kept.users += 1
        try:
            await self.evict_idle()
            yield agent
        finally:
            kept.users -= 1
            kept.used_s = self._monotonic_s()

    async def close_erased(self) -> int:
        """Close the agents of sessions that are gone, or went on on another machine; return how many (C20, B61).

        Nothing of them is held or runs on here: processes in the background and servers end with the agent.
        """
        closed = 0
        for session_id, kept in list(self._agents.items()):
            if kept.in_use:
                continue
            head = await self._manager.store.head(session_id)
            if head is None or kept.is_elsewhere(head):
                closed += await self.cleanup_session(session_id)
        return closed

    async def evict_idle(self, *, but: str | None = None) -> int:
        """Close agents that are idle for too long, or too many, the one `but` left out; return how many."""
        now_s = self._monotonic_s()
        closed = 0
        for session_id, kept in list(self._agents.items()):
            too_many = len(self._agents) > self._max_agents
            if (
                session_id != but
                and (too_many or now_s - kept.used_s > self._idle_s)
                and await self.cleanup_session(session_id)
            ):
                closed += 1
        return closed

    def __len__(self) -> int:
        return len(self._agents)

    async def close(self) -> None:
        """Close every agent. End the turns first."""
        kept, self._agents = list(self._agents.values()), OrderedDict()
        await asyncio.gather(*(_close(entry.agent) for entry in kept))

    async def _kept_agent(self, session: Session) -> Agent:
        agent = await self._agent(session)
        await self.evict_idle(but=session.session_id)
        return agent

    async def _agent(self, session: Session) -> Agent:
        lock = self._locks.setdefault(session.session_id, _BuildLock())
        lock.users += 1
        try:
            async with lock.lock:
                return await self._current(session)
        finally:
            lock.users -= 1
            if not lock.users:
                self._locks.pop(session.session_id, None)

    async def _current(self, session: Session) -> Agent:
        made_from = _made_from(session)
        kept = self._agents.get(session.session_id)
        if kept is not None and kept.agent.session is session and (kept.made_from == made_from or kept.in_use):
            kept.used_s = self._monotonic_s()
            self._agents.move_to_end(session.session_id)
            return kept.agent
        if kept is not None:
            del self._agents[session.session_id]
            await _close(kept.agent)
        agent = await self._builder.build(session)
        # Building may have found a moved directory, or made one, and said so in the session.
        made_from = _made_from(session)
        self._agents[session.session_id] = _Kept(agent, made_from=made_from, used_s=self._monotonic_s())
        return agent


async def _close(agent: Agent) -> None:
    """Close an agent; what goes wrong with that is nobody else's fault, and ends no other session's turn."""
    try:
        await agent.aclose()
    except Exception:  # whatever a tool does
        logger.warning("the agent of session %s could not be closed", agent.session.session_id, exc_info=True)


def _made_from(session: Session) -> dict[str, object]:
    head = session.head
    record = {name: value for name, value in (head.workspace or {}).items() if name not in _NOT_BUILT_FROM}
    return {"workspace": record, **{name: head.metadata.get(name) for name in BUILT_FROM}}


class _Kept:
    """An agent, what it was made from, and when it was used last."""

    __slots__ = ("agent", "made_from", "used_s", "users")

    def __init__(self, agent: Agent, *, made_from: dict[str, object], used_s: float) -> None:
        self.agent = agent
        self.made_from = made_from
        self.used_s = used_s
        self.users = 0

    def is_elsewhere(self, head: Head) -> bool:
        """Return True where another machine has the session's files in use by now."""
        mine = self.made_from["workspace"]
        return isinstance(mine, dict) and mine.get("at") != (head.workspace or {}).get("at")

    @property
    def in_use(self) -> bool:
        """Return True while somebody has it, or a turn of it runs."""
        return self.users > 0 or self.agent.in_use


class _BuildLock:
    """Lets one task build a session's agent; forgotten when nobody wants it any more."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
