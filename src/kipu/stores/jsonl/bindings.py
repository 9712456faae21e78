"""Which session each key leads to: one log for the whole store, whose newest line for a key counts.

A binding that belongs to an append is written twice: as an intent before the batch, which carries it too, and as done after
it. An intent that nobody finished is settled by looking whether its batch is in the session's log, so that the binding and
the batch happen together or not at all. A file that is gone is made anew of what the logs say.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from typing import NamedTuple

import orjson

from kipu.stores.jsonl.layout import refuse_when_away
from kipu.stores.jsonl.line import BOM
from kipu.stores.jsonl.lock import FileLock
from kipu.stores.jsonl.medium import (
    PRIVATE_FILE,
    open_plain,
    read_whole,
    remove_file,
    replace_file,
    sync_folder,
    write_all,
)
from kipu.stores.jsonl.quarantine import ROOT_FOLDER, keep_aside

FILE = "bindings.jsonl"
_CHECK = b',"c":"%08x"}\n'
_CHECK_SIZE = len(_CHECK % 0)
_UNREAD = -1  # the inode of no file, and not that of one that is not there


class KeyState(NamedTuple):
    """Where a key leads, and how often it was bound."""

    session_id: str | None
    generation: int


class Intent(NamedTuple):
    """A binding whose batch may or may not have been appended."""

    key: str
    session_id: str
    generation: int
    before: KeyState


UNBOUND = KeyState(None, 0)


class Bindings:
    """Read and write `bindings.jsonl`. Whoever calls holds `lock`."""

    def __init__(
        self,
        root: str,
        *,
        sync: bool,
        in_logs: Callable[[], dict[str, KeyState]],
        may_make: Callable[[], bool],
        writable: bool,
    ) -> None:
        self._root = root
        self._in_logs = in_logs
        self._may_make = may_make
        self._writable = writable
        self._path = os.path.join(root, FILE)
        self._sync = sync
        self.lock = FileLock(os.path.join(root, "bindings.lock"))
        self._keys: dict[str, KeyState] = {}
        self._open: dict[str, Intent] = {}
        self._size = 0
        self._inode = _UNREAD
        self.bad_lines: list[tuple[int, int]] = []
        self.made_anew = 0  # how many keys the file had to be made anew with

    def is_current(self) -> bool:
        """Return True when nobody has changed the file since it was read."""
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            refuse_when_away(self._root)
            return self._inode == 0
        return (now.st_ino, now.st_size) == (self._inode, self._size) and not self._open

    def refresh(self, settle: Callable[[Intent], bool]) -> None:
        """Take in what others wrote; ask `settle` whether the batch of an unfinished intent is there."""
        if not self.is_current():
            self._read_on()
        for intent in list(self._open.values()):
            self.finish(intent, happened=settle(intent))

    def get(self, key: str) -> KeyState:
        """Return where a key leads."""
        return self._keys.get(key, UNBOUND)

    def next_generation(self, key: str) -> int:
        """Return the generation that the next binding of a key gets."""
        known = self._open.get(key)
        return (known.generation if known else self.get(key).generation) + 1

    def reload(self) -> None:
        """Read the file from its beginning when it is asked next."""
        self._inode = _UNREAD

    def torn(self) -> tuple[int, int] | None:
        """Return where the file goes on behind its last whole line, and for how many bytes."""
        try:
            size = os.stat(self._path).st_size
        except FileNotFoundError:
            return None
        return (self._size, size - self._size) if size > self._size else None

    def of_session(self, session_id: str) -> list[str]:
        """Return the keys that lead to a session."""
        return [key for key, state in self._keys.items() if state.session_id == session_id]

    def intend(self, key: str, session_id: str) -> Intent:
        """Write, durably, that a batch which binds `key` is about to be appended."""
        intent = Intent(key, session_id, self.next_generation(key), self.get(key))
        self._write({"key": key, "session_id": session_id, "generation": intent.generation, "intent": True})
        self._open[key] = intent
        return intent

    def finish(self, intent: Intent, *, happened: bool) -> None:
        """Write how an intent ended. Not synced: the session's log says it too."""
        state = KeyState(intent.session_id, intent.generation) if happened else intent.before
        if self._writable:
            ended: dict[str, object] = {
                "key": intent.key,
                "session_id": state.session_id,
                "generation": intent.generation,
            }
            self._write(ended, sync=False)
        self._keys[intent.key] = KeyState(state.session_id, intent.generation)
        self._open.pop(intent.key, None)

    def sync(self) -> None:
        """Put every line on the medium, those too that say how an intent ended."""
        try:
            fd = open_plain(self._path)
        except FileNotFoundError:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def put(self, key: str, session_id: str) -> None:
        """Bind a key, durably."""
        generation = self.get(key).generation + 1
        self._write({"key": key, "session_id": session_id, "generation": generation})
        self._keys[key] = KeyState(session_id, generation)

    def forget(self, session_id: str) -> int:
        """Write the file anew without a session and every key that ever led to it; return how many lines went."""
        self._remove_leftovers()
        # A key that leads there now must not lead back to where it led before.
        keys = set(self.of_session(session_id))
        lines = [line for line in map(_plain, self._raw_lines()) if line]
        own = keys.union(_keys_of(lines, session_id).difference(self._keys))
        kept = [
            line
            for line in lines
            if not (_is_about(line, session_id, keys) if _holds(line) else _tells_of(line, session_id, own))
        ]
        gone = len(lines) - len(kept) + self._forget_kept_aside(session_id, own)
        if len(kept) < len(lines):
            replace_file(self._path, b"".join(line + b"\n" for line in kept))
            self._inode = 0
            self._read_on()
        return gone

    def _forget_kept_aside(self, session_id: str, keys: set[str]) -> int:
        """Remove what was moved out of the file and tells of the session; return how much."""
        place = os.path.join(self._root, ROOT_FOLDER)
        try:
            paths = [os.path.join(place, name) for name in os.listdir(place) if name.startswith(f"{FILE}-")]
        except FileNotFoundError:
            return 0
        gone = 0
        for path in paths:
            _, _, torn = (read_whole(path) or b"").partition(b"\n")
            if any(_tells_of(line, session_id, keys) for line in torn.split(b"\n")):
                gone += remove_file(path)
        if gone:
            sync_folder(place)
        return gone

    def _remove_leftovers(self) -> None:
        """Remove copies that a kill left in the middle of being written: who holds the lock is the only writer."""
        for name in os.listdir(self._root):
            if name.startswith(f"{FILE}.") and name.endswith(".tmp"):
                os.unlink(os.path.join(self._root, name))

    def _raw_lines(self) -> list[bytes]:
        return (read_whole(self._path) or b"").split(b"\n")

    def _read_on(self) -> None:
        try:
            fd = open_plain(self._path)
        except FileNotFoundError:
            self._make()
            return
        try:
            now = os.fstat(fd)
            if now.st_ino != self._inode or now.st_size < self._size:
                self._restart(now.st_ino)
            data = os.pread(fd, now.st_size - self._size, self._size)
        finally:
            os.close(fd)
        end = data.rfind(b"\n") + 1
        for line in data[:end].split(b"\n")[:-1]:
            self._take(line)
            self._size += len(line) + 1

    def _make(self) -> None:
        """Make the file where there is none: no key was bound yet, or somebody removed it, and logs and memory know some."""
        keys = self._in_logs()
        keys |= {key: state for key, state in self._keys.items() if state.generation >= keys.get(key, state).generation}
        self._restart(0)
        self._keys, self.made_anew = keys, len(keys)
        if not self._may_make():
            return
        if keys:
            lines = [_line({"key": key, **state._asdict()}) for key, state in keys.items()]
            replace_file(self._path, b"".join(lines), sync=self._sync)
        else:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))
        self._read_on()

    def _restart(self, inode: int) -> None:
        self._keys.clear()
        self._open.clear()
        self.bad_lines.clear()
        self._size, self._inode = 0, inode

    def _take(self, line: bytes) -> None:
        text = _plain(line)
        if not _holds(text):
            if text:
                self.bad_lines.append((self._size, len(line)))
            return
        said = orjson.loads(text)
        key, session_id, generation = said["key"], said["session_id"], said["generation"]
        if said.get("intent"):
            self._open[key] = Intent(key, session_id, generation, self.get(key))
        else:
            self._keys[key] = KeyState(session_id, generation)
            self._open.pop(key, None)

    def _write(self, said: dict[str, object], *, sync: bool = True) -> None:
        data = _line(said)
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            now = os.fstat(fd)
            fresh = now.st_size == 0  # nobody has put the name of an empty file on the medium
            self._repair(fd, now.st_size)
            try:
                write_all(fd, data)
                if sync and self._sync:
                    os.fdatasync(fd)
            except BaseException:
                os.ftruncate(fd, self._size)
                raise
            self._inode = now.st_ino
            self._size += len(data)
        finally:
            os.close(fd)
        if fresh and self._sync:
            sync_folder(self._root)

    def _repair(self, fd: int, size: int) -> None:
        if size > self._size:
            torn = os.pread(fd, size - self._size, self._size)
            keep_aside(
                self._root, FILE, offset=self._size, data=torn, reason="torn", at="", sync=self._sync, into=ROOT_FOLDER
            )
            os.ftruncate(fd, self._size)


