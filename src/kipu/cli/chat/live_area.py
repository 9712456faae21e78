"""What moves above the input line: the growing end of an answer, running calls, a question, and what goes on. Pure but for time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kipu.cli.chat.call_lines import last_lines, shortened
from kipu.cli.chat.questions import Question
from kipu.cli.chat.screen import Work
from kipu.interop.printable import printable

TAIL_LINES = 8
THOUGHT_LINES = 3
OUTPUT_KEPT = 8_000
LOOKED_AT = 8_000  # characters of a tail: what stands before them is not in its last lines
_TURNING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
Line = tuple[str, str]  # style, text


@dataclass(slots=True)
class RunningCall:
    """A call that runs: its line, when it began, the end of its output."""

    line: str
    since_s: float
    output: str = ""


@dataclass(slots=True)
class LiveArea:
    """Hold it, and give its lines; at most half of the terminal's height."""

    now_s: Callable[[], float]
    tail: str = ""
    thought: str = ""
    calls: dict[str, RunningCall] = field(default_factory=dict)
    questions: dict[str, Question] = field(default_factory=dict)
    work: Work = field(default_factory=Work)
    since_s: float = 0.0

    @property
    def moves(self) -> bool:
        """Return True while its lines change by themselves."""
        return self.work.is_running

    def begin_call(self, call_id: str, line: str) -> None:
        """Show a call as running."""
        self.calls[call_id] = RunningCall(line, self.now_s())

    def add_output(self, call_id: str, text: str) -> None:
        """Keep the end of what a call says."""
        call = self.calls.get(call_id)
        if call is not None:
            call.output = (call.output + text)[-OUTPUT_KEPT:]

    def set_work(self, work: Work) -> None:
        """Show what goes on."""
        if work.is_running and not self.work.is_running:
            self.since_s = self.now_s()
        self.work = work

    def lines(self, *, width: int, height: int) -> list[Line]:
        """Return the lines from top to bottom, each within `width`."""
        found: list[Line] = []
        if self.thought and not self.tail:
            found += [("class:thought", line) for line in _wrapped(self.thought, width)[-THOUGHT_LINES:]]
        if self.tail:
            found += [("", line) for line in _wrapped(self.tail, width)[-TAIL_LINES:]]
        asked = list(self.questions.values())
        undecided = {question.call_id for question in asked}
        for call_id, call in self.calls.items():
            if call_id in undecided:
                continue
            found.append(("class:call", shortened(f"● {call.line}  {self._seconds(call.since_s)}", width)))
            found += [("class:output", f"  │ {line}") for line in last_lines(call.output, width=max(10, width - 6))]
        found = found[-max(2, height // 2 - 3) :]
        if asked:
            first = asked[0]
            which = "your answer?" if first.wants_words else "allow?"
            which = which if len(asked) == 1 else f"{which} {first.summary}  (1 of {len(asked)})"
            found.append(("class:question", shortened(which, width)))
            found.append(("class:options", shortened(f"  {first.options}", width)))
        status = self._status(bool(asked))
        return [*found, ("class:status", shortened(status, width))] if status else found

    def _status(self, is_asked: bool) -> str:
        queued = f"queued ({self.work.waiting})" if self.work.waiting else ""
        if not self.work.is_running:
            return " · ".join(part for part in (queued, self.work.note) if part)
        turning = _TURNING[int(self.now_s() * 8) % len(_TURNING)]
        doing = "waits for you" if is_asked else f"{turning} working {self._seconds(self.since_s)}"
        return " · ".join(part for part in (doing, self.work.note, "Esc stops", queued) if part)

    def _seconds(self, since_s: float) -> str:
        seconds = max(0, int(self.now_s() - since_s))
        return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60} s"


def _wrapped(text: str, width: int) -> list[str]:
    from rich.cells import chop_cells

    lines: list[str] = []
    for line in printable(text[-LOOKED_AT:]).expandtabs(4).split("\n")[-TAIL_LINES * 2 :]:
        lines += chop_cells(line, max(10, width - 1)) or [""]
    return lines
