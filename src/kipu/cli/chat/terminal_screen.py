"""A chat on a terminal: finished text is printed once, above; what still moves stands in a live area by the input line."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kipu.cli.chat.answer_blocks import AnswerBlocks
from kipu.cli.chat.live_area import TAIL_LINES, LiveArea
from kipu.cli.chat.questions import Question
from kipu.cli.chat.screen import Screen, Work
from kipu.interop.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.theme import Theme

    from kipu.cli.chat.editor import EditedLines
    from kipu.cli.output import Output

LONGEST_DIFF_LINES = 200


class TerminalScreen(Screen):
    """Draw with rich. Everything is printed in the order of the calls, each line once and whole."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._console: Console = output.console()
        # The real file: what an input line puts in the place of stdout would print later, and out of order.
        self._console.file = self._console.file
        self._console.push_theme(_theme())
        self.live = LiveArea(time.monotonic)
        self._blocks = AnswerBlocks()
        self._above: Callable[[Callable[[], None]], None] | None = None
        self.on_change: Callable[[], None] = _nothing

    @property
    def is_terminal(self) -> bool:
        """Return True: a person sits before it."""
        return True

    @property
    def live_area(self) -> LiveArea | None:
        """Return what moves by the input line."""
        return self.live

    def attach(self, lines: EditedLines | None) -> None:
        """Print above this input line from now on."""
        self._above = lines.above if lines is not None else None
        self.on_change = lines.redraw if lines is not None else _nothing

    # ---- answers ---------------------------------------------------------------------------------------------------

    def piece(self, text: str) -> None:
        """Print the paragraphs that this piece finishes; the rest moves."""
        self._end_thought()
        blocks = self._blocks.feed(text)
        self._print_blocks(blocks, tail=self._blocks.last_lines(TAIL_LINES))

    def thought(self, text: str) -> None:
        """Show the next piece of reasoning, dimmed."""
        self.live.thought += text
        self.on_change()

    def end_message(self) -> None:
        """Print what is left of what was said."""
        self._end_thought()
        self._print_blocks(self._blocks.finish(), tail="")
        self._blocks = AnswerBlocks()

    def forget_message(self) -> None:
        """Drop what moves; what was printed is followed by what comes instead."""
        self._blocks = AnswerBlocks()
        self.live.tail = self.live.thought = ""
        self.on_change()

    def end_answer(self, record: dict[str, Any]) -> None:
        """Finish a turn."""
        self.end_message()
        self.live.calls.clear()
        self.on_change()

    def leave_session(self) -> None:
        """Put away what still moves."""
        self.end_message()
        self.live.calls.clear()
        self.live.questions.clear()
        self.live.set_work(Work())
        self.on_change()

    def _end_thought(self) -> None:
        thought, self.live.thought = self.live.thought.strip(), ""
        if thought:
            self._print_text(thought, style="dim italic")

    def _print_blocks(self, blocks: Sequence[str], *, tail: str) -> None:
        if not blocks:
            self.live.tail = tail
            self.on_change()
            return

        def draw() -> None:
            self.live.tail = tail
            for block in blocks:
                self._console.print()
                self._console.print(_markdown(block))

        self._draw(draw)

    # ---- tools -----------------------------------------------------------------------------------------------------

    def call(self, call_id: str, line: str) -> None:
        """Show a call as running."""
        self.live.begin_call(call_id, line)
        self.on_change()

    def call_output(self, call_id: str, text: str) -> None:
        """Show the last lines of what it says."""
        self.live.add_output(call_id, text)
        self.on_change()

    def call_ended(self, call_id: str, line: str, *, result: str, is_error: bool, tail: Sequence[str] = ()) -> None:
        """Fold it to a line and how it ended."""

        def draw() -> None:
            self.live.calls.pop(call_id, None)
            self._line(f"● {line}", "red" if is_error else "green")
            for shown in (*tail, result):
                self._line(f"  ⎿ {shown}" if shown is result else f"  │ {shown}", "red" if is_error else "dim")

        self._draw(draw)

    def ask(self, question: Question) -> None:
        """Print what is asked with its diff; the question itself stays by the input line until it is decided."""

        def draw() -> None:
            self._line(f"? {question.summary}", "bold yellow")
            if question.diff is not None:
                self._console.print(_diff(question.diff), soft_wrap=False)
            why = f"{question.reason} · " if question.reason else ""
            self._line(f"  {why}{question.approval_id}", "dim")
            if not self.is_live:
                self._line(f"  {question.options}", "yellow")
            self.live.questions[question.approval_id] = question

        self._draw(draw)

    def close_question(self, approval_id: str) -> None:
        """Take a question back that is decided."""
        self.live.questions.pop(approval_id, None)
        self.on_change()

    def diff(self, text: str) -> None:
        """Show a diff in colours."""
        self._draw(lambda: self._console.print(_diff(text), soft_wrap=False))

    def show_diff(self, text: str) -> None:
        """Show a diff that a command was asked for."""
        self.diff(text)

    # ---- everything else -------------------------------------------------------------------------------------------

    def work(self, work: Work) -> None:
        """Show what goes on."""
        self.live.set_work(work)
        if not work.is_running:
            self.live.calls.clear()
        self.on_change()

    def say(self, text: str, *, style: str = "dim") -> None:
        """Show a message that is no answer, wrapped at words."""
        self._draw(lambda: self._line(text, style, is_prose=True))

    def show(self, text: str) -> None:
        """Show a line that a command was asked for."""
        self._print_text(text, style="")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show rows that a command was asked for."""
        from kipu.cli.drawn_table import print_table

        self._draw(lambda: print_table(self._console, columns, rows=rows))

    def _print_text(self, text: str, *, style: str) -> None:
        self._draw(lambda: self._line(text, style))

    def _line(self, text: str, style: str, *, is_prose: bool = False) -> None:
        from rich.text import Text

        self._console.print(Text(printable(text), style=style), soft_wrap=not is_prose)

    def _draw(self, draw: Callable[[], None]) -> None:
        if self._above is not None:
            self._above(draw)
        else:
            draw()
            self._console.file.flush()


def _nothing() -> None:
    """Redraw nothing: there is no input line."""


def _theme() -> Theme:
    from rich.theme import Theme

    return Theme({"markdown.code": "cyan"})


def _markdown(text: str) -> RenderableType:
    from kipu.cli.chat.markdown import AnswerText

    return AnswerText(printable(text))


def _diff(text: str) -> RenderableType:
    """Return a unified diff in colours, cut where it is very long."""
    from rich.text import Text

    lines = printable(text).rstrip("\n").split("\n")
    drawn = Text()
    for line in lines[:LONGEST_DIFF_LINES]:
        drawn.append(f"  {line}\n", style=_diff_style(line))
    if len(lines) > LONGEST_DIFF_LINES:
        drawn.append(f"  … {len(lines) - LONGEST_DIFF_LINES} more lines\n", style="dim")
    drawn.right_crop(1)
    return drawn


def _diff_style(line: str) -> str:
    if line.startswith(("--- ", "+++ ", "diff ")):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    return "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
