"""Builds a coding agent for a session: its model, files, tools, commands, servers and rules, from settings and its metadata."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from kipu.errors import ConfigurationError
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.memory.memory import Memory
from kipu.ports.clock import Clock
from kipu.ports.model import ModelClient
from kipu.ports.store import EventStore
from kipu.ports.tool import Tool
from kipu.proposals.inbox import ProposalInbox
from kipu.proposals.learned import LearnedSource
from kipu.proposals.ledger import Ledgers
from kipu.runtime.agent import Agent, AgentParts
from kipu.runtime.delegation import DelegateTool
from kipu.runtime.instructions import coding_instruction, project_text
from kipu.runtime.mcp.mcp_servers import McpServers
from kipu.runtime.mcp.server_config import McpServerConfig
from kipu.runtime.models.model_shelf import ModelShelf
from kipu.runtime.observer import TurnObserver
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.policy.grants import Grants
from kipu.runtime.policy.tool_policy import PolicyLayer, ToolPolicy
from kipu.runtime.sandbox.opening import SandboxChoice, open_sandbox
from kipu.runtime.sandbox.probe import BubblewrapProbe, probe_bubblewrap
from kipu.runtime.session_workspaces import SessionWorkspaces
from kipu.runtime.tools.default_tools import default_tools
from kipu.runtime.tools.memory_tool import MemoryTool
from kipu.runtime.tools.propose import Propose
from kipu.runtime.tools.read_skill import ReadSkill
from kipu.runtime.tools.seen_files import SeenFiles
from kipu.runtime.tools.shell_commands import commands_of
from kipu.runtime.tools.shell_tools import shell_tools
from kipu.runtime.tools.toolbox import Toolbox
from kipu.runtime.turns.model_settings import policy_for
from kipu.runtime.turns.spending import FREE_PROVIDERS, TurnLimits, load_prices, narrowed_limits
from kipu.runtime.turns.withheld import marks_in
from kipu.runtime.workspaces.local import LocalWorkspace
from kipu.runtime.workspaces.place import Placing, WorkspacesMode, placing_for
from kipu.runtime.workspaces.provision import WorkspaceProvision
from kipu.runtime.workspaces.record import WorkspaceRecord

SPLITTERS = {"shell": commands_of}


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """What a project's own files say for the sessions that work in it: rules, servers, and limits that make it only stricter."""

    policy: tuple[PolicyLayer, ...] = ()
    servers: tuple[McpServerConfig, ...] = ()
    limits: Mapping[str, Any] | None = None


