"""The demo model: rules that anybody can try without a key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.ports.model import ModelEvent, ModelReply, ModelRequest, TextDelta
from kipu.runtime.models.demo import DemoModelClient, decide
from kipu.runtime.models.demo_repair import examples_in, repair_of
from kipu.runtime.models.demo_requests import requests_in


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


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Read `a b.txt`, then run `pytest -q`", ["read a b.txt", "run pytest -q"]),
        ("run: make test then read a.txt", ["run make test", "read a.txt"]),
        ("run the tests", ["run "]),
        ("search for TODO in src/", ["search src/"]),
        ("create x.py with:\n```python\nread y.txt\n```", ["write x.py"]),
        ("replace foo with bar in src/x.py", ["edit src/x.py"]),
        ("fix the failing tests in repo with `make test`", ["fix repo"]),
        ("把 calc.py 中的 `a - b` 改成 `a + b`", ["edit calc.py"]),
        ("读取a.txt和b.txt的内容", ["read a.txt", "read b.txt"]),
        ("Please don't run `rm -rf /`", []),
        ("do not write a.txt: x", []),
        ("不要运行 `rm x`", []),
        ("hello. I read a book, and show me the sessions.", []),
        ("What did I say about fish?", []),
    ],
)
def test_demo_model_knows_its_forms_and_no_others(text: str, asked: list[str]) -> None:
    """A request is one of the fixed forms, in the order of the text; what is forbidden and what is quoted is none (A42)."""
    found = requests_in(text, ())
    named = [
        f"{r.kind} {r.details.get('path') or r.details.get('command') or r.details.get('pattern') or ''}" for r in found
    ]
    assert named == asked


WORDS = st.sampled_from(
    [
        "read ",
        "run ",
        "`ls`",
        "a.txt ",
        "write ",
        ": ",
        "replace ",
        "with ",
        "in ",
        "fix the failing test ",
        "和",
        "把",
        "{",
        "call x ",
    ]
)


@given(st.lists(st.one_of(WORDS, st.text(max_size=5)), max_size=30).map("".join), st.booleans())
def test_demo_model_takes_any_text(text: str, failed: bool) -> None:
    """Whatever is said and whatever came back, it decides on one step, the same each time (C6)."""
    messages = window(text or " ")
    tools = [{"name": name} for name in ("read_file", "shell", "edit_file", "x")]
    for _ in range(3):
        decision = decide(ModelRequest("demo", messages, tools=tools))
        assert decision == decide(ModelRequest("demo", messages, tools=tools))
        assert "demo model, no AI" in decision.text
        results = [
            {"type": "tool_result", "id": c["id"], "name": c["name"], "content": [], "is_error": failed}
            for c in decision.neutral_calls()
        ]
        if not results:
            return
        messages = [
            *messages,
            {"role": "assistant", "content": decision.neutral_calls()},
            {"role": "tool", "content": results},
        ]


@given(st.text(max_size=60), st.text(max_size=60))
def test_demo_model_repairs_any_text_or_none(source: str, test: str) -> None:
    """Text that is no Python is left alone."""
    assert repair_of(source, examples_in(test)) is None


@pytest.mark.parametrize(
    ("wrong", "example", "right"),
    [
        ("a - b", "f(2, 3) == 5", "a + b"),
        ("a / b", "f(2, 0) == 0", "a * b"),
        ("a < b", "f(3, 3) is True", "a <= b"),
        ("a + b + 1", "f(2, -2) == 0", "(a + b) * 1"),
        ("a * 2", "f(5, 0) == 15", "a * 3"),
        ("a + b", "f(2, 3) == 5", None),
        ("a ** b", "f(2, 2) == 5", None),
        ("g(a)", "f(2, 2) == 5", None),
        ("a * 'x'", "f(2, 2) == 5", None),
        ("a - b", "f(2) == 5", None),
    ],
)
def test_demo_model_repairs_one_operator_or_number(wrong: str, example: str, right: str | None) -> None:
    """A change is found only for what breaks its examples and keeps them then; what is not understood is left alone."""
    repair = repair_of(f"def f(a, b):\n    return {wrong}\n", examples_in(f"def test_f():\n    assert {example}\n"))
    assert (repair.new_line if repair else None) == (f"return {right}" if right else None)
