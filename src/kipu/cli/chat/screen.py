"""How a chat is shown: as plain text in a pipe, or as JSON lines for a program. A terminal has a screen of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kipu.cli.chat.questions import Question
from kipu.interop.printable import printable

if TYPE_CHECKING:
    from kipu.cli.chat.editor import EditedLines
    from kipu.cli.chat.live_area import LiveArea
    from kipu.cli.output import Output


@dataclass(frozen=True, slots=True)
class Work:
    """What goes on in the session now, for a status line."""

    is_running: bool = False
    waiting: int = 0
    note: str = ""


class Screen:
    """Show a chat as plain text: answers on stdout as they stream, everything else on stderr."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.is_live = False  # an input line shows what is asked
        self._at_line_start = True

    @property
    def is_terminal(self) -> bool:
        """Return True where a person sits before it."""
        return False

    # ---- answers ---------------------------------------------------------------------------------------------------

    def piece(self, text: str) -> None:
        """Show the next piece of an answer."""
        shown = printable(text)
        self._write(shown)
        self._at_line_start = shown.endswith("\n") if shown else self._at_line_start

    def thought(self, text: str) -> None:
        """Show the next piece of reasoning: not in a pipe."""

    def end_message(self) -> None:
        """Finish what was said, such as before a call."""
        self._fresh_line()

    def forget_message(self) -> None:
        """Begin what is being said anew: it is asked for again, and what had come does not count."""
        self._fresh_line()

    def end_answer(self, record: dict[str, Any]) -> None:
        """Finish a turn; `record` is what a program wants to know of it."""
        self._fresh_line()

    def leave_session(self) -> None:
        """Put away what still moves: another session is shown from now on."""
        self.end_message()

    # ---- tools -----------------------------------------------------------------------------------------------------

    def call(self, call_id: str, line: str) -> None:
        """Show that a call is made."""
        self.say(f"• {line}", style="cyan")

    def call_output(self, call_id: str, text: str) -> None:
        """Show a piece of a running call's output: not in a pipe."""

    def call_ended(self, call_id: str, line: str, *, result: str, is_error: bool, tail: Sequence[str] = ()) -> None:
        """Show how a call ended."""
        self.say(f"  {result}", style="red" if is_error else "dim")

    def ask(self, question: Question) -> None:
        """Show what a person is asked."""
        if question.diff is not None:
            self.diff(question.diff)
        why = f" ({question.reason})" if question.reason else ""
        asks = "the agent asks:" if question.wants_words else "allow?"
        self.say(f"{asks} {question.summary}{why}  [{question.approval_id}]", style="bold yellow")
        self.say(f"  {question.options}", style="yellow")

    def close_question(self, approval_id: str) -> None:
        """Take a question back that is decided."""

    def diff(self, text: str) -> None:
        """Show a unified diff beside the conversation."""
        self._fresh_line()
        self.output.say(printable(text).rstrip("\n"), style="")

    # ---- everything else -------------------------------------------------------------------------------------------

    def work(self, work: Work) -> None:
        """Show what goes on: not in a pipe."""

    def say(self, text: str, *, style: str = "dim") -> None:
        """Show a message that is no answer."""
        self._fresh_line()
        self.output.say(text, style=style)

    def show(self, text: str) -> None:
        """Show a line that a command was asked for."""
        self._fresh_line()
        self._write(printable(text) + "\n")

    def show_diff(self, text: str) -> None:
        """Show a diff that a command was asked for."""
        self.show(text.rstrip("\n"))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show rows that a command was asked for."""
        self._fresh_line()
        self.output.table(columns, rows)

    def result(self, record: dict[str, Any]) -> None:
        """Give a program the result of a command."""

    @property
    def live_area(self) -> LiveArea | None:
        """Return what moves by the input line: only a terminal has it."""
        return None

    def attach(self, lines: EditedLines | None) -> None:
        """Print above this input line from now on, which stays in its place: only on a terminal."""

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _fresh_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")
            self._at_line_start = True


class JsonScreen(Screen):
    """Give a program one JSON line per turn, per question and per command; what is said goes to stderr."""

    def piece(self, text: str) -> None:
        """Show nothing: the whole answer comes at its end."""

    def call(self, call_id: str, line: str) -> None:
        """Show nothing: the turn's record has them."""

    def call_ended(self, call_id: str, line: str, *, result: str, is_error: bool, tail: Sequence[str] = ()) -> None:
        """Show nothing: the turn's record has them."""

    def ask(self, question: Question) -> None:
        """Write the question as one line; the next line of stdin answers it."""
        self.result({"question": question.to_json()})

    def show(self, text: str) -> None:
        """Show nothing: the command's record says it."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show nothing: the command's record says it."""

    def end_answer(self, record: dict[str, Any]) -> None:
        """Write the turn as one line."""
        self.result(record)

    def result(self, record: dict[str, Any]) -> None:
        """Write the record as one line."""
        import orjson

        self._write(orjson.dumps(record, default=str).decode() + "\n")


def screen_for(output: Output) -> Screen:
    """Return the screen for where stdout leads."""
    if output.json:
        return JsonScreen(output)
    if not output.rich:
        return Screen(output)
    from kipu.cli.chat.terminal_screen import TerminalScreen

    return TerminalScreen(output)
