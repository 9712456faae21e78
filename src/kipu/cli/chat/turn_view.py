"""From what happens in a session to what is shown, and what it means for whoever waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from kipu.cli.chat.call_lines import call_line, last_lines, result_line
from kipu.cli.chat.questions import Question, question_of
from kipu.cli.chat.screen import Screen, Work
from kipu.cli.redaction_settings import told
from kipu.events.boundary import CompactionEvent, NoteEvent
from kipu.events.content import text_of
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import (
    ApprovalDecisionEvent,
    ApprovalRequestEvent,
    MessageSettledEvent,
    TurnFinishedEvent,
    TurnParkedEvent,
    TurnResumedEvent,
    TurnStartedEvent,
    TurnSteeredEvent,
)
from kipu.ports.model import ReasoningDelta, TextDelta
from kipu.runtime.observer import LostNews, ModelNews, RetryNews, ToolNews
from kipu.session.turn_story import OpenCall, TurnStory

if TYPE_CHECKING:
    from kipu.manager.session import Session
    from kipu.runtime.live.watch import Happening

Handler: TypeAlias = Callable[[Any], None]


@dataclass(slots=True)
class ShownTurn:
    """A turn as far as it was shown."""

    turn_id: str
    consumes: list[int] = field(default_factory=list)
    is_ours: bool = True  # it runs in this process, or answers a message of this chat
    answer: AgentMessageEvent | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A finished turn."""

    turn: ShownTurn
    event: TurnFinishedEvent


