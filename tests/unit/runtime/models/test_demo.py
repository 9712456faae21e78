"""The demo model: rules that anybody can try without a key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kipu.ports.model import ModelEvent, ModelReply, ModelRequest, TextDelta
from kipu.runtime.models.demo import DemoModelClient


def window(*said: str) -> list[dict[str, Any]]:
    """Return a window in which the user says these, with an answer after each but the last."""
    messages: list[dict[str, Any]] = []
    for text in said:
        messages.append({"role": "user", "content": [{"type": "text", "text": text}]})
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "noted"}]})
    return messages[:-1]


async def events_of(*said: str) -> list[ModelEvent]:
    return [event async for event in DemoModelClient().stream(ModelRequest("demo", window(*said)))]


async def answer_to(*said: str) -> str:
    reply = (await events_of(*said))[-1]
    assert isinstance(reply, ModelReply)
    return reply.text


@pytest.mark.parametrize("text", ["hello", "你好", "what did I say about x?", "help", "🪢", "   ", "总结一下"])
async def test_demo_model_says_in_every_answer_that_it_is_no_ai(text: str) -> None:
    """Nobody can take it for a model: each answer is labelled, and its provider is kipu-demo (A27)."""
    reply = (await events_of("first", text))[-1]
    assert isinstance(reply, ModelReply)
    assert "demo model, no AI" in reply.text
    assert (reply.provider, reply.model, reply.state) == ("kipu-demo", "rules-1", "complete")
    assert not DemoModelClient().describe().is_ai


async def test_demo_model_streams_small_pieces_that_make_up_the_answer() -> None:
    """It streams as a model does, and the same window gives the same answer (C6)."""
    *deltas, reply = await events_of("tell me something")
    assert isinstance(reply, ModelReply)
    pieces = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(pieces) == reply.text
    assert len(pieces) > 10
    assert await events_of("tell me something") == [*deltas, reply]


async def test_demo_model_counts_the_messages_of_its_window() -> None:
    """The count is of what the window holds, this question included (B33)."""
    assert "5 messages: 3 from you" in await answer_to("one", "two", "How many messages are there?")
    assert "5 条消息：您的 3 条" in await answer_to("一", "二", "一共有多少条消息？")


@pytest.mark.parametrize(
    ("question", "recalled"),
    [
        ("What did I say about fish?", "message 1: “I like fish.”"),
        ("what have I told you about the boat", "message 2: “The boat is red”"),
        ("What is my name?", "message 3: “My name is Ada”"),
        ("关于鱼我说过什么？", "第 4 条：“我喜欢吃鱼。”"),
        ("我之前说过关于鱼的什么？", "第 4 条：“我喜欢吃鱼。”"),
        ("我的名字是什么？", "第 5 条：“我的名字叫小明”"),
    ],
)
async def test_demo_model_recalls_what_the_user_said(question: str, recalled: str) -> None:
    """It quotes the user's own words from the window, so that one sees what a session remembers (B2, B33)."""
    said = ["Hello. I like fish. Bye.", "The boat is red", "My name is Ada", "我喜欢吃鱼。真的", "我的名字叫小明"]
    assert recalled in await answer_to(*said, question)


async def test_demo_model_says_when_the_window_does_not_hold_it() -> None:
    """What was said in another session is not recalled here (A4, B38)."""
    assert "you said nothing about fish" in await answer_to("I like bread", "What did I say about fish?")
    assert "没有您关于“鱼”的话" in await answer_to("我喜欢面包", "关于鱼我说过什么？")


async def test_demo_model_quotes_no_question_as_a_statement() -> None:
    """Asking twice does not make the question an answer."""
    answer = await answer_to("I like fish", "What did I say about fish?", "What did I say about fish?")
    assert answer.count("message ") == 1


async def test_demo_model_summarises_by_extracts() -> None:
    """A summary is made of the user's first sentences, with the middle of a long window left out visibly."""
    assert "- 1. We fix the parser.\n- 2. Then tests" in await answer_to(
        "We fix the parser. Soon.", "Then tests", "summarise"
    )
    long = await answer_to(*(f"point {n}" for n in range(40)), "Summary please")
    assert "(30 messages left out)" in long
    assert "- 40. point 39" in long


async def test_demo_model_answers_chinese_in_chinese() -> None:
    """A Chinese message gets a Chinese answer that quotes it."""
    assert "“请修复测试”" in await answer_to("请修复测试")
    assert "收到您的第 1 条消息" in await answer_to("请修复测试")


async def test_demo_model_interrupted_keeps_what_it_said() -> None:
    """An interrupted demo answer is partial like any other (A44)."""
    stream = DemoModelClient().stream(ModelRequest("demo", window("hello there")))
    first = await anext(stream)
    assert isinstance(first, TextDelta)
    stream.interrupt()
    reply = await anext(stream)
    assert isinstance(reply, ModelReply)
    assert (reply.state, reply.text) == ("interrupted", first.text)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_demo_model_interrupted_while_it_waits_ends_at_once() -> None:
    """A word reaches a stream that is waiting, and the reading task is not cancelled by it (C13)."""
    stream = DemoModelClient(delay_s=3600).stream(ModelRequest("demo", window("hello")))
    reading = asyncio.Event()

    async def read() -> list[ModelEvent]:
        reading.set()
        return [event async for event in stream]

    task = asyncio.create_task(read())
    await reading.wait()
    stream.interrupt()
    stream.interrupt()
    (reply,) = await task
    assert isinstance(reply, ModelReply)
    assert (reply.state, reply.text) == ("interrupted", "")


async def test_demo_model_finished_answer_is_not_changed_by_a_late_interruption() -> None:
    """Interrupting what has ended does nothing."""
    stream = DemoModelClient().stream(ModelRequest("demo", window("hello")))
    events = [event async for event in stream]
    stream.interrupt()
    assert stream.partial() is events[-1]
    assert stream.partial().state == "complete"


async def test_demo_model_stream_passes_a_cancellation_of_its_reader_on() -> None:
    """Somebody else's cancellation is never swallowed, also when an interruption comes with it."""
    stream = DemoModelClient(delay_s=3600).stream(ModelRequest("demo", window("hello")))
    reading = asyncio.Event()

    async def read() -> ModelEvent:
        reading.set()
        return await anext(stream)

    task = asyncio.create_task(read())
    await reading.wait()
    stream.interrupt()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stream.partial().state == "interrupted"
