"""What a chat shows, from what happens: blocks of answers, lines of calls, answers to questions, the order of news and events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kipu import open_manager
from kipu.cli.chat.answer_blocks import AnswerBlocks
from kipu.cli.chat.call_lines import call_line, last_lines, result_line
from kipu.cli.chat.live_area import LiveArea
from kipu.cli.chat.questions import Question, editable, edited, parse_answer
from kipu.cli.chat.screen import Screen, Work
from kipu.cli.chat.served import Served
from kipu.cli.chat.turn_view import TurnView
from kipu.cli.output import Output
from kipu.errors import InputError
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.turn import ApprovalDecisionEvent, ApprovalRequestEvent, TurnFinishedEvent, TurnStartedEvent
from kipu.manager.manager import SessionManager
from kipu.ports.model import TextDelta
from kipu.runtime.live.streams import LiveStreams
from kipu.runtime.live.watch import SessionWatch
from kipu.runtime.observer import BeginNews, EndNews, ModelNews, RetryNews, ToolNews

SESSION_ID = "sess_of_the_test"
MARKDOWN = """\
# Title
First paragraph
goes on.

- one

- two
  more of two

1. first

2. second

```python
x = 1

y = 2
```
After the fence.

| a | b |
|---|---|
| 1 | 2 |

    indented code

