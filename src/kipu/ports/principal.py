"""Who asks. A principal is neither a session key nor a session id, and knowing one of those makes nobody a principal (A20)."""

from __future__ import annotations

from dataclasses import dataclass

from kipu.errors import InputError

LOCAL_ID = "local"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller: `id` within `tenant`, with roles. Passed to every call of the façade (C19).

    Raises: InputError: half a character or a NUL is in its names. No head keeps those, so what it made would never be its own.
    """

    id: str
    tenant: str = ""
    roles: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in (self.id, self.tenant):
            if not name.isascii() or "\0" in name:
                _check(name)

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


def _check(name: str) -> None:
    if "\0" in name or any("\ud800" <= char <= "\udfff" for char in name):
        raise InputError(reason=f"{name!r} is no principal's name: it has characters in it that nothing can keep")
