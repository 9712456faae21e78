"""Who asks. A principal is neither a session key nor a session id, and knowing one of those makes nobody a principal (A20)."""

from __future__ import annotations

from dataclasses import dataclass

LOCAL_ID = "local"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller: `id` within `tenant`, with roles. Passed to every call of the façade (C19)."""

    id: str
    tenant: str = ""
    roles: frozenset[str] = frozenset()

    @classmethod
    def local(cls) -> Principal:
        """Return the one user of a library or command line that has only one."""
        return cls(LOCAL_ID)

    @property
    def is_local(self) -> bool:
        """Return True for that one user, who may read the files anyway."""
        return self.id == LOCAL_ID and not self.tenant

    @property
    def is_admin(self) -> bool:
        """Return True for an administrator of the tenant."""
        return "admin" in self.roles
