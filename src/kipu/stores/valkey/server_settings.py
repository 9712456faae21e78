"""What a server is set to, as far as it tells: whether it keeps what it acknowledges, and what a crash may take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from valkey.exceptions import NoPermissionError, ResponseError

from kipu.errors import ConfigurationError
from kipu.stores.valkey.address import Address

_ASKED = ("appendonly", "appendfsync", "save", "maxmemory-policy")
_FSYNC = "CONFIG SET appendonly yes and CONFIG SET appendfsync always (and in its configuration file)"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One server's settings; what it does not tell is not there."""

    told: dict[str, str] = field(default_factory=dict)
    version: str = "unknown"
    is_replica: bool = False
    is_cluster: bool = False

    @property
    def durability(self) -> str:
        """Return the level in one word."""
        if self.told.get("appendonly") == "no":
            return "snapshots" if self.told.get("save") else "none"
        if "appendonly" not in self.told or "appendfsync" not in self.told:
            return "unknown"
        return {"always": "fsync", "everysec": "everysec", "no": "os"}.get(self.told["appendfsync"], "unknown")

    @property
    def loss_window(self) -> str:
        """Return what a crash of the server may take of what was acknowledged, in words."""
        return {
            "fsync": "nothing (appendfsync=always)",
            "everysec": "about the last second, of every session (appendfsync=everysec); a lost lease may be given again",
            "os": "what the operating system had not written yet, often 30 s (appendfsync=no)",
            "snapshots": f"everything since the last snapshot (appendonly=no, save={self.told.get('save', '')!r})",
            "none": "everything, whenever the server ends (appendonly=no, no snapshots)",
            "unknown": "not known: the server does not tell how it writes (CONFIG is forbidden); ask who runs it",
        }[self.durability]

    def require(self, address: Address) -> None:
        """Refuse a server that would lose what the store promises. Raises: ConfigurationError, which says what to set."""
        policy = self.told.get("maxmemory-policy", "noeviction")
        if policy != "noeviction":
            reason = (
                f"{address.shown} throws keys away when its memory is full (maxmemory-policy={policy}), events among them."
                " Set maxmemory-policy to noeviction, or use a server of its own for sessions"
            )
            raise ConfigurationError(reason=reason)
        if not address.wants_fsync or self.durability == "fsync":
            return
        if self.durability == "unknown":
            reason = (
                f"{address.shown} does not tell how it writes (CONFIG is forbidden), so durability=fsync cannot be promised."
                " Leave it out of the URL and ask who runs the server, or allow CONFIG GET"
            )
        else:
            reason = (
                f"{address.shown} is set to {self.durability!r}, not fsync: {_FSYNC}, or leave durability=fsync out"
            )
        raise ConfigurationError(reason=reason)


async def settings_of(ask: Callable[..., Awaitable[Any]]) -> ServerSettings:
    """Ask a server what it is set to; a managed one may forbid the question."""
    info = _lines(await _allowed(ask, "INFO") or b"")
    told = {}
    for name in _ASKED:
        answer = await _allowed(ask, "CONFIG", "GET", name)
        if answer:
            told[name] = answer[1].decode()
    if "maxmemory_policy" in info:
        told.setdefault("maxmemory-policy", info["maxmemory_policy"])
    if "aof_enabled" in info:
        told.setdefault("appendonly", "yes" if info["aof_enabled"] == "1" else "no")
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version")
    return ServerSettings(
        told,
        f"{name} {version}" if version else "unknown",
        info.get("role") == "slave",
        info.get("cluster_enabled") == "1",
    )


async def _allowed(ask: Callable[..., Awaitable[Any]], *words: str) -> Any:
    try:
        return await ask(*words)
    except NoPermissionError:
        return None
    except ResponseError as error:
        if not str(error).startswith("unknown"):  # a managed server has no such command
            raise
        return None


def _lines(text: bytes) -> dict[str, str]:
    parts = (line.partition(":") for line in text.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in parts if colon}
