"""The lines that were entered in chats: one file for all of them, from which an erased session's messages go."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from kipu.events.content import text_of
from kipu.ports.erasure import Emptied, Facts
from kipu.ports.head import Head
from kipu.ports.home_path import home_path
from kipu.ports.store import EventStore

_MOST_MESSAGES = 50_000


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return where what is only convenient is kept, such as the lines that were entered: by the XDG rules."""
    base = environment.get("XDG_STATE_HOME", "")
    folder = Path(base) if base.startswith("/") else Path(environment.get("HOME") or "~", ".local", "state")
    return home_path(folder) / "kipu"


class HistoryPlace:
    """Remove entries that a session has as messages; where two sessions have the same one, it goes with the first."""

    name = "chat_history"

    def __init__(self, path: Path) -> None:
        self._path = path

    async def plan(self, head: Head, *, store: EventStore) -> Facts | None:
        """Return digests of the session's messages, not their words."""
        if not self._path.is_file():
            return None
        digests: list[str] = []
        after = head.base_seq
        while len(digests) < _MOST_MESSAGES and (page := await store.read(head.session_id, after=after)):
            messages = [stored.record for stored in page if stored.record.event_type == "user_message"]
            digests += [_digest(_text(record.body)) for record in messages]
            after = page[-1].seq
        return {"messages": digests} if digests else None

    async def settle_fork(self, head: Head) -> None:
        """Leave forks alone."""

    async def erase(self, session_id: str, facts: Facts) -> Emptied:
        """Write the file anew without the entries."""
        return Emptied({"lines": await asyncio.to_thread(self._without, set(facts.get("messages", ())))})

    def _without(self, digests: set[str]) -> int:
        try:
            text = self._path.read_bytes()
        except OSError:
            return 0
        kept, gone = [], 0
        for entry in _entries(text):
            if _digest(_entered(entry)) in digests:
                gone += 1
            else:
                kept.append(entry)
        if gone:
            _replace(self._path, b"".join(kept))
        return gone

    async def erase_person(self, tenant: str, owner: str) -> Emptied:
        """Return that lines go with the sessions that have them."""
        return Emptied()

    def roots(self) -> Sequence[Path]:
        """Return the file."""
        return (self._path,)


def _entries(data: bytes) -> Iterator[bytes]:
    """Yield each entry with the comment before it: lines that begin with + belong together."""
    entry: list[bytes] = []
    has_text = False
    for line in data.splitlines(keepends=True):
        if not line.startswith(b"+") and has_text:
            yield b"".join(entry)
            entry, has_text = [], False
        entry.append(line)
        has_text = has_text or line.startswith(b"+")
    if entry:
        yield b"".join(entry)


def _entered(entry: bytes) -> str:
    lines = [line[1:] for line in entry.decode("utf-8", "replace").split("\n") if line.startswith("+")]
    return "\n".join(lines)


def _text(body: bytes) -> str:
    try:
        fields = orjson.loads(body)
        return text_of(fields.get("content", "")) if isinstance(fields, dict) else ""
    except (orjson.JSONDecodeError, TypeError, AttributeError):
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode("utf-8", "replace")).hexdigest()


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".chat_history.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
