"""What a person approved of how memory is kept for them, where somebody tells it (C26)."""

from __future__ import annotations

from kipu.memory.place import MemoryPlace
from kipu.ports.memory import SCOPES, Scope
from kipu.ports.memory_policy import MemoryPolicy, MemoryPolicySource
from kipu.ports.principal import Principal

_FOLDER = "folder:"


class ApprovedPolicies:
    """Ask for the policy of a session's owner; without a source it is the default everywhere."""

    def __init__(self, source: MemoryPolicySource | None = None) -> None:
        self._source = source

    async def of(self, place: MemoryPlace) -> MemoryPolicy:
        """Return the policy for sessions of this place."""
        if self._source is None:
            return MemoryPolicy()
        project = place.project or ""
        folder = project.removeprefix(_FOLDER) if project.startswith(_FOLDER) else None
        return await self._source.memory_policy(Principal(place.owner, place.tenant), project=folder)


def narrowed_scope(scope: Scope, policy: MemoryPolicy, *, place: MemoryPlace) -> Scope:
    """Return the scope, or where the policy allows none so wide the narrowest one."""
    widest = SCOPES.index(policy.widest_scope) if policy.widest_scope in SCOPES else 0
    if SCOPES.index(scope) <= widest:
        return scope
    return place.narrowest if SCOPES.index(place.narrowest) <= widest else "session"
