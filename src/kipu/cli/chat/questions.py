"""Questions to the person at the chat: what is asked, and what a line that answers says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from kipu.cli.number import number_in
from kipu.errors import InputError
from kipu.interop.printable import printable_line

if TYPE_CHECKING:
    from kipu.runtime.approvals import PendingApproval
    from kipu.runtime.policy.grant import GrantMatch
    from kipu.session.turn_story import OpenCall

Word: TypeAlias = Literal["yes", "no", "always", "edit"]
OPTIONS = "type and Enter: y yes · n [why] no · a always, in this session (a project · a user) · e edit"
WORDS_WANTED = "type your answer and Enter, or the number of a choice · /deny leaves it unanswered"
_WORDS: Mapping[str, Word] = {
    **dict.fromkeys(("y", "yes", "ok", "是", "好"), "yes"),
    **dict.fromkeys(("n", "no", "否", "不"), "no"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("e", "edit"), "edit"),
}
_ALONE = frozenset({"yes"})  # anything behind it makes it a message
_SCOPES = ("session", "project", "user")
_MATCHES = ("exact", "below")
# The one argument that people change, where a tool has it.
_MAIN = ("command", "content", "task")


@dataclass(frozen=True, slots=True)
class Question:
    """One call that waits for a person."""

    approval_id: str
    session_id: str
    tool: str
    arguments: Mapping[str, Any]
    shown: Mapping[str, Any] = field(default_factory=dict)
    call_id: str = ""

    @property
    def wants_words(self) -> bool:
        """Return True where the agent wants to know something, and asks for no permission."""
        return isinstance(self.shown.get("question"), str)

    @property
    def options(self) -> str:
        """Return how it can be answered."""
        return WORDS_WANTED if self.wants_words else OPTIONS

    def choice(self, line: str) -> str:
        """Return what a line says: one of the choices by its number, else the line itself."""
        choices, text = self.arguments.get("choices") or (), line.strip()
        number = number_in(text)
        return str(choices[number - 1]) if number is not None and 0 < number <= len(choices) else text

    @property
    def summary(self) -> str:
        """Return what is asked in one line."""
        said = self.shown.get("summary")
        return printable_line(said if isinstance(said, str) and said else self.tool)

    @property
    def diff(self) -> str | None:
        """Return the change as a diff where there is one."""
        diff = self.shown.get("diff")
        return diff if isinstance(diff, str) and diff else None

    @property
    def reason(self) -> str:
        """Return why it is asked, where that says more than that it always is."""
        said = printable_line(str(self.shown.get("reason") or ""))
        return "" if said.startswith("the default of ") else said

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "approval_id": self.approval_id,
            "session_id": self.session_id,
            "tool": self.tool,
            "arguments": dict(self.arguments),
            "shown": dict(self.shown),
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said: `reason` of a no, `scope` and `match` of an always, `text` behind an edit."""

    word: Word
    reason: str | None = None
    scope: Literal["session", "project", "user"] = "session"
    match: GrantMatch = "exact"
    text: str = ""


def question_of(session_id: str, call: OpenCall) -> Question | None:
    """Return the question that an open call waits with, if it does."""
    if call.request is None or call.decision is not None:
        return None
    return Question(
        call.request.approval_id,
        session_id,
        call.call.tool_name,
        call.call.tool_input,
        dict(call.request.shown),
        call.id,
    )


def pending_question(approval: PendingApproval) -> Question:
    """Return the question that waits for a person, a helper's too."""
    return Question(
        approval.approval_id,
        approval.session_id,
        approval.tool_name,
        approval.arguments,
        dict(approval.shown),
        approval.tool_call_id,
    )


def parse_answer(line: str) -> Answer | None:
    """Return what a line answers, or None for one that is no answer but a message."""
    first, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    word = _WORDS.get(first.casefold().rstrip(".,!"))
    if word is None or (word in _ALONE and rest):
        return None
    if word == "no":
        return Answer("no", reason=rest or None)
    if word == "edit":
        return Answer("edit", text=rest)
    if word == "always":
        scope, match = "session", "exact"
        for part in rest.split():
            if part in _SCOPES:
                scope = part
            elif part in _MATCHES:
                match = part
            else:
                return None  # "a file named x" is a message
        return Answer("always", scope=cast(Any, scope), match=cast(Any, match))
    return Answer("yes")


def editable(question: Question) -> str:
    """Return the text of a call that a person changes: its main argument, else all arguments as JSON."""
    main = _main_of(question)
    if main is not None:
        return str(question.arguments[main]).removesuffix("\n")
    return json.dumps(dict(question.arguments), ensure_ascii=False, indent=1)


def edited(question: Question, text: str) -> dict[str, Any]:
    """Return the arguments as a person wrote them. Raises: InputError."""
    main = _main_of(question)
    stripped = text.strip()
    if main is not None and not (stripped.startswith("{") and stripped.endswith("}") and _object(stripped)):
        ended = str(question.arguments[main]).endswith("\n") and not text.endswith("\n")
        return {**question.arguments, main: text + "\n" if ended else text}
    found = _object(stripped)
    if found is None:
        raise InputError(reason="that is no JSON object; the call still waits")
    return found


def _main_of(question: Question) -> str | None:
    return next((name for name in _MAIN if isinstance(question.arguments.get(name), str)), None)


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