class TurnView:
    """Show one session's turns on a screen as they happen, and keep which questions are open and which messages wait.

    `own` are the messages of this chat. On a terminal everything is shown, elsewhere only what runs here or answers them.
    `worker` is this process's name in the log.
    """

    def __init__(self, screen: Screen, session: Session, *, own: set[int], worker: str) -> None:
        self._screen = screen
        self._session = session
        self._own = own
        self._worker = worker
        self._has_streamed = False
        self._outputs: dict[str, str] = {}
        self.seen_seq = session.history.last_seq
        self.turn: ShownTurn | None = None
        self.is_parked = False
        self.runs = False
        self.calls: dict[str, OpenCall] = {}
        self.questions: dict[str, Question] = {}
        self.settled: dict[int, str] = {}  # messages that nobody waits for any more, and what became of them
        self.ends: list[TurnEnd] = []  # finished turns that were not told yet
        self._handlers: dict[type[Any], Handler] = {
            TurnStartedEvent: self._started,
            TurnSteeredEvent: self._steered,
            TurnResumedEvent: self._resumed,
            TurnParkedEvent: self._parked,
            TurnFinishedEvent: self._finished,
            MessageSettledEvent: self._settled,
            ModelNews: self._piece,
            RetryNews: self._retry,
            LostNews: self._lost,
            AgentMessageEvent: self._message,
            UserMessageEvent: self._user,
            CompactionEvent: self._compacted,
            NoteEvent: self._note,
            ToolCallEvent: self._call,
            ToolNews: self._output,
            ToolResultEvent: self._result,
            ApprovalRequestEvent: self._request,
            ApprovalDecisionEvent: self._decision,
        }

    def restore(self, story: TurnStory, *, is_parked: bool, runs: bool) -> None:
        """Go on with a turn that was open before this view was; `runs` says whether anybody works on it now."""
        self.turn = ShownTurn(story.turn_id, list(story.consumes), is_ours=False)  # until this process takes it up
        self.is_parked, self.runs = is_parked, runs
        self.calls = dict(story.calls)
        for call in story.open_calls:
            if call.starts and runs:
                self._screen.call(call.id, call_line(call.call.tool_name, call.call.tool_input))
            question = question_of(self._session.session_id, call)
            if question is not None:
                self.questions[question.approval_id] = question

    def take(self, happening: Happening) -> None:
        """Show one thing."""
        handler = self._handlers.get(type(happening))
        if handler is not None:
            handler(happening)
        if isinstance(happening, SessionEvent):
            self.seen_seq = happening.seq
            self._left_out(happening)
        self.refresh_work()

    def refresh_work(self) -> None:
        """Show what goes on, as the head says."""
        is_open = self.turn is not None and (self.runs or self.is_parked)
        self._screen.work(Work(is_open, waiting=len(self._session.head.waiting)))

    @property
    def is_shown(self) -> bool:
        """Return True where the running turn is shown."""
        return self._screen.is_terminal or self.turn is None or self.turn.is_ours

    # ---- turns -----------------------------------------------------------------------------------------------------

    def _started(self, event: TurnStartedEvent) -> None:
        ours = event.worker == self._worker or bool(self._own.intersection(event.consumes))
        self.turn, self.runs = ShownTurn(event.turn_id, list(event.consumes), is_ours=ours), True
        self.calls.clear()
        self._has_streamed = False

    def _steered(self, event: TurnSteeredEvent) -> None:
        if self.turn is not None:
            self.turn.consumes += event.consumes
            self.turn.is_ours = self.turn.is_ours or bool(self._own.intersection(event.consumes))
            if self._screen.is_terminal:
                self._screen.say("your message joined the turn", style="dim")

    def _resumed(self, event: TurnResumedEvent) -> None:
        self.is_parked, self.runs = False, True
        if self.turn is not None and event.worker == self._worker:
            self.turn.is_ours = True

    def _parked(self, _event: TurnParkedEvent) -> None:
        self.is_parked, self.runs = True, False

    def _finished(self, event: TurnFinishedEvent) -> None:
        turn = self.turn if self.turn is not None else ShownTurn(event.turn_id)
        for question in list(self.questions):
            self._close(question)
        if turn.is_ours or self._screen.is_terminal:
            self.ends.append(TurnEnd(turn, event))
        self.settled.update(dict.fromkeys(turn.consumes, event.outcome))
        self.turn, self.is_parked, self.runs = None, False, False
        self.calls.clear()

    def _settled(self, event: MessageSettledEvent) -> None:
        self.settled.update(dict.fromkeys(event.seqs, event.reason))

    # ---- answers ---------------------------------------------------------------------------------------------------

    def _piece(self, news: ModelNews) -> None:
        if not self.is_shown:
            return
        if isinstance(news.event, TextDelta):
            self._has_streamed = True
            self._screen.piece(news.event.text)
        elif isinstance(news.event, ReasoningDelta):
            self._screen.thought(news.event.text)

    def _lost(self, _news: LostNews) -> None:
        """Begin the message anew: what was shown of it is not its beginning, or nobody goes on with it."""
        if self._has_streamed:
            self._has_streamed = False
            self._screen.forget_message()

    def _retry(self, news: RetryNews) -> None:
        if self._has_streamed:
            self._has_streamed = False
            self._screen.forget_message()
        self._screen.say(f"{news.reason} Asking again in {news.wait_s:.0f} s", style="yellow")

    def _message(self, event: AgentMessageEvent) -> None:
        text = text_of(event.content)
        if self.turn is not None:
            self.turn.answer = event
        if self.is_shown:
            if not self._has_streamed and text:
                self._screen.piece(text)  # another process asked the model
            self._screen.end_message()
        self._has_streamed = False

    def _user(self, event: UserMessageEvent) -> None:
        if self._screen.is_terminal and event.seq not in self._own:
            who = event.sender_id or event.channel or "somebody"
            self._screen.say(f"{who}> {text_of(event.content)}", style="green")

    def _compacted(self, event: CompactionEvent) -> None:
        if self.is_shown and event.turn_id is not None:  # else /compact says more of it
            self._screen.say("older history was summarised; the log keeps all of it")

    def _note(self, event: NoteEvent) -> None:
        if event.kind == "kipu.downgraded":
            self._screen.say("that message may not join the turn; it gets its own afterwards", style="yellow")

    def _left_out(self, event: SessionEvent) -> None:
        """Say that secrets were taken out: the model works with what stands in their place."""
        left_out = told(event.normalised)
        if left_out is not None and (self.is_shown or event.seq in self._own):
            more = "; the model does not see them (`kipu config set redaction off` keeps them)"
            self._screen.say(left_out + (more if isinstance(event, UserMessageEvent) else ""), style="yellow")

    # ---- tools -----------------------------------------------------------------------------------------------------

    def _call(self, event: ToolCallEvent) -> None:
        self.calls[event.tool_call_id] = OpenCall(event)
        if self.is_shown:
            self._screen.call(event.tool_call_id, call_line(event.tool_name, event.tool_input))

    def _output(self, news: ToolNews) -> None:
        self._outputs[news.call_id] = (self._outputs.get(news.call_id, "") + news.text)[-8_000:]
        if self.is_shown:
            self._screen.call_output(news.call_id, news.text)

    def _result(self, event: ToolResultEvent) -> None:
        open_call = self.calls.pop(event.tool_call_id, None)
        output = self._outputs.pop(event.tool_call_id, "")
        name = open_call.call.tool_name if open_call else event.tool_name or "tool"
        arguments = open_call.call.tool_input if open_call else {}
        line, result = call_line(name, arguments), result_line(event)
        if self.turn is not None:
            self.turn.calls.append({"tool": name, "arguments": dict(arguments), "is_error": event.is_error})
        if self.is_shown:
            tail: Sequence[str] = last_lines(output) if name == "shell" else ()
            self._screen.call_ended(event.tool_call_id, line, result=result, is_error=event.is_error, tail=tail)

    def _request(self, event: ApprovalRequestEvent) -> None:
        call = self.calls.get(event.tool_call_id)
        if call is None:
            return
        call.request = event
        question = question_of(self._session.session_id, call)
        if question is not None and self.is_shown:
            self.ask(question)

    def ask(self, question: Question) -> None:
        """Show a question, and keep it until it is decided."""
        self.questions[question.approval_id] = question
        self._screen.ask(question)

    def _decision(self, event: ApprovalDecisionEvent) -> None:
        if event.approval_id in self.questions:
            self._close(event.approval_id)
            if self._screen.is_terminal:
                always = f", always in this {event.scope}" if event.scope not in (None, "once") else ""
                changed = ", with other arguments" if event.arguments is not None else ""
                self._screen.say(f"  {event.decision} by {event.by}{always}{changed}")

    def _close(self, approval_id: str) -> None:
        self.questions.pop(approval_id, None)
        self._screen.close_question(approval_id)