ProjectReader = Callable[[WorkspaceRecord], ProjectSettings]
OpenModel = Callable[[str | None], ModelClient]
MoreTools = Callable[[Session], Sequence[Tool]]


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What every agent of a process is built with, where its session says nothing else.

    `policy` are the layers above the session's own. `credentials` are given to the tool they are named for, and to no other.
    `own_places` (Kipu's data) are closed to tools also where a workspace contains them. `project` reads what the project
    around a workspace adds; it may block, and raises ConfigurationError.
    """

    workspaces: Path
    policy: tuple[PolicyLayer, ...] = ()
    servers: tuple[McpServerConfig, ...] = ()
    credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    sandbox: SandboxChoice = "auto"
    has_network: bool = False
    limits: TurnLimits = field(default_factory=TurnLimits)
    own_places: tuple[Path, ...] = ()
    checkpoints: bool = True
    project: ProjectReader | None = None
    roles: Callable[[str, str], frozenset[str]] | None = None  # of a principal: id, tenant
    workspaces_mode: WorkspacesMode | Literal["auto"] = "auto"  # how files get to other machines; `auto` asks the store
    workspaces_root: Path | None = None  # of the mode `shared`

    def placing(self, store: EventStore) -> Placing:
        """Return where files are, for the sessions of this store. Raises: SharedRootError (no root is named)."""
        kind, mode, root = store.describe().kind, self.workspaces_mode, self.workspaces_root
        return placing_for(kind, folder=self.workspaces, mode=mode, root=root)

    def provision(self, store: EventStore, *, clock: Clock) -> WorkspaceProvision:
        """Return what makes and opens the directories of the sessions of this store."""
        placing = self.placing(store)
        own_places = self.own_places if placing.root is None else (*self.own_places, self.workspaces)
        return WorkspaceProvision(placing.base, own_places=own_places, clock=clock, placing=placing)


class CodingAgentBuilder:
    """Make agents (contract: `AgentBuilder`). Models are opened once per name and shared; everything else is each session's own."""

    def __init__(
        self,
        manager: SessionManager,
        settings: AgentSettings,
        *,
        open_model: OpenModel,
        clock: Clock,
        observer: TurnObserver | None = None,
        more_tools: MoreTools | None = None,
        memory: Memory | None = None,
    ) -> None:
        for layer in settings.policy:
            _check_roles(layer, known=settings.roles is not None)
        self._manager = manager
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._more_tools = more_tools
        self._memory = memory
        self._models = ModelShelf(open_model, monotonic_s=time.monotonic)
        self._probe: BubblewrapProbe | None = None
        self.orchestrator: Orchestrator | None = None  # with it, agents may delegate to sessions that it serves
        self.grants = Grants(manager, clock=clock, splitters=SPLITTERS)
        self.ledgers = Ledgers(manager)
        self.learned = LearnedSource(self.ledgers)
        self._inbox = ProposalInbox(self.ledgers, mint=manager.mint)
        self.provision = settings.provision(manager.store, clock=clock)
        self.workspaces = SessionWorkspaces(manager, self.provision)

    async def build(self, session: Session) -> Agent:
        """Return the session's agent. Raises: ModelError, ConfigurationError, WorkspaceError, SandboxError."""
        metadata = session.head.metadata
        model = self.model(metadata.get("model"))
        await self._models.tidy(self.orchestrator.models if self.orchestrator is not None else ())
        if model.describe().provider not in FREE_PROVIDERS:
            await asyncio.to_thread(load_prices)
        workspace = await self.workspaces.open(session)
        project = await self._project(workspace)
        environment = _environment(metadata.get("env"))
        base_limits = narrowed_limits(self._settings.limits, project.limits)
        tools, is_sandboxed = await self._tools(session, workspace)
        tools += [
            Propose(self._inbox, self._manager, session=session, model=model.name),
            ReadSkill(self.learned, session=session),
        ]
        if self._memory is not None:
            tools.append(MemoryTool(self._memory, session))
        parts = AgentParts(
            model,
            Toolbox(tools),
            workspace=workspace,
            policy=ToolPolicy(
                (*self._settings.policy, *project.policy),
                splitters=SPLITTERS,
                unsandboxed=frozenset() if is_sandboxed else frozenset({"shell"}),
            ),
            grants=self.grants,
            environment=environment,
            credentials=lambda name: self._settings.credentials.get(name, {}),
            checkpoint=await self.workspaces.checkpoint(session, workspace) if self._settings.checkpoints else None,
            servers=self._servers(session, workspace, more=project.servers),
            instruction=await asyncio.to_thread(_instruction, workspace),
            carried=workspace.carried,
            learned=self.learned,
            memory=self._memory,
            roles=self._settings.roles,
            limits=narrowed_limits(base_limits, metadata.get("limits")),
            base_limits=base_limits,
        )
        await self._fit_window(session, model)
        return Agent(session, parts, manager=self._manager, observer=self._observer)

    def model(self, name: Any = None) -> ModelClient:
        """Return the client of a model by name, opened once; None is the default one."""
        return self._models.get(name)

    def model_of(self, session: Session) -> ModelClient | None:
        """Return the session's model, None where that is no language model."""
        model = self.model(session.head.metadata.get("model"))
        return model if model.describe().is_ai else None

    async def sandbox_probe(self) -> BubblewrapProbe:
        """Return whether commands can be shut in here; tried once."""
        if self._probe is None:
            self._probe = await probe_bubblewrap()
        return self._probe

    async def close(self) -> None:
        """Close the models, also when one of them fails. Close the agents first."""
        await self._models.close()

    # ---- parts -----------------------------------------------------------------------------------------------------

    async def _tools(self, session: Session, workspace: LocalWorkspace) -> tuple[list[Tool], bool]:
        sandbox = await open_sandbox(
            workspace.root,
            session_id=session.session_id,
            probe=await self.sandbox_probe(),
            choice=self._settings.sandbox,
            writable=_repository(workspace),
            hidden=self._settings.own_places,
            has_network=self._settings.has_network,
        )
        shell = shell_tools(workspace.root, sandbox)
        seen = SeenFiles()
        if workspace.carried is not None:
            await workspace.carried.share(seen, partial(session.blob, principal=owner_of(session.head)))
        tools = [*default_tools(root=workspace.root, manager=self._manager, seen=seen), *shell.all()]
        if self.orchestrator is not None:
            tools.append(DelegateTool(self._manager, self.orchestrator, parent=session))
        if self._more_tools is not None:
            tools += self._more_tools(session)
        return tools, shell.shell.is_sandboxed

    async def _project(self, workspace: LocalWorkspace) -> ProjectSettings:
        read = self._settings.project
        return ProjectSettings() if read is None else await asyncio.to_thread(read, workspace.record)

    def _servers(
        self, session: Session, workspace: LocalWorkspace, *, more: Sequence[McpServerConfig]
    ) -> McpServers | None:
        taken = {config.name for config in self._settings.servers}
        configs = (*self._settings.servers, *(config for config in more if config.name not in taken))
        if not configs:
            return None
        return McpServers(
            configs,
            environment=os.environ,
            mark=session.session_id,
            now=time.monotonic,
            cwd=str(workspace.root),
        )

    async def _fit_window(self, session: Session, model: ModelClient) -> None:
        policy = policy_for(model, policy=self._manager.policy)
        if session.policy != policy:
            await session.set_policy(policy)


def _check_roles(layer: PolicyLayer, *, known: bool) -> None:
    """Refuse rules about roles where nobody says who has which: a deny that never matches is worse than none."""
    about = next((rule for rule in layer.rules if rule.role is not None), None)
    if about is not None and not known:
        raise ConfigurationError(reason=f"the rule {str(about)!r} is about a role, and nothing here says who has which")


def _repository(workspace: LocalWorkspace) -> tuple[Path, ...]:
    """Return what a worktree's commands must write beside it: the repository it belongs to, by its record, not by its files."""
    git_dir = workspace.record.git_dir
    return (Path(git_dir),) if workspace.kind == "worktree" and git_dir else ()


def _instruction(workspace: LocalWorkspace) -> str:
    is_carried = workspace.carried is not None
    return coding_instruction(workspace, is_carried=is_carried, project_text=project_text(workspace))


def _environment(kept: Any) -> dict[str, str]:
    """Return the session's own variables; what is no text is left out rather than guessed at."""
    if not isinstance(kept, Mapping):
        return {}
    # One that held a secret is kept without it: no command is to take what stands in its place for the secret.
    return {str(name): value for name, value in kept.items() if isinstance(value, str) and not marks_in(value)}
