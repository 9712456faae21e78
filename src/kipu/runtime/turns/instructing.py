"""What a session's model is told first: its own instruction, with what its owner approved since (C26)."""

from __future__ import annotations

from kipu.events.conversation import InstructionEvent
from kipu.manager.access import owner_of
from kipu.manager.session import Session
from kipu.proposals.learned import LearnedSource, with_section
from kipu.runtime.policy.grants import project_of


class Instructing:
    """Say which instruction has to be appended before a turn asks the model, if any.

    A session is told `instruction` once, and after that only what changed of what was learned: an approval and its reverting
    reach every session of the person with its next turn. What a program told a session itself stays as it is.
    """

    def __init__(self, session: Session, *, instruction: str | None, learned: LearnedSource | None) -> None:
        self._session = session
        self._instruction = instruction
        self._learned = learned
        self._told: tuple[int, str] | None = None  # the instruction known to hold this section

    async def due(self, *, is_answering: bool) -> InstructionEvent | None:
        """Return what to append; in a turn that has an answer already only what the session has none of at all."""
        seq = self._session.head.instruction_seq
        if not seq:
            section = await self._section() if self._instruction else ""
            return InstructionEvent(content=with_section(self._instruction, section)) if self._instruction else None
        if is_answering or self._learned is None:
            return None
        section = await self._section()
        if self._told == (seq, section):
            return None
        item = (await self._session.history.reader.at([seq])).get(seq)
        if item is None or not isinstance(item.event, InstructionEvent):
            return None  # damaged: what is shown in its place is not for this to say
        wanted = with_section(item.event.content, section)
        if wanted != item.event.content:
            return InstructionEvent(content=wanted)
        self._told = (seq, section)
        return None

    async def _section(self) -> str:
        if self._learned is None:
            return ""
        session = self._session
        learned = await self._learned.learned(owner_of(session.head), project=project_of(session))
        return learned.section()
