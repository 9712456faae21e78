"""Who holds a lease: enough of a process's identity to see, on the same host, that it is dead."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Owner(NamedTuple):
    """A holder: host name, boot id, process id, process start, and a name within the process."""

    host: str
    boot_id: str
    pid: int
    started: str
    name: str

    def __str__(self) -> str:
        return "/".join((self.host, self.boot_id, str(self.pid), self.started, self.name))

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Return the owner that `str` wrote, or None for a text of another kind."""
        parts = text.split("/", 4)
        if len(parts) != 5 or not parts[2].isdigit():
            return None
        return cls(parts[0], parts[1], int(parts[2]), parts[3], parts[4])


class Liveness(Protocol):
    """Say whether a lease's owner is known to be dead; not knowing means False."""

    def is_dead(self, owner: str) -> bool:
        """Return True only for a process of this host that has ended, or that belongs to an earlier boot."""
        ...
