"""Turns with secrets in them: calls run as they were made, nothing keeps or shows the secret, and no mark takes its place."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import ModelUnavailableError
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.turn import ApprovalRequestEvent
from kipu.manager.manager import SessionManager
from kipu.ports.model import ReasoningDelta, TextDelta
from kipu.ports.tool import JsonObject, ToolContext
from kipu.runtime.agent_builder import AgentSettings
from kipu.runtime.observer import EndNews, ModelNews, News, RetryNews, ToolNews
from kipu.runtime.redacted_news import RedactedNews
from kipu.runtime.turns.withheld import hidden_words
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager, open_redactor, open_runtime
from tests.acceptance.runtime.fakes import FunctionTool, of_type, runtime

KNOWN = "zebra-Quartz-77-lantern"
TOKEN = "ghp_" + "Zk3vQ8mW1xT6yB9nC4rL7pD2sF5gH0jAbXeU"
CHANGING = {"has_side_effect": True}


async def redacting(url: str) -> SessionManager:
    """Return a manager that takes secrets out."""
    return await open_manager(url, redactor=open_redactor(known=[KNOWN]))


def calling(*calls: ScriptedCall) -> ScriptedModelClient:
    """Return a model that makes these calls and then ends."""
    return ScriptedModelClient([ScriptedReply("On it.", calls=list(calls)), "Done.", "Again."])


def bytes_below(folder: Path) -> bytes:
    """Return everything that is in any file."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_call_runs_as_the_model_made_it_and_is_kept_without_its_secret(tmp_path: Path) -> None:
    """A tool gets the secret that the model wrote; log, index and later windows have what stands in its place (C21)."""
    tool = FunctionTool("write", spec_fields=CHANGING)
    model = calling(ScriptedCall("write", {"path": "a.env", "text": f"TOKEN={TOKEN}\n", "password": "weak"}))
    async with await redacting(f"jsonl:///{tmp_path}/store") as manager, runtime(model, tool, manager=manager) as run:
        session = await run.session()
        await run.say(session, f"write {KNOWN} to a.env")
        await run.settled()
        (call,) = await of_type(session, ToolCallEvent)
        (result,) = await of_type(session, ToolResultEvent)
    assert tool.calls == [{"path": "a.env", "text": f"TOKEN={TOKEN}\n", "password": "weak"}]
    assert call.tool_input == {
        "path": "a.env",
        "text": "TOKEN=[redacted:github-token]\n",
        "password": "[redacted:password]",
    }
    assert (result.result, result.is_error) == ("write done", False)
    asked = json.dumps([request.messages for request in model.requests])
    assert KNOWN not in asked
    assert TOKEN not in asked
    assert TOKEN.encode() not in bytes_below(tmp_path)


async def test_approved_call_runs_as_it_was_made_where_it_was_made(tmp_path: Path) -> None:
    """What a person is asked shows no secret, and the approved call runs with it as long as its process lives (C21, C15)."""
    tool = FunctionTool("write", spec_fields={**CHANGING, "default_policy": "ask"})
    model = calling(ScriptedCall("write", {"path": "a", "password": "weak-but-mine"}))
    async with await redacting(f"sqlite:///{tmp_path}/s.db") as manager, runtime(model, tool, manager=manager) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        (request,) = await of_type(session, ApprovalRequestEvent)
        assert "weak-but-mine" not in json.dumps(request.shown)
        assert request.shown["arguments"]["password"] == "[redacted:password]"
        assert "secrets in the arguments are not shown" in request.shown["reason"]
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await run.settled_soon(session)
    assert tool.calls == [{"path": "a", "password": "weak-but-mine"}]
    assert b"weak-but-mine" not in bytes_below(tmp_path)


def test_person_is_told_what_a_hidden_part_could_do() -> None:
    """A secret that holds what a shell acts on is not hidden silently from who approves the call (C21, C15)."""
    made = {"command": "login --password 'x1;rm -rf ~'"}
    kept = {"command": "login --password '[redacted:password]'"}
    assert hidden_words(made, kept) == (
        " (secrets in the arguments are not shown, and in them signs that a shell acts on: ;)"
    )
    assert hidden_words(kept, kept) == ""


async def test_call_of_another_process_is_not_run_with_a_mark(tmp_path: Path) -> None:
    """Who goes on with a call whose secret only the dead process had does not run it, and tells the model why (C21, C14)."""
    tool = FunctionTool("write", spec_fields={**CHANGING, "default_policy": "ask"})
    url = f"sqlite:///{tmp_path}/s.db"
    call = ScriptedCall("write", {"path": "a", "password": "weak-but-mine"})
    async with await redacting(url) as manager, runtime(calling(call), tool, manager=manager) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
    async with (
        await redacting(url) as manager,
        runtime(ScriptedModelClient(["I see."]), tool, manager=manager) as run,
    ):
        session = await run.session()
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await run.settled_soon(session)
        (result,) = await of_type(session, ToolResultEvent)
        (answer, *_) = [event for event in await of_type(session, AgentMessageEvent) if event.content == "I see."]
    assert tool.calls == []
    assert (result.is_error, result.error_info) == (True, "redacted")
    assert "[redacted:password]" in str(result.result)
    assert answer.state == "complete"


