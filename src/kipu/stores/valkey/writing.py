"""One change, carried out by one script: all of it if the session, the keys and the store's mark are as they were, else none."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kipu.ports.store import StoreMark
from kipu.stores.store_mark import mark_from_text, own_move, refusal
from kipu.stores.valkey.heads import Command, HeadRow, row_of_answer
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.news import News
from kipu.stores.valkey.scripts import WRITE
from kipu.stores.valkey.server import Server, Word

ANY_VERSION = "-"  # a session there is, whatever its version
NO_SESSION = ""  # nothing is asked of it


class Lane(Enum):
    """What a store's mark may forbid a change as."""

    CHANGE = "change"
    CLAIM = "claim"
    ALWAYS = "always"  # giving leases back, and the store's own


@dataclass(slots=True)
class Change:
    """What is to happen together. `checks` are keys with the value that each must have, "" for none."""

    session_id: str
    version: str
    commands: list[Command]
    checks: list[tuple[str, str]] = field(default_factory=list)
    first_seq: int = 0
    events: Sequence[bytes] = ()
    types: AbstractSet[str] | None = None  # of a commit that followers are told of
    lane: Lane = Lane.CHANGE


class Outcome(NamedTuple):
    """What became of a change: done, or the row that stood there, or the check (by its place) that found another value."""

    is_done: bool
    row: HeadRow | None = None
    check: int = -1
    found: str = ""


class Writer:
    """Carry out changes in one store."""

    def __init__(self, server: Server, keys: KeyNames, *, news: News) -> None:
        self._server = server
        self._keys = keys
        self._news = news
        self._mark_text = ""
        self._own_move: str | None = None

    @property
    def mark(self) -> StoreMark | None:
        """Return the store's mark as it was seen last."""
        return mark_from_text(self._mark_text) if self._mark_text else None

    def see_mark(self, text: str, *, is_own: bool = False) -> None:
        """Take the mark as the server has it; who has set it may write as it says."""
        self._mark_text = text
        if is_own:
            self._own_move = own_move(self.mark)

    async def write(self, change: Change) -> Outcome:
        """Carry a change out, or say what is otherwise. Raises: StoreMovedError, StoreBeingFilledError."""
        while True:
            self.refuse(change.lane)
            answer = await self._server.change(WRITE, *self.words(change))
            match answer:
                case [b"done"]:
                    self._news.committed(change.types)
                    return Outcome(True)
                case [b"mark", found]:
                    self.see_mark(found.decode())
                case [b"check", place, found]:
                    return Outcome(False, check=place - 1, found=found.decode())
                case _:
                    return Outcome(False, row=row_of_answer(answer[1:]))

    def refuse(self, lane: Lane) -> None:
        """Return where the mark, as it was seen last, lets a change be. Raises: StoreMovedError, StoreBeingFilledError."""
        if lane is Lane.ALWAYS or not self._mark_text:
            return
        refused = refusal(self.mark, own=self._own_move, store=self._server.url, claims=lane is Lane.CLAIM)
        if refused is not None:
            raise refused

    def words(self, change: Change) -> list[Word]:
        """Return a change as the script is told it."""
        keys, session = self._keys, self._keys.of(change.session_id)
        mark = "*" if change.lane is Lane.ALWAYS else self._mark_text
        words: list[Word] = [keys.mark, mark, session.head, change.version, len(change.checks)]
        for check in change.checks:
            words += check
        words += [keys.counter, keys.changed, change.session_id, session.events, change.first_seq, len(change.events)]
        for place, event in enumerate(change.events):
            words += [change.first_seq + place, event]
        words += self._news.notice(change.types)
        for command in change.commands:
            words += [len(command), *command]
        return words
