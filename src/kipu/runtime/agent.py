"""An agent: everything the turns of one session run with, restored from its events (B39)."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from kipu.errors import KipuError, LeaseLostError, StoreError, WorkspaceError
from kipu.events.event import SessionEvent
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.manager.turn import Turn
from kipu.memory.memory import Memory
from kipu.ports.model import ModelClient
from kipu.ports.principal import Principal
from kipu.ports.tool import ToolSpec
from kipu.ports.workspace import Workspace
from kipu.proposals.learned import LearnedSource
from kipu.runtime.mcp.mcp_servers import McpServers
from kipu.runtime.models.retrying import DEFAULT_LIMITS, RetryLimits
from kipu.runtime.observer import NoObserver, TurnObserver
from kipu.runtime.policy.grants import Grants
from kipu.runtime.policy.policy_rule import PolicyRule, parse_rules
from kipu.runtime.policy.tool_policy import PolicyDecision, ToolPolicy
from kipu.runtime.tools.toolbox import Toolbox
from kipu.runtime.turns.agent_loop import AgentLoop
from kipu.runtime.turns.ancestry import Ancestry, bond_of
from kipu.runtime.turns.approval_gate import DEFAULT_TTL_S, ApprovalGate
from kipu.runtime.turns.boundary import Boundary
from kipu.runtime.turns.compaction import Compaction
from kipu.runtime.turns.instructing import Instructing
from kipu.runtime.turns.model_step import ModelStep, StreamLimits
from kipu.runtime.turns.recalling import Recalling
from kipu.runtime.turns.spending import TurnLimits
from kipu.runtime.turns.tool_execution import Checkpoint, ToolExecution
from kipu.runtime.turns.tool_step import ToolStep
from kipu.runtime.turns.turn_budget import TurnBudget
from kipu.runtime.turns.turn_control import TurnControl
from kipu.runtime.turns.turn_run import TurnRun
from kipu.runtime.turns.withheld import Withheld
from kipu.runtime.workspaces.carried import CarriedFiles

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class AgentParts:
    """What an agent is made of; only the model and the toolbox have to be given."""

    model: ModelClient
    toolbox: Toolbox
    workspace: Workspace | None = None
    policy: ToolPolicy = field(default_factory=ToolPolicy)
    grants: Grants | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    credentials: Callable[[str], Mapping[str, str]] | None = None
    checkpoint: Checkpoint | None = None
    servers: McpServers | None = None
    instruction: str | None = None
    carried: CarriedFiles | None = None
    learned: LearnedSource | None = None
    memory: Memory | None = None
    roles: Callable[[str, str], frozenset[str]] | None = None
    limits: TurnLimits = field(default_factory=TurnLimits)
    base_limits: TurnLimits = field(default_factory=TurnLimits)  # before the session's own narrowed them
    retries: RetryLimits = DEFAULT_LIMITS
    stream_limits: StreamLimits = field(default_factory=StreamLimits)
    approval_ttl_s: float = DEFAULT_TTL_S
    owns_model: bool = False  # closed with the agent; a shared one is not


class Agent:
    """Run the turns of one session. Its tools, files and child processes are its own, and end with it (B49)."""

    def __init__(
        self,
        session: Session,
        parts: AgentParts,
        *,
        manager: SessionManager,
        observer: TurnObserver | None = None,
    ) -> None:
        self.session = session
        self.parts = parts
        self._manager = manager
        self._observer = observer or NoObserver()
        self._withheld = Withheld()  # longer than a turn runs: one that waits for a person goes on with it
        self.compaction = Compaction(session, parts.model, silence_s=parts.stream_limits.silence_s)
        self._ancestry: Ancestry | None = None
        if bond_of(session.head.metadata) is not None:
            endpoint = parts.model.describe().endpoint
            self._ancestry = Ancestry(manager, session, limits=parts.base_limits, endpoint=endpoint)
        self._instructing = Instructing(session, instruction=parts.instruction, learned=parts.learned)
        self._recalling = Recalling(session, parts.memory) if parts.memory is not None else None
        self._running = 0

    @property
    def in_use(self) -> bool:
        """Return True while a turn runs."""
        return self._running > 0

    async def run_turn(self, turn: Turn, control: TurnControl) -> TurnRun:
        """Run one entered turn to where it ends or parks, and return how it went."""
        run = TurnRun(self.session, turn, control=control, withheld=self._withheld)
        self._running += 1
        try:
            await run.load()
            if self.parts.servers is not None:
                await self.parts.servers.update(self.parts.toolbox)
            await self._instruct(run)
            if self._recalling is not None:
                await self._recalling.at_start(run)
            loop = self._loop(run, principal=with_roles(await author_of(run), self.parts.roles))
            try:
                await loop.run(run)
            except (LeaseLostError, StoreError):
                raise
            except Exception:
                await self._keep_files(run)
                raise
            await self._keep_files(run)
        finally:
            self._running -= 1
        return run

    async def _keep_files(self, run: TurnRun) -> None:
        """Keep the files as the turn leaves them, parked and handed over ones too, for whichever machine goes on."""
        carried = self.parts.carried
        if carried is None:
            return

        async def add(events: Sequence[SessionEvent]) -> Sequence[SessionEvent]:
            return await run.add(*events)

        try:
            await carried.keep(add)
        except WorkspaceError as error:
            logger.warning("session %s: its files were not kept: %s", self.session.session_id, error)
        carried.came_from = None

    async def _instruct(self, run: TurnRun) -> None:
        due = await self._instructing.due(is_answering=bool(run.story.answered))
        if due is not None:
            await run.add(due)

    def _loop(self, run: TurnRun, *, principal: Principal) -> AgentLoop:
        parts, manager = self.parts, self._manager
        above = partial(self._ancestry.budgets, run) if self._ancestry is not None else None
        budget = TurnBudget(parts.model, parts.limits, monotonic_s=time.monotonic, above=above)
        execution = ToolExecution(
            parts.toolbox,
            store=manager.store,
            principal=principal,
            observer=self._observer,
            workspace=parts.workspace,
            environment=parts.environment,
            credentials=parts.credentials,
            checkpoint=parts.checkpoint,
            remaining_s=budget.remaining_s,
        )
        gate = ApprovalGate(
            parts.toolbox,
            self.decide,
            principal=principal,
            grants=parts.grants,
            now=self._now,
            mint=manager.mint,
            ttl_s=parts.approval_ttl_s,
            came_from=parts.carried.came_from if parts.carried is not None else None,
        )
        boundary = Boundary(now_us=manager.now_us)
        model = ModelStep(
            self.session,
            parts.model,
            store=manager.store,
            mint=manager.mint,
            random=random.random,
            observer=self._observer,
            budget=budget,
            retries=parts.retries,
            stream_limits=parts.stream_limits,
        )
        return AgentLoop(
            model=model,
            tools=ToolStep(gate, execution, is_steered=boundary.is_steered, expire=boundary.expire),
            boundary=boundary,
            compaction=self.compaction,
            budget=budget,
            toolbox=parts.toolbox,
        )

    async def decide(self, spec: ToolSpec | None, subject: str, *, principal: Principal) -> PolicyDecision:
        """Return what policy says now; the session's own rules only narrow it, and those of who it works for (A19)."""
        policy = self.parts.policy
        for metadata in await self._ancestry.metadata() if self._ancestry is not None else ():
            policy = policy.narrowed(session_rules(metadata))
        return policy.narrowed(session_rules(self.session.head.metadata)).decide(spec, subject, principal=principal)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._manager.now_us() / 1_000_000, UTC)

    async def aclose(self) -> None:
        """End its tools and what they run, and give the files back; what fails keeps nothing else from being closed."""
        parts = self.parts
        async with AsyncExitStack() as last_first:
            if parts.owns_model:
                last_first.push_async_callback(parts.model.aclose)
            if parts.workspace is not None:
                last_first.push_async_callback(parts.workspace.aclose)
            if parts.servers is not None:
                last_first.push_async_callback(parts.servers.aclose)
            last_first.push_async_callback(parts.toolbox.aclose)
            last_first.push_async_callback(self.compaction.aclose)


def session_rules(metadata: Mapping[str, Any]) -> Sequence[PolicyRule]:
    """Return the rules that the session keeps for itself; rules that cannot be read ask about everything."""
    kept = metadata.get("policy")
    if kept is None:
        return ()
    try:
        return parse_rules(kept, source="the session's policy")
    except KipuError as error:
        return (PolicyRule("ask", reason=f"the session's own policy cannot be read: {error}"),)


def with_roles(principal: Principal, roles: Callable[[str, str], frozenset[str]] | None) -> Principal:
    """Return the principal with the roles it has now: the log says who wrote, not what they may."""
    return principal if roles is None else replace(principal, roles=roles(principal.id, principal.tenant))


async def author_of(run: TurnRun) -> Principal:
    """Return who a turn is run for: whoever sent its first message, else the session's owner.

    A helper's task comes from whoever its parent's turn is run for, though it is written under the owner's name.
    """
    head = run.session.head
    message = await run.first_message()
    bond = bond_of(head.metadata)
    sender = None if message is None else message.principal
    if message is not None and bond is not None and message.source_message_id == bond.call_id:
        sender = bond.principal or sender
    return Principal(str(sender), head.tenant) if sender else owner_of(head)
