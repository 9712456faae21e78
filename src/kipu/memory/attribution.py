"""Whose word a lesson is: a session's owner speaks for themselves, and nobody else in the session does (A19). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kipu.events.conversation import UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.memory.fact_text import Lesson
from kipu.memory.place import MemoryPlace

NOT_OWNER = "not_the_owner"
"""Finding of a fact that rests on the word of somebody else than the session's owner and would count outside their chat."""


class Speakers:
    """Know who said what in a stretch of a log. Where several senders write under one principal, none of them is the owner."""

    def __init__(self, events: Iterable[SessionEvent], *, owner: str) -> None:
        self._messages = {event.seq: event for event in events if isinstance(event, UserMessageEvent)}
        self._owner = owner
        self._are_several = len({event.sender_id for event in self._messages.values() if event.sender_id}) > 1

    def attributed(self, lesson: Lesson, *, place: MemoryPlace) -> Lesson:
        """Return the lesson in the scope that its speaker may give it: others' words count in their own chat, under their names.

        Elsewhere they wait for the owner.
        """
        others = [self._messages[seq] for seq in lesson.seqs if seq in self._messages and self._is_other(seq)]
        scope = lesson.scope or place.narrowest
        if not others:
            return replace(lesson, scope=scope)
        scope = place.narrowest if scope in ("user", "tenant") else scope
        if scope == "project" and not place.is_project_a_chat:
            return replace(lesson, scope=scope, findings=(*lesson.findings, NOT_OWNER))
        if lesson.kind == "preference":
            speaker = others[-1].sender_id or others[-1].principal or "somebody"
            return replace(lesson, scope=scope, text=f"{speaker}: {lesson.text}")
        return replace(lesson, scope=scope)

    def _is_other(self, seq: int) -> bool:
        return self._are_several or self._messages[seq].principal != self._owner