The end"""


class FakeScreen(Screen):
    """Keep what is shown."""

    def __init__(self) -> None:
        super().__init__(Output(json=False, colours="never"))
        self.shown: list[tuple[Any, ...]] = []

    def piece(self, text: str) -> None:
        self.shown.append(("piece", text))

    def end_message(self) -> None:
        self.shown.append(("end",))

    def forget_message(self) -> None:
        self.shown.append(("forget",))

    def call(self, call_id: str, line: str) -> None:
        self.shown.append(("call", line))

    def call_output(self, call_id: str, text: str) -> None:
        self.shown.append(("output", text))

    def call_ended(self, call_id: str, line: str, *, result: str, is_error: bool, tail: Sequence[str] = ()) -> None:
        self.shown.append(("result", result, is_error, *tail))

    def ask(self, question: Question) -> None:
        self.shown.append(("ask", question.summary))

    def close_question(self, approval_id: str) -> None:
        self.shown.append(("closed", approval_id))

    def say(self, text: str, *, style: str = "dim") -> None:
        self.shown.append(("say", text))


@pytest.fixture
async def manager() -> AsyncIterator[SessionManager]:
    async with await open_manager("memory://") as opened:
        yield opened


# ---- answers in blocks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_answer_is_cut_at_the_same_places_however_it_comes(size: int) -> None:
    """Whatever the pieces, the blocks are the same: no list, fence or table is cut, and nothing is lost."""
    blocks = AnswerBlocks()
    found: list[str] = []
    for at in range(0, len(MARKDOWN), size):
        found += blocks.feed(MARKDOWN[at : at + size])
    found += blocks.finish()
    assert found == [
        "# Title",
        "First paragraph\ngoes on.",
        "- one\n\n- two\n  more of two\n\n1. first\n\n2. second",
        "```python\nx = 1\n\ny = 2\n```",
        "After the fence.",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "    indented code",
        "The end",
    ]
    assert blocks.tail == ""


def test_answer_shows_its_growing_end() -> None:
    """What is not finished is the tail, fences that are open included; finished text is never in it again."""
    blocks = AnswerBlocks()
    assert blocks.feed("One.\n\nTw") == []
    assert blocks.feed("o") == []
    assert blocks.tail == "One.\nTwo"
    assert blocks.feed("\n") == ["One."]
    assert blocks.tail == "Two"
    assert blocks.feed("\n```\ncode\n\n") == ["Two"]
    assert blocks.tail == "```\ncode\n"
    assert blocks.finish() == ["```\ncode\n"]


# ---- lines -----------------------------------------------------------------------------------------------------------


def test_calls_and_results_are_one_line_each() -> None:
    """A call names what it is about, a result how it ended; control characters are shown, long lines cut."""
    assert call_line("shell", {"command": "make\ntest", "background": True}) == "shell make test (in the background)"
    assert call_line("read_file", {"path": "a\x1b[2J.txt"}) == "read_file a\\x1b[2J.txt"
    assert call_line("odd", {"n": 1}) == 'odd {"n": 1}'
    assert len(call_line("shell", {"command": "x" * 500})) == 160
    result = ToolResultEvent(tool_call_id="c", result="exit code 0\n\na\nb", tool_name="shell")
    assert result_line(result) == "exit code 0  (+3 lines)"
    assert result_line(ToolResultEvent(tool_call_id="c", result="1\n2", tool_name="read_file")) == "2 lines"
    cut = ToolResultEvent(tool_call_id="c", result="", synthetic="cancelled", is_error=True)
    assert result_line(cut) == "cancelled"


def test_last_lines_of_output_show_what_was_drawn_last() -> None:
    """Progress that draws over its own line counts once; empty lines and steering characters are left out."""
    assert last_lines("a\r\n\n10%\r20%\r30%\nb\x1b[1m") == ["a", "30%", "b\\x1b[1m"]
    assert last_lines("\n".join(map(str, range(9)))) == ["6", "7", "8"]


def test_live_area_stays_within_the_terminal() -> None:
    """However much runs, the area has at most about half of the height, the question and the status always among it."""
    now = [0.0]
    area = LiveArea(lambda: now[0])
    area.tail = "word " * 2000
    for number in range(30):
        area.begin_call(f"c{number}", f"shell job {number}")
        area.add_output(f"c{number}", "out\n" * 50)
    area.questions["appr_1"] = Question("appr_1", "sess_1", "shell", {}, {"summary": "rm x"})
    area.set_work(Work(is_running=True, waiting=2))
    now[0] = 75.0
    lines = [text for _, text in area.lines(width=60, height=24)]
    assert len(lines) <= 12
    assert all(len(line) <= 60 for line in lines)
    assert lines[-1] == "waits for you · Esc stops · queued (2)"
    area.questions.clear()
    assert "working 1 min 15 s" in area.lines(width=60, height=24)[-1][1]


# ---- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("y", "yes"), ("YES", "yes"), ("好", "yes"), ("n", "no"), ("no, thanks", "no"), ("n use b.txt", "no"), ("a", "always"),
        ("a project", "always"), ("always user below", "always"), ("e", "edit"), ("e ls -l", "edit"),
        ("yes please do", None), ("a file named x", None), ("not yet", None), ("yesterday", None), ("", None), ("/stop", None),
    ],
)  # fmt: skip
def test_only_an_answer_answers(line: str, word: str | None) -> None:
    """A line is an answer only where it is nothing else: consent is never read out of a message."""
    answer = parse_answer(line)
    assert (answer.word if answer else None) == word


def test_changed_arguments_keep_what_was_not_changed() -> None:
    """The main argument of a call is edited as text, others as JSON; what is neither is refused."""
    write = Question("a", "s", "write_file", {"path": "a.txt", "content": "one\n"})
    assert editable(write) == "one"
    assert edited(write, "two") == {"path": "a.txt", "content": "two\n"}
    other = Question("a", "s", "odd", {"n": 1})
    assert edited(other, editable(other)) == {"n": 1}
    with pytest.raises(InputError):
        edited(other, "nonsense")


# ---- what happens ----------------------------------------------------------------------------------------------------


def tell(streams: LiveStreams, step: ModelNews | ToolNews | RetryNews, *, at: int) -> None:
    """Tell news, with the beginning and the end of their streams."""
    if isinstance(step, RetryNews):
        streams.tell(EndNews(SESSION_ID, "turn_1"))
        streams.tell(replace(step, at=at))
        return
    call_id = step.call_id if isinstance(step, ToolNews) else None
    if call_id not in {stream.begun.call_id for stream in streams.running(SESSION_ID)}:
        streams.tell(BeginNews(SESSION_ID, "turn_1", call_id, at=at))
    streams.tell(step)


async def shown_of(manager: SessionManager, *steps: Any) -> tuple[list[tuple[Any, ...]], TurnView]:
    """Append events and tell news in this order, and return what was shown of it."""
    session = await manager.get_or_create("cli:default")
    streams, screen, moved = LiveStreams("here"), FakeScreen(), asyncio.Event()
    view = TurnView(screen, session, own={2}, worker=manager.owner)
    watch = SessionWatch(session, streams, after=session.history.last_seq)

    async def look() -> None:
        async for happening in watch:
            view.take(happening)
            moved.set()

    watching = asyncio.ensure_future(look())
    await asyncio.sleep(0)
    async with session.holding():
        for step in steps:
            if isinstance(step, ModelNews | ToolNews | RetryNews):
                tell(streams, step, at=session.history.last_seq)
            else:
                streams.tell(EndNews(SESSION_ID, "turn_1"))
                await session.add_event(step)
    async with asyncio.timeout(60):
        while view.seen_seq < session.history.last_seq:
            await moved.wait()
            moved.clear()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return screen.shown, view


def piece(text: str) -> ModelNews:
    return ModelNews(SESSION_ID, "turn_1", TextDelta(text))


@pytest.fixture
async def session_id(manager: SessionManager) -> str:
    return await manager.create_session(SESSION_ID, key="cli:default")


async def test_pieces_and_events_are_shown_in_their_order(manager: SessionManager, session_id: str) -> None:
    """Pieces belong to the message that is logged after them, also where all is looked at late; nothing is shown twice."""
    shown, view = await shown_of(
        manager,
        UserMessageEvent(content="go", queued=True),
        TurnStartedEvent(turn_id="turn_1", consumes=[2]),
        piece("I lo"),
        piece("ok."),
        AgentMessageEvent(content="I look.", turn_id="turn_1"),
        ToolCallEvent(tool_name="shell", tool_input={"command": "ls"}, tool_call_id="c1", turn_id="turn_1"),
        ToolNews(session_id, "turn_1", "c1", "a\nb\n"),
        ToolResultEvent(tool_call_id="c1", result="exit code 0\n\na\nb", tool_name="shell", turn_id="turn_1"),
        piece("Do"),
        RetryNews(session_id, "turn_1", "overloaded.", 2.0),
        piece("Done."),
        AgentMessageEvent(content="Done.", turn_id="turn_1"),
        TurnFinishedEvent(turn_id="turn_1"),
    )
    assert shown == [
        ("piece", "I lo"), ("piece", "ok."), ("end",), ("call", "shell ls"), ("output", "a\nb\n"),
        ("result", "exit code 0  (+3 lines)", False, "a", "b"), ("piece", "Do"), ("forget",),
        ("say", "overloaded. Asking again in 2 s"), ("piece", "Done."), ("end",),
    ]  # fmt: skip
    assert view.settled == {2: "completed"}
    assert [end.turn.answer.content for end in view.ends if end.turn.answer] == ["Done."]


async def test_answers_of_another_process_are_shown_whole(manager: SessionManager, session_id: str) -> None:
    """A turn that another process runs for our message has no pieces: its answer is shown from the log; others' are not."""
    shown, view = await shown_of(
        manager,
        UserMessageEvent(content="ours", queued=True),
        UserMessageEvent(content="theirs", queued=True),
        TurnStartedEvent(turn_id="turn_1", consumes=[2], worker="elsewhere"),
        AgentMessageEvent(content="For us.", turn_id="turn_1"),
        TurnFinishedEvent(turn_id="turn_1"),
        TurnStartedEvent(turn_id="turn_2", consumes=[3], worker="elsewhere"),
        AgentMessageEvent(content="For them.", turn_id="turn_2"),
        TurnFinishedEvent(turn_id="turn_2"),
    )
    assert shown == [("piece", "For us."), ("end",)]
    assert len(view.ends) == 1


