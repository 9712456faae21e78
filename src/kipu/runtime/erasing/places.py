"""All places outside a store, as one machine has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kipu.ports.clock import Clock
from kipu.ports.erasure import ErasurePlace
from kipu.runtime.erasing.grant_place import GrantPlace
from kipu.runtime.erasing.helper_place import HelperPlace
from kipu.runtime.erasing.history_place import HistoryPlace, state_folder
from kipu.runtime.erasing.memory_place import MemoryPlace, OpenMemory
from kipu.runtime.erasing.proposal_place import ProposalPlace
from kipu.runtime.erasing.workspace_place import WorkspacePlace
from kipu.runtime.instructions import default_workspaces_folder
from kipu.runtime.workspaces.provision import WorkspaceProvision

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager


def outside_places(
    manager: SessionManager,
    environment: Mapping[str, str],
    *,
    workspaces: Path | None,
    clock: Clock,
    memory: OpenMemory,
) -> Sequence[ErasurePlace]:
    """Return where something of a session may be beside its store, under the XDG folders of `environment`."""
    base = workspaces or default_workspaces_folder(environment.get("XDG_DATA_HOME"), environment.get("HOME"))
    return (
        WorkspacePlace(manager, WorkspaceProvision(base, clock=clock)),
        HelperPlace(manager),
        GrantPlace(manager),
        ProposalPlace(manager),
        MemoryPlace(memory),
        HistoryPlace(state_folder(environment) / "chat_history"),
    )
