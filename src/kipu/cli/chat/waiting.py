"""Waiting for answers where lines come one by one: the next line is read only when nothing runs, or when a person is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kipu.cli.chat.questions import Question, parse_answer
from kipu.cli.exit_code import ExitCode

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation
    from kipu.cli.chat.lines import LineReader
    from kipu.cli.chat.turn_view import TurnView


class Waiting:
    """Hold the lines of a chat back, and give them to whoever asks. With `is_live` lines nobody waits."""

    def __init__(self, chat: Conversation) -> None:
        self._chat = chat
        self._is_waiting = False
        self._changed = asyncio.Event()
        self.reader: LineReader | None = None
        self.is_live = False

    async def settle(self) -> None:
        """Where lines come one by one, return when nothing runs any more."""
        if not self.is_live and not self._is_waiting:
            await self.wait_for(None)

    async def wait_for(self, seq: int | None) -> None:
        """Return when a message has its answer, or without one when nothing runs; questions meanwhile take the next lines."""
        was_waiting, self._is_waiting = self._is_waiting, True
        try:
            await self._wait_for(seq)
        finally:
            self._is_waiting = was_waiting

    async def _wait_for(self, seq: int | None) -> None:
        while self._chat.view is not None:
            self._changed.clear()
            view = self._chat.view
            if seq is not None and seq in view.settled:
                return
            if seq is None and self._is_settled(view):
                return
            if view.questions and (view.is_parked or self._helper_asks(view)):
                if not await self._ask_for_line(next(iter(view.questions.values()))):
                    return
                continue
            await self._changed.wait()
            self._chat.check_watching()

    def wake(self) -> None:
        """Have whoever waits look again."""
        self._changed.set()

    def _helper_asks(self, view: TurnView) -> bool:
        here = self._chat.session.session_id if self._chat.session is not None else None
        return any(question.session_id != here for question in view.questions.values())

    def _is_settled(self, view: TurnView) -> bool:
        """Return True where nothing runs, nothing of this chat waits, and all of it was shown."""
        session = self._chat.session
        if session is None:
            return True
        is_all_shown = view.seen_seq >= session.history.last_seq
        is_at_work = session.head.open_turn is not None and self._chat.served.goes_on(session.session_id)
        return not is_at_work and not self.own_waits() and is_all_shown

    def own_waits(self) -> bool:
        """Return True while a message of this chat waits in the session."""
        session = self._chat.session
        if session is None:
            return False
        return bool(self._chat.served.own[session.session_id].intersection(session.head.waiting))

    async def _ask_for_line(self, question: Question) -> bool:
        """Take the next line as the answer, unless somebody else answers first; False when there are no more lines."""
        reader = self.reader
        if reader is None:
            return False
        changed = asyncio.ensure_future(self._changed.wait())
        waits: set[asyncio.Future[Any]] = {reader.coming, changed}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()
        if not reader.coming.done():
            return True
        line = await reader.take()
        if line is None:
            self._tell_parked(question)
            return False
        await self.handle_while_asked(line)
        return not self._chat.is_over

    async def handle_while_asked(self, line: str) -> None:
        """Take a line that came while a person is asked: an answer, a command; anything else waits its turn."""
        text = line.strip()
        answering = self._chat.answering
        wants_words = answering.question is not None and answering.question.wants_words
        if not text or text.startswith("/") or answering.is_editing or wants_words or parse_answer(text):
            await self._chat.handle(line)
            return
        is_live, self.is_live = self.is_live, True  # not waited for here: the question comes first
        try:
            await self._chat.handle(line)
            self._chat.screen.say("that is no answer, so it waits as your next message", style="yellow")
        finally:
            self.is_live = is_live

    def _tell_parked(self, question: Question) -> None:
        view, session = self._chat.view, self._chat.require_session()
        asked = [] if view is None else list(view.questions.values())
        self._chat.code = ExitCode.PARKED
        turn_id = view.turn.turn_id if view is not None and view.turn is not None else None
        self._chat.screen.result(
            {
                "session_id": session.session_id,
                "turn_id": turn_id,
                "outcome": "parked",
                "questions": [each.to_json() for each in asked],
            }
        )
        first = (asked or [question])[0]
        command = f"answer {first.approval_id} TEXT" if first.wants_words else f"approve {first.approval_id}"
        more = f" (and {len(asked) - 1} more: kipu approvals)" if len(asked) > 1 else ""
        self._chat.screen.say(f"the turn stays parked until somebody decides: kipu {command}{more}", style="yellow")
