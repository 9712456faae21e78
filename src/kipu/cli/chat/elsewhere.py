"""What happens beside the session that is shown: turns of those left behind, and questions of helpers that work for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kipu.cli.chat.questions import question_of
from kipu.errors import KipuError, StoreClosedError
from kipu.events.turn import ApprovalDecisionEvent, ApprovalRequestEvent, TurnFinishedEvent
from kipu.manager.loader import item_of
from kipu.runtime.turns.ancestry import bond_of
from kipu.runtime.turns.turn_run import read_story

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation
    from kipu.events.event import SessionEvent

_TOLD = frozenset({"turn_finished", "approval_request", "approval_decision"})


class Elsewhere:
    """Follow the whole store for the few events that a person wants to know of although they look elsewhere."""

    def __init__(self, chat: Conversation) -> None:
        self._chat = chat
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Look from now on."""
        self._task = asyncio.ensure_future(self._follow())

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self) -> None:
        with suppress(StoreClosedError):
            async for stored in self._chat.manager.store.follow(types=_TOLD):
                if stored.session_id == self._here:
                    continue
                with suppress(KipuError):  # it is not ours, or cannot be read
                    await self._tell(stored.session_id, item_of(stored).event)

    @property
    def _here(self) -> str | None:
        return self._chat.session.session_id if self._chat.session is not None else None

    async def _tell(self, session_id: str, event: SessionEvent) -> None:
        if isinstance(event, ApprovalDecisionEvent):
            if self._chat.view is not None and self._chat.view.questions.pop(event.approval_id, None) is not None:
                self._chat.screen.close_question(event.approval_id)
        elif session_id in self._chat.served.sessions:
            self._tell_session(session_id, event)
        elif isinstance(event, ApprovalRequestEvent):
            await self._ask_for_helper(session_id, event)

    def _tell_session(self, session_id: str, event: SessionEvent) -> None:
        title = self._chat.served.sessions[session_id].title
        if isinstance(event, TurnFinishedEvent):
            self._chat.screen.say(f"“{title}”: its turn is {event.outcome} (/switch {session_id})", style="cyan")
        elif isinstance(event, ApprovalRequestEvent):
            summary = str(event.shown.get("summary") or event.shown.get("tool"))
            self._chat.screen.say(f"“{title}” asks: {summary} (/switch {session_id})", style="yellow")

    async def _ask_for_helper(self, session_id: str, event: ApprovalRequestEvent) -> None:
        """Ask here what a helper asks that works for the session shown, directly or through another helper."""
        child = await self._chat.manager.open(session_id)
        head, steps = child.head, 0
        while (parent := _parent_of(head.metadata)) is not None and parent != self._here and steps < 5:
            head, steps = (await self._chat.manager.open(parent)).head, steps + 1
        if parent is None or parent != self._here or self._chat.view is None:
            return
        await child.refresh()
        story = await read_story(child)
        call = story.calls.get(event.tool_call_id)
        question = question_of(session_id, call) if call is not None else None
        if question is not None:
            self._chat.screen.say(f"a helper asks ({session_id}):", style="yellow")
            self._chat.view.ask(question)
            self._chat.waiting.wake()


def _parent_of(metadata: Mapping[str, object]) -> str | None:
    bond = bond_of(metadata)
    return None if bond is None else bond.session_id
