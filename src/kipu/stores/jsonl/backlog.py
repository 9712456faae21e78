"""Sessions whose logs are ahead of the index, which takes them in together instead of one by one with every append."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from kipu.errors import KipuError

if TYPE_CHECKING:
    from kipu.stores.jsonl.shelf import OpenLog, Shelf

# How long the index may lag, and by how many sessions: the more, the longer who lists first has to wait for them.
WRITE_AFTER_S = 0.5
MOST_SESSIONS = 64


class Backlog:
    """Put off the index rows of this store's own appends while nobody could miss them (JL-18).

    That is so while no other process has registered as a writer: registering takes the index's lock alone, and whoever asks
    `takes` shares it, so that nobody can register between the question and the answer. Whoever registers later compares the
    logs before it lists. Whatever reads the index in this process calls `write` first.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._waiting: set[str] = set()

    def __bool__(self) -> bool:
        """Return True while some session waits for its row."""
        return bool(self._waiting)

    def takes(self, session_ids: list[str]) -> bool:
        """Put off the rows of these sessions, or return False where they must be written now. Call it under the index's lock."""
        shelf = self._shelf
        waiting = self._waiting.union(session_ids)
        if len(waiting) > MOST_SESSIONS or not shelf.index.is_alone(shelf.owner):
            return False
        self._waiting = waiting
        return True

    def intersection(self, session_ids: set[str]) -> set[str]:
        """Return those of the sessions that wait."""
        return self._waiting & session_ids

    def discard(self, session_id: str) -> None:
        """Say that a session's row is written, or that the session is gone."""
        self._waiting.discard(session_id)

    def write(self, *, wait_s: float) -> None:
        """Write the rows that wait. What cannot be written counts as stale, which is looked after before anything is listed.

        Raises: BlockingIOError, with nothing done, when `wait_s` is 0 and somebody holds a lock.
        """
        if not self._waiting:
            return
        shelf = self._shelf
        held: list[OpenLog] = []
        try:
            with shelf.indexing(wait_s=wait_s) as index:
                try:
                    self._take(held, wait_s=wait_s)
                    with index.transaction():
                        for opened in held:
                            shelf.put(opened)
                finally:
                    for opened in held:
                        opened.log.lock.release()
        except BlockingIOError:
            raise
        except (apsw.Error, OSError, KipuError):
            self._give_up()

    def _take(self, held: list[OpenLog], *, wait_s: float) -> None:
        """Lock the sessions in the order in which every commit does, each with its log as it is now."""
        for session_id in sorted(self._waiting):
            opened = self._shelf.take(session_id, wait_s=wait_s, shared=True)
            held.append(opened)
            self._shelf.refresh(opened)

    def _give_up(self) -> None:
        self._shelf.stale.update(self._waiting)
        self._waiting = set()
