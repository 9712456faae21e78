"""This machine as the stores see it: its clock, its chance, and which of its processes still live."""

from __future__ import annotations

import os
import socket
import sys
import time

from kipu.ports.owner import Owner

_POOL_BYTES = 4096
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Fields of /proc/PID/stat counted from the one after the command, which may itself hold spaces and brackets.
_STATE, _START = 0, 19
_ENDED_STATES = frozenset({"Z", "X", "x"})


class SystemClock:
    """Tell the time of day of this machine."""

    def now_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1000


class SystemEntropy:
    """Give random bytes of the operating system, fetched many at a time: ids are made on the path of every append."""

    def __init__(self) -> None:
        self._pool = b""
        self._used = 0
        self._pid = 0

    def random_bytes(self, count: int) -> bytes:
        """Return `count` unpredictable bytes, which no other process, a forked child included, was given."""
        end = self._used + count
        if end > len(self._pool) or self._pid != os.getpid():
            if count > _POOL_BYTES:
                return os.urandom(count)
            self._pool, self._used, self._pid = os.urandom(_POOL_BYTES), 0, os.getpid()
            end = count
        taken = self._pool[self._used : end]
        self._used = end
        return taken


class SystemLiveness:
    """Say whether an owner on this host is dead; of other hosts and other process namespaces nothing is known."""

    def is_dead(self, owner: str) -> bool:
        """Return True only for a process of this host that has ended, or that belongs to an earlier boot."""
        holder = Owner.parse(owner)
        if holder is None or not holder.host or holder.host != _host():
            return False
        if holder.boot_id != _boot_id():
            return bool(holder.boot_id and _boot_id())
        _, _, namespace = holder.started.partition("@")
        if namespace != _process_namespace():
            return False
        started = _started(holder.pid) if holder.started else None
        return not _exists(holder.pid) if started is None else started != holder.started


def this_process_owner(name: str) -> str:
    """Return the owner text of this process for the holder `name` within it."""
    pid = os.getpid()
    return str(Owner(_host(), _boot_id(), pid, _started(pid) or "", name))


def _host() -> str:
    return socket.gethostname().replace("/", "_")


def _boot_id() -> str:
    return (_read(_BOOT_ID) or "").strip()


def _started(pid: int) -> str | None:
    """Return when `pid` began and where its number counts, "" when it ended unreaped, None when that cannot be seen."""
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[_STATE] in _ENDED_STATES:
        return ""
    return f"{fields[_START]}@{_process_namespace()}"


def _process_namespace() -> str:
    """Return which numbering of processes this one is in: the same pid is another process in another container."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    if sys.platform == "win32":  # there, signal 0 is Ctrl-C, not a question
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None