async def test_call_that_would_put_a_mark_in_a_secrets_place_is_refused() -> None:
    """A model that copies `[redacted:…]` changes nothing with it; looking for it, and editing around it, is allowed (C21)."""
    write = FunctionTool("write", spec_fields=CHANGING)
    look, edit = FunctionTool("look"), FunctionTool("edit", spec_fields=CHANGING)
    mark = "[redacted:token:0123456789ab]"
    model = calling(
        ScriptedCall("write", {"path": ".env", "text": f"A=1\nTOKEN={mark}\n"}),
        ScriptedCall("look", {"text": mark}),
        ScriptedCall("edit", {"edits": [{"old_text": f"x {mark}", "new_text": f"y {mark}"}]}),
        ScriptedCall("edit", {"edits": [{"old_text": "x", "new_text": f"y {mark}"}]}),
    )
    async with await redacting("memory://") as manager, runtime(model, write, look, edit, manager=manager) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        results = await of_type(session, ToolResultEvent)
    assert write.calls == []
    assert look.calls == [{"text": mark}]
    assert len(edit.calls) == 1
    refused = [result for result in results if result.error_info == "redacted"]
    assert len(refused) == 2
    assert all(mark in str(result.result) for result in refused)


async def test_calls_run_with_marks_where_nothing_is_redacted() -> None:
    """Without a redactor `[redacted:…]` is text like any other (C21)."""
    write = FunctionTool("write", spec_fields=CHANGING)
    async with runtime(calling(ScriptedCall("write", {"text": "[redacted:token]"})), write) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
    assert write.calls == [{"text": "[redacted:token]"}]


class Told:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.news: list[News] = []

    def tell(self, news: News) -> None:
        self.news.append(news)

    def text(self, kind: type[Any] = TextDelta) -> str:
        """Return what was told of one kind, joined."""
        return "".join(
            news.event.text for news in self.news if isinstance(news, ModelNews) and isinstance(news.event, kind)
        )


@pytest.mark.parametrize("size", [1, 3, 7])
def test_news_show_no_secret_however_they_are_cut(size: int) -> None:
    """Streams of answers, reasoning and output lose secrets that lie over their pieces, and end whole (C21)."""
    told = Told()
    news = RedactedNews(told, open_redactor(known=[KNOWN]))
    text = f"I use {TOKEN} and {KNOWN} now.\nAll is well, and so on"
    for at in range(0, len(text), size):
        piece = text[at : at + size]
        news.tell(ModelNews("s", "t", TextDelta(piece)))
        news.tell(ModelNews("s", "t", ReasoningDelta(piece)))
        news.tell(ToolNews("s", "t", "c1", piece))
        news.tell(ModelNews("s", "other", TextDelta("x")))
    news.tell(EndNews("s", "t"))
    news.tell(EndNews("s", "t", "c1"))
    wanted = "I use [redacted:github-token] and [redacted:known-secret] now.\nAll is well, and so on"
    assert told.text().replace("x", "") == wanted.replace("x", "")
    assert told.text(ReasoningDelta) == wanted
    assert "".join(news.text for news in told.news if isinstance(news, ToolNews)) == wanted


def test_news_of_an_answer_that_does_not_count_are_dropped() -> None:
    """What is held back of an answer that is asked for again is never shown, and the reason is told without a secret (C21)."""
    told = Told()
    news = RedactedNews(told, open_redactor(known=[KNOWN]))
    news.tell(ModelNews("s", "t", TextDelta("first zebra-Qu")))
    news.tell(RetryNews("s", "t", f"refused the key {KNOWN}", 1.0))
    news.tell(ModelNews("s", "t", TextDelta("second")))
    news.tell(EndNews("s", "t"))
    assert told.text() == "first second"
    (retry,) = [each for each in told.news if isinstance(each, RetryNews)]
    assert retry.reason == "refused the key [redacted:known-secret]"


async def test_followers_of_a_turn_see_no_secret(tmp_path: Path) -> None:
    """Whoever listens to a running turn gets no byte of a secret from model or tool, and the whole text at the end (C21)."""

    async def output(_arguments: JsonObject, context: ToolContext) -> str:
        for piece in ("deploy with ", KNOWN[:9], KNOWN[9:], " done\n"):
            context.emit(piece)
        return "ok"

    shell = FunctionTool("deploy", function=output)
    reply = ScriptedReply(f"Using {TOKEN} here", calls=[ScriptedCall("deploy", {})], piece_chars=5)
    model = ScriptedModelClient([reply, ModelUnavailableError(model="m", endpoint="e", reason=KNOWN), "Done."])
    settings = AgentSettings(tmp_path / "workspaces")
    seen: list[News] = []
    async with (
        await redacting("memory://") as manager,
        open_runtime(
            manager, settings=settings, open_model=lambda _name: model, more_tools=lambda _session: [shell]
        ) as run,
    ):
        session = await manager.get_or_create("test:1")
        with run.feed.listen(session.session_id) as listener:
            await session.add_event(UserMessageEvent(content="go", queued=True, busy={"mode": "followup"}))
            run.worker.wake(session.session_id)
            async with asyncio.timeout(60):
                await run.worker.until_idle()
            seen = listener.drain()
    assert KNOWN not in repr(seen)
    assert TOKEN not in repr(seen)
    shown = "".join(
        each.event.text for each in seen if isinstance(each, ModelNews) and isinstance(each.event, TextDelta)
    )
    assert shown.startswith("Using [redacted:github-token] here")
    tool = "".join(each.text for each in seen if isinstance(each, ToolNews))
    assert tool == "deploy with [redacted:known-secret] done\n"
