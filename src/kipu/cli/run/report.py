"""What `kipu run` writes: for people the answer on stdout and progress on stderr, for programs events line by line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from kipu.cli.exit_code import ExitCode
from kipu.cli.redaction_settings import told
from kipu.cli.transcript import event_json
from kipu.events.boundary import CompactionEvent
from kipu.events.content import text_of
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent
from kipu.events.turn import ApprovalDecisionEvent, TurnResumedEvent
from kipu.interop.printable import printable, printable_line
from kipu.ports.model import ReasoningDelta, TextDelta
from kipu.runtime.observer import ModelNews, News, RetryNews, ToolNews
from kipu.session.terms import event_text

if TYPE_CHECKING:
    from kipu.cli.output import Output
    from kipu.cli.run.task_run import RunOutcome
    from kipu.events.event import SessionEvent
    from kipu.manager.session import Session
    from kipu.runtime.approvals import PendingApproval

SHOWN_CHARACTERS = 160
DIFF_LINES = 60


class Report(Protocol):
    """Show a run as it goes."""

    def begin(self, session: Session, *, is_new: bool) -> None:
        """Say where it runs."""
        ...

    def event(self, event: SessionEvent) -> None:
        """Show an event as it was stored."""
        ...

    def news(self, news: News) -> None:
        """Show what streams."""
        ...

    def asks(self, approvals: Sequence[PendingApproval], *, waits: bool) -> None:
        """Show what a person is asked."""
        ...

    def finish(self, outcome: RunOutcome) -> None:
        """Show how it ended."""
        ...


def report_for(output: Output, *, deltas: bool, quiet: bool) -> Report:
    """Return the report for whoever reads this output."""
    return JsonReport(output, deltas=deltas) if output.json else PersonReport(output, quiet=quiet)


class JsonReport:
    """Write every event as it is stored, one JSON object a line, and last an object of the type `run_result`."""

    def __init__(self, output: Output, *, deltas: bool) -> None:
        self._output = output
        self._deltas = deltas

    def begin(self, session: Session, *, is_new: bool) -> None:
        """Say nothing: every event names its session."""

    def event(self, event: SessionEvent) -> None:
        """Write the event as it is on disk and on the wire."""
        self._write(event_json(event))

    def news(self, news: News) -> None:
        """Write what streams, where that is wanted; it has no `seq`, for no log keeps it."""
        if not self._deltas:
            return
        about: dict[str, Any] = {"session_id": news.session_id, "turn_id": news.turn_id}
        if isinstance(news, ToolNews):
            about |= {"event_type": "tool_delta", "tool_call_id": news.call_id, "text": news.text}
        elif not isinstance(news, RetryNews | ModelNews):
            return
        elif isinstance(news, RetryNews):
            about |= {"event_type": "model_retry", "reason": news.reason, "wait_s": news.wait_s}
        elif isinstance(news.event, TextDelta):
            about |= {"event_type": "text_delta", "text": news.event.text}
        elif isinstance(news.event, ReasoningDelta):
            about |= {"event_type": "reasoning_delta", "text": news.event.text}
        else:
            return
        self._write(about)

    def asks(self, approvals: Sequence[PendingApproval], *, waits: bool) -> None:
        """Say nothing: the requests are events."""

    def finish(self, outcome: RunOutcome) -> None:
        """Write the result."""
        answer = outcome.answer
        self._write(
            {
                "event_type": "run_result",
                "session_id": outcome.session_id,
                "turn_id": outcome.turn_id,
                "outcome": outcome.outcome,
                "exit_code": int(outcome.code),
                "error": outcome.error,
                "answer": None if answer is None else text_of(answer.content),
                "usage": outcome.usage,
                "approvals": [approval.to_json() for approval in outcome.approvals],
            }
        )

    def _write(self, value: dict[str, Any]) -> None:
        self._output.write(orjson.dumps(value, default=str).decode() + "\n")
        sys.stdout.flush()


class PersonReport:
    """Write the answer to stdout, as it streams on a terminal and whole in a pipe; everything else to stderr."""

    def __init__(self, output: Output, *, quiet: bool) -> None:
        self._output = output
        self._quiet = quiet
        self._streams = sys.stdout.isatty()
        self._has_streamed = False
        self._has_begun = False
        self._at_line_start = True

    def begin(self, session: Session, *, is_new: bool) -> None:
        """Say which session it is, and where it works."""
        workspace = session.head.workspace or {}
        place = str(workspace.get("path", "-"))
        if workspace.get("saved") and not Path(place).is_dir():
            place = "a directory of its own, which the store keeps"  # the path is another machine's
        self._say(f"{'session' if is_new else 'going on in'} {session.session_id} in {place}")

    def event(self, event: SessionEvent) -> None:
        """Say what is done."""
        if isinstance(event, AgentMessageEvent):
            self._answered(event)
        elif isinstance(event, ToolCallEvent):
            self._say(f"→ {event.tool_name} {_short(event.raw or _arguments(event))}".rstrip())
        elif isinstance(event, ToolResultEvent):
            self._say(f"  {'failed: ' if event.is_error else ''}{_short(event_text(event))}")
        elif isinstance(event, ApprovalDecisionEvent):
            self._say(f"  {event.decision} by {event.by}{f': {event.reason}' if event.reason else ''}")
        elif isinstance(event, CompactionEvent):
            self._say("older history is summarised")
        elif isinstance(event, TurnResumedEvent) and not self._has_begun:
            self._say("goes on with the open turn")
        left_out = told(event.normalised)
        if left_out is not None:
            self._say(f"  {left_out}; `kipu config set redaction off` keeps them")
        self._has_begun = True

    def news(self, news: News) -> None:
        """Show the answer as it streams, on a terminal."""
        if isinstance(news, RetryNews):
            self._say(f"{news.reason}; again in {news.wait_s:.1f} s")
        elif self._streams and isinstance(news, ModelNews) and isinstance(news.event, TextDelta):
            self._piece(news.event.text)
            self._has_streamed = True

    def asks(self, approvals: Sequence[PendingApproval], *, waits: bool) -> None:
        """Show the questions, and how to answer them."""
        self._fresh_line()
        for approval in approvals:
            for line in question_lines(approval):
                self._output.say(line, style="yellow")
        if waits:
            self._output.say("waits for that; Ctrl-C stops the turn", style="yellow")

    def finish(self, outcome: RunOutcome) -> None:
        """Write the answer where it was not streamed, and say what a script cannot see in the exit code."""
        self._fresh_line()
        if outcome.answer is not None and outcome.outcome == "completed" and not self._streams:
            text = printable(text_of(outcome.answer.content))
            self._output.write(text if text.endswith("\n") else text + "\n")
        if outcome.approvals:
            self.asks(outcome.approvals, waits=False)
            self._output.say(f"the turn waits; then go on with: kipu run --resume {outcome.session_id}", style="yellow")
        elif outcome.code is ExitCode.HANDED_OVER:
            self._output.say(f"the turn is left open; go on with: kipu run --resume {outcome.session_id}")
        elif outcome.code is ExitCode.INTERRUPTED:
            self._output.say("interrupted; what had come is kept")
        elif outcome.code is not ExitCode.OK:
            about = outcome.error or "somebody asked it to end"
            self._output.say(f"the turn {_ENDS.get(outcome.code, 'ended')}: {about}", style="red")

    def _answered(self, event: AgentMessageEvent) -> None:
        if self._streams:
            if not self._has_streamed:  # it was answered in another process
                self._piece(text_of(event.content))
            self._has_streamed = False
            self._fresh_line()

    def _piece(self, text: str) -> None:
        shown = printable(text)
        if shown:
            sys.stdout.write(shown)
            sys.stdout.flush()
            self._at_line_start = shown.endswith("\n")

    def _fresh_line(self) -> None:
        if not self._at_line_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._at_line_start = True

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._fresh_line()
            self._output.say(text)


_ENDS = {
    ExitCode.TURN_FAILED: "failed",
    ExitCode.LIMIT: "came to a limit",
    ExitCode.STOPPED: "was stopped",
}


def question_lines(approval: PendingApproval) -> list[str]:
    """Return what a person is to see of a question, with the commands that answer it."""
    shown = approval.shown
    lines = [
        f"{approval.tool_name} asks: {printable_line(str(shown.get('summary') or _short(str(dict(approval.arguments)))))}"
    ]
    if shown.get("reason"):
        lines.append(f"  why: {printable_line(str(shown['reason']))}")
    diff = str(shown.get("diff") or "").splitlines()
    lines += [f"  {line}" for line in diff[:DIFF_LINES]]
    if len(diff) > DIFF_LINES:
        lines.append(f"  … {len(diff) - DIFF_LINES} more lines: kipu approvals --json {approval.session_id}")
    verb = "answer" if approval.question is not None else "approve"
    words = " TEXT" if approval.question is not None else ""
    return [*lines, f"  kipu {verb} {approval.approval_id}{words}  or  kipu deny {approval.approval_id}"]


def _arguments(event: ToolCallEvent) -> str:
    values = event.tool_input
    if len(values) == 1:
        return str(next(iter(values.values())))
    return " ".join(f"{name}={value}" for name, value in values.items())


def _short(text: str) -> str:
    line = printable_line(text)
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"