def _line(said: dict[str, object]) -> bytes:
    text = orjson.dumps(said)[:-1]
    return text + _CHECK % zlib.crc32(text)


def _plain(line: bytes) -> bytes:
    """Return a line without what a tool for text may have put around it, as logs are read too."""
    return line.removeprefix(BOM).removesuffix(b"\r")


def _holds(line: bytes) -> bool:
    """Return True for a whole line (given without its end)."""
    body, check = line[: 1 - _CHECK_SIZE], line[1 - _CHECK_SIZE :]
    return len(body) > 1 and check + b"\n" == _CHECK % zlib.crc32(body)


def _keys_of(lines: list[bytes], session_id: str) -> set[str]:
    """Return every key that ever led to a session."""
    said = [orjson.loads(line) for line in lines if _holds(line)]
    return {each["key"] for each in said if each["session_id"] == session_id}


def _tells_of(torn: bytes, session_id: str, keys: set[str]) -> bool:
    """Return True for bytes that are no whole line, but name the session, or one of its keys as far as they go."""
    starts = [b'{"key":%s' % orjson.dumps(key) for key in keys]
    named = b'"session_id":%s' % orjson.dumps(session_id) in torn
    return named or any(start in torn or (len(torn) > len(b'{"key":"') and start.startswith(torn)) for start in starts)


def _is_about(line: bytes, session_id: str, keys: set[str]) -> bool:
    said = orjson.loads(line)
    return said["session_id"] == session_id or said["key"] in keys
