"""The lease file of a session: who may append turn events, under which token. Written in place, under the lock."""

from __future__ import annotations

import os
import zlib
from typing import Any, NamedTuple

import orjson

from kipu.stores.jsonl.medium import open_plain

# One write within a page: a process killed in the middle leaves the old bytes or the new ones.
SIZE = 1024
_CHECK = b',"c":"%08x"}'


class LeaseState(NamedTuple):
    """Holder, token and expiry. The token outlives every holder."""

    owner: str | None = None
    token: int = 0
    until: str | None = None

    def onto(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the head row with this lease in it."""
        return {**row, "lease_owner": self.owner, "lease_token": self.token, "lease_until": self.until}


def lease_of(row: dict[str, Any]) -> LeaseState:
    """Return the lease that a head row shows."""
    return LeaseState(row.get("lease_owner"), row.get("lease_token", 0), row.get("lease_until"))


class LeaseFile:
    """Read and write one session's lease. Bytes read before are not parsed again."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "lease")
        self._raw = b""
        self._state = LeaseState()
        self._fd = -1

    def read(self, *, now_us: int) -> LeaseState:
        """Return the lease; a file that was never written says that nobody ever claimed.

        A file that cannot be read has lost the token: one that no holder can have takes its place, the time in seconds.
        """
        if self._fd < 0:
            try:
                self._fd = open_plain(self._path, os.O_RDWR)
            except FileNotFoundError:
                return LeaseState()
            except PermissionError:
                self._fd = open_plain(self._path)
        raw = os.pread(self._fd, SIZE * 2, 0)
        if raw != self._raw:
            self._state = _decode(raw) or LeaseState(None, now_us // 1_000_000, None)
            self._raw = raw
        return self._state

    def write(self, state: LeaseState) -> None:
        """Make `state` what the file says. Not synced: no holder of this machine outlives a power cut."""
        if self._fd < 0:
            self._fd = open_plain(self._path, os.O_RDWR | os.O_CREAT)
        raw = _encode(state)
        if os.pwrite(self._fd, raw, 0) != len(raw):
            raise OSError(28, "short write of a lease")
        self._raw, self._state = raw, state

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _encode(state: LeaseState) -> bytes:
    text = orjson.dumps({"owner": state.owner, "token": state.token, "until": state.until})[:-1]
    return (text + _CHECK % zlib.crc32(text)).ljust(SIZE - 1) + b"\n"


def _decode(raw: bytes) -> LeaseState | None:
    # What a longer owner's text left behind the first line's end is of an older lease.
    text = raw.split(b"\n", 1)[0].rstrip()
    if text[-16:] != _CHECK % zlib.crc32(text[:-16]):
        return None
    try:
        said = orjson.loads(text)
        return LeaseState(said["owner"], said["token"], said["until"])
    except (ValueError, KeyError, TypeError):
        return None