async def test_questions_are_open_until_somebody_decides(manager: SessionManager, session_id: str) -> None:
    """A question is asked when its request is logged and closed by whoever decides, wherever (C15)."""
    steps = [
        UserMessageEvent(content="go", queued=True),
        TurnStartedEvent(turn_id="turn_1", consumes=[2]),
        ToolCallEvent(tool_name="shell", tool_input={"command": "ls"}, tool_call_id="c1", turn_id="turn_1"),
        ApprovalRequestEvent(
            approval_id="appr_1", tool_call_id="c1", arguments_hash="h", shown={"summary": "ls"}, turn_id="turn_1"
        ),
    ]
    shown, view = await shown_of(manager, *steps)
    assert shown[-1] == ("ask", "ls")
    assert list(view.questions) == ["appr_1"]
    view.take(ApprovalDecisionEvent(approval_id="appr_1", decision="denied", by="somebody", turn_id="turn_1"))
    assert view.questions == {}
    assert ("closed", "appr_1") in shown


async def test_a_chat_runs_only_what_it_was_asked_for(manager: SessionManager, session_id: str) -> None:
    """Others' messages and broken-off turns of a session that is open wait until the person goes on with it (A39, C14)."""
    session = await manager.open(session_id)
    served = Served()
    assert not served.accepts(session_id)
    own = served.open(session)
    await session.add_event(UserMessageEvent(content="theirs", queued=True))
    assert not served.accepts(session_id)
    mine = await session.add_event(UserMessageEvent(content="mine", queued=True))
    own.add(mine.seq)
    assert served.accepts(session_id)
    async with session.holding():
        await session.add_event(TurnStartedEvent(turn_id="turn_dead", consumes=[2]))
    assert not served.accepts(session_id)
    served.go_on(session_id)
    assert served.accepts(session_id)
    served.end()
    assert not served.accepts(session_id)
