"""What a person decides about calls: answers in the chat's line, changed arguments, decisions by id."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kipu.cli.chat.questions import Answer, Question, editable, edited, parse_answer
from kipu.errors import ApprovalNotFoundError, InputError

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation
    from kipu.cli.chat.editor import EditedLines


class Answering:
    """Take answers to the oldest open question."""

    def __init__(self, chat: Conversation) -> None:
        self._chat = chat
        self._editing: Question | None = None
        self.lines: EditedLines | None = None

    @property
    def is_editing(self) -> bool:
        """Return True while the next line is the changed text of a call."""
        return self._editing is not None

    @property
    def question(self) -> Question | None:
        """Return the question that the next answer is for."""
        view = self._chat.view
        return next(iter(view.questions.values()), None) if view is not None else None

    async def take(self, line: str) -> bool:
        """Take a line if it is an answer. Raises: InputError, ApprovalNotFoundError (somebody else was first)."""
        changed, self._editing = self._editing, None
        if changed is not None:
            if line.strip() != "/cancel":
                await self._approve_edited(changed, line)
            return True
        question = self.question
        if question is not None and question.wants_words and not line.startswith("/"):
            await self.say(question, question.choice(line))
            return True
        answer = parse_answer(line) if question is not None else None
        if question is None or answer is None:
            return False
        await self._answer(question, answer)
        return True

    async def _answer(self, question: Question, answer: Answer) -> None:
        if answer.word == "edit":
            await self._edit(question, answer.text)
            return
        await self.decide(question, answer)

    async def decide(self, question: Question, answer: Answer) -> None:
        """Decide one question. Raises: ApprovalNotFoundError."""
        desk = self._chat.runtime.desk
        self._chat.served.go_on(question.session_id)
        try:
            if answer.word == "no":
                await desk.deny(question.approval_id, reason=answer.reason, session_id=question.session_id)
            else:
                await desk.approve(
                    question.approval_id,
                    scope=answer.scope if answer.word == "always" else "once",
                    match=answer.match,
                    session_id=question.session_id,
                )
        except ApprovalNotFoundError:
            self.forget(question)
            raise
        self.forget(question)

    async def say(self, question: Question, text: str) -> None:
        """Answer a question of the agent's. Raises: ApprovalNotFoundError."""
        self._chat.served.go_on(question.session_id)
        try:
            await self._chat.runtime.desk.answer(question.approval_id, text, session_id=question.session_id)
        finally:
            self.forget(question)

    def forget(self, question: Question) -> None:
        """Ask it no more."""
        view = self._chat.view
        if view is not None:
            view.questions.pop(question.approval_id, None)
        self._chat.screen.close_question(question.approval_id)

    # ---- changed arguments -----------------------------------------------------------------------------------------

    async def _edit(self, question: Question, text: str) -> None:
        if text:
            await self._approve_edited(question, text)
            return
        before = editable(question)
        if self.lines is None:
            self._editing = question
            self._chat.screen.say(f"write it as it is to be, in one line; now it is: {before}", style="yellow")
            return
        program = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if "\n" in before.rstrip("\n") and program:
            after = await _edited_elsewhere(before, program, self.lines)
            if after is None:
                raise InputError(reason="the editor did not end well; the call still waits")
            await self._approve_edited(question, after)
            return
        self._editing = question
        self._chat.screen.say("change it and press Enter; /cancel leaves it as it was", style="yellow")
        self.lines.prefill(before)

    async def _approve_edited(self, question: Question, text: str) -> None:
        arguments = edited(question, text)
        self._chat.served.go_on(question.session_id)
        is_same = arguments == dict(question.arguments)
        await self._chat.runtime.desk.approve(
            question.approval_id, arguments=None if is_same else arguments, session_id=question.session_id
        )
        self.forget(question)


async def _edited_elsewhere(text: str, program: str, lines: EditedLines) -> str | None:
    """Return the text as a program of the person's left it; None where it did not end well. Raises: InputError."""
    path = await asyncio.to_thread(_kept, text)
    try:
        async with lines.lent():
            process = await asyncio.create_subprocess_exec(*shlex.split(program), str(path))
            code = await process.wait()
        return await asyncio.to_thread(path.read_text, encoding="utf-8") if code == 0 else None
    except (OSError, ValueError) as error:  # no such program, quotes that do not end, a text that is no UTF-8
        raise InputError(reason=f"the editor {program!r} cannot be used ({error}); the call still waits") from error
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


def _kept(text: str) -> Path:
    handle, name = tempfile.mkstemp(prefix="kipu-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(name)
