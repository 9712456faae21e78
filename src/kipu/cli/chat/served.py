"""Which sessions' turns this chat runs: those it was asked to go on with, and no other work that happens to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kipu.manager.session import Session


class Served:
    """Say to the worker what it may take up.

    A session that was opened has its turns run here once a message of this chat waits in it, and its open turn once the person
    went on with it (a message, an answer, /retry). So looking at a session, or another chat's message in it, begins nothing.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.own: dict[str, set[int]] = {}
        self._going: set[str] = set()
        self._is_over = False

    def open(self, session: Session) -> set[int]:
        """Take a session in, and return the set that holds the seqs of its messages from here."""
        self.sessions[session.session_id] = session
        return self.own.setdefault(session.session_id, set())

    def go_on(self, session_id: str) -> None:
        """Let the open turn of a session go on here."""
        self._going.add(session_id)

    def goes_on(self, session_id: str) -> bool:
        """Return True where the open turn of a session goes on here."""
        return session_id in self._going

    def end(self) -> None:
        """Take up nothing more."""
        self._is_over = True

    def accepts(self, session_id: str) -> bool:
        """Return True where the worker may run the session's next turn."""
        session = self.sessions.get(session_id)
        if session is None or self._is_over:
            return False
        head = session.head
        if head.open_turn is not None:
            return session_id in self._going
        return bool(self.own[session_id].intersection(head.waiting))
