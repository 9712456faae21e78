"""How a chat is shown: drawn on a terminal, as plain text in a pipe, or as JSON lines for a program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kipu.interop.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

    from kipu.cli.output import Output


class Screen:
    """Show a chat as plain text: answers on stdout as they stream, everything else on stderr."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self._at_line_start = True

    @property
    def is_terminal(self) -> bool:
        """Return True where a person sits before it."""
        return False

    def piece(self, text: str) -> None:
        """Show the next piece of an answer."""
        shown = printable(text)
        self._write(shown)
        self._at_line_start = shown.endswith("\n") if shown else self._at_line_start

    def thought(self, text: str) -> None:
        """Show the next piece of reasoning: not in a pipe."""

    def end_answer(self, record: dict[str, Any]) -> None:
        """Finish an answer; `record` is what a program wants to know of it."""
        if not self._at_line_start:
            self._write("\n")
        self._at_line_start = True

    def say(self, text: str, *, style: str = "dim") -> None:
        """Show a message that is no answer."""
        self._fresh_line()
        self.output.say(text, style=style)

    def show(self, text: str) -> None:
        """Show a line that a command was asked for."""
        self._fresh_line()
        self._write(printable(text) + "\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show rows that a command was asked for."""
        self._fresh_line()
        self.output.table(columns, rows)

    def result(self, record: dict[str, Any]) -> None:
        """Give a program the result of a command."""

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _fresh_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")
            self._at_line_start = True


class JsonScreen(Screen):
    """Give a program one JSON line per turn and per command; what is said goes to stderr."""

    def piece(self, text: str) -> None:
        """Show nothing: the whole answer comes at its end."""

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

        self._write(orjson.dumps(record).decode() + "\n")


class TerminalScreen(Screen):
    """Show a chat on a terminal with rich."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._console: Console = output.console()
        self._is_thinking = False

    @property
    def is_terminal(self) -> bool:
        """Return True: a person sits before it."""
        return True

    def piece(self, text: str) -> None:
        """Show the next piece of an answer."""
        if self._is_thinking:
            self._is_thinking = False
            self._fresh_line()
        super().piece(text)

    def thought(self, text: str) -> None:
        """Show the next piece of reasoning, dimmed."""
        self._is_thinking = True
        shown = printable(text)
        self._print(shown, style="dim italic", end="")
        self._at_line_start = shown.endswith("\n") if shown else self._at_line_start

    def say(self, text: str, *, style: str = "dim") -> None:
        """Show a message that is no answer."""
        self._fresh_line()
        self._print(printable(text), style=style, end="\n")

    def _write(self, text: str) -> None:
        self._print(text, style="", end="")

    def _print(self, text: str, *, style: str, end: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, style=style), end=end, soft_wrap=True)
        self._console.file.flush()


def screen_for(output: Output) -> Screen:
    """Return the screen for where stdout leads."""
    if output.json:
        return JsonScreen(output)
    return TerminalScreen(output) if output.rich else Screen(output)
