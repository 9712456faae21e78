"""Tools through the vendors' own client libraries: what is offered, called, answered, and sent back."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from kipu.context.item import Item
from kipu.context.render import build_window
from kipu.events.content import ProviderMark
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCallDelta
from kipu.runtime.models.pydantic_ai_client import PydanticAIClient, open_provider_client
from kipu.runtime.models.retrying import is_useful
from kipu.testing.fake_provider import FakeAnswer, FakeCall, FakeProvider, RecordedRequest
from kipu.testing.fake_provider_requests import asked_calls, asked_texts, newest_results, offered_tools

CHAT = "openai-chat:some-model"
RESPONSES = "openai-responses:gpt-6-luna"
ANTHROPIC = "anthropic:claude-sonnet-5-5"
ALL = [CHAT, RESPONSES, ANTHROPIC]
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000a49444154789c63000100000500010d0a2db4"
        "0000000049454e44ae426082"
    )
).decode()
IMAGE = {"type": "media", "media_type": "image/png", "data": PNG, "size": 68, "name": "shot.png"}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def user(*said: Any) -> dict[str, Any]:
    return {"role": "user", "content": [text(part) if isinstance(part, str) else part for part in said]}


def called(*calls: tuple[str, str, Any]) -> dict[str, Any]:
    """Return an answer of calls: (id, name, arguments), arguments that are text did not parse."""
    blocks = [
        {"type": "tool_call", "id": call_id, "name": name, ("raw" if isinstance(given, str) else "input"): given}
        for call_id, name, given in calls
    ]
    return {"role": "assistant", "content": blocks}


def results(*told: tuple[str, str, Sequence[Any], bool]) -> dict[str, Any]:
    blocks = [
        {
            "type": "tool_result",
            "id": call_id,
            "name": name,
            "content": [text(part) if isinstance(part, str) else part for part in content],
            "is_error": is_error,
        }
        for call_id, name, content, is_error in told
    ]
    return {"role": "tool", "content": blocks}


@asynccontextmanager
async def client_of(provider: FakeProvider, name: str) -> AsyncIterator[PydanticAIClient]:
    url = provider.root_url if name.startswith("anthropic") else provider.base_url
    client = open_provider_client(name, base_url=url, api_key="key-of-a-test")
    try:
        yield client
    finally:
        await client.aclose()


async def events_of(client: PydanticAIClient, window: Sequence[Any], **more: Any) -> list[ModelEvent]:
    async with client.stream(ModelRequest(client.name, window, **more)) as stream:
        return [event async for event in stream]


async def reply_of(client: PydanticAIClient, window: Sequence[Any], **more: Any) -> ModelReply:
    reply = (await events_of(client, window, **more))[-1]
    assert isinstance(reply, ModelReply)
    return reply


async def sent_for(name: str, window: Sequence[Any], **more: Any) -> RecordedRequest:
    """Return the request that a window makes; it is sent twice, and has to be the same."""
    with FakeProvider(script=FakeAnswer("ok")) as provider:
        async with client_of(provider, name) as client:
            for _ in range(2):
                await events_of(client, window, **more)
        first, second = provider.asked
    assert first.body == second.body
    return first


@pytest.mark.parametrize("name", ALL)
async def test_model_tools_of_any_name_and_id_make_a_body_that_is_accepted(name: str) -> None:
    """Ids and names that a provider refuses are sent as others, the same on both sides of a pair (C7, A25, A35)."""
    odd = [("call_0", "mcp__files__read"), ("id with spaces/€", "a.b/c"), ("x" * 70, "9" * 80), ("", "工具")]
    window = [
        user("go"),
        called(*((call_id, tool, {"n": n}) for n, (call_id, tool) in enumerate(odd))),
        results(*((call_id, tool, [f"result {n}"], False) for n, (call_id, tool) in enumerate(odd))),
    ]
    request = await sent_for(name, window, tools=[{"name": tool} for _, tool in odd])
    assert request.violations() == []
    body = request.json()
    told = newest_results(body)
    assert [call_id for call_id, _ in told] == [call_id for call_id, _ in asked_calls(body)]
    assert [said for _, said in told] == [f"result {n}" for n in range(4)]
    assert [tool for _, tool in asked_calls(body)] == offered_tools(body)
    assert offered_tools(body)[0] == "mcp__files__read"


@pytest.mark.parametrize("name", ALL)
async def test_model_tools_are_called_by_their_own_names(name: str) -> None:
    """Though a provider knows a tool under another name, the call that comes back names the tool, also where two are alike."""
    tools = [{"name": "a b"}, {"name": "a.b"}, {"name": "a_b"}, {"name": "x" * 70}, {"name": "x" * 71}]

    def call_all(body: dict[str, Any]) -> FakeAnswer:
        return FakeAnswer(calls=[FakeCall(f"c{n}", tool) for n, tool in enumerate([*offered_tools(body), "made-up"])])

    with FakeProvider(script=call_all) as provider:
        async with client_of(provider, name) as client:
            *deltas, reply = await events_of(client, [user("go")], tools=tools)
        assert provider.violations() == []
        assert "a_b" in offered_tools(provider.asked[0].json())
    assert isinstance(reply, ModelReply)
    own = [*(tool["name"] for tool in tools), "made-up"]
    assert [call["name"] for call in reply.tool_calls] == own
    assert [delta.name for delta in deltas if isinstance(delta, ToolCallDelta) and delta.name] == own


@pytest.mark.parametrize("name", ALL)
async def test_model_tools_keep_the_schema_that_they_declare(name: str) -> None:
    """An object that takes any key stays one, and what is optional stays optional (C29)."""
    schema = {
        "type": "object",
        "properties": {
            "env": {"type": "object"},
            "path": {"type": "string", "minLength": 1, "pattern": "^a"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["env"],
    }
    every = {"type": "object", "properties": {"env": {"type": "object"}}, "required": ["env"]}
    tools = [{"name": "one", "description": "1", "parameters": schema}, {"name": "two", "parameters": every}]
    body = (await sent_for(name, [user("go")], tools=tools)).json()
    for tool, declared in zip(body["tools"], (schema, every), strict=True):
        sent = tool.get("function", tool)
        parameters = sent.get("parameters", sent.get("input_schema"))
        assert parameters["required"] == declared["required"]
        assert parameters.get("additionalProperties", True) is True
        assert parameters["properties"]["env"].get("additionalProperties", True) is True
        assert not sent.get("strict")
    assert json.dumps(schema["properties"]["path"]) in json.dumps(body)  # type: ignore[index]


@pytest.mark.parametrize("name", ALL)
async def test_model_tools_errors_are_told_as_errors_and_in_their_own_words(name: str) -> None:
    """A failed call's text arrives unescaped, marked where the provider has no mark of its own (A25)."""
    told = 'line 1\n"line 2" failed'
    window = [
        user("go"),
        called(("c1", "run", {}), ("c2", "run", '{"cmd":')),
        results(("c1", "run", [told], True), ("c2", "run", ["Error: the arguments are no JSON"], True)),
    ]
    request = await sent_for(name, window, tools=[{"name": "run"}])
    assert request.violations() == []
    first, second = (said for _, said in newest_results(request.json()))
    assert first == (told if name == ANTHROPIC else f"Error: {told}")
    assert second == "Error: the arguments are no JSON"
    if name == ANTHROPIC:
        blocks = request.json()["messages"][-1]["content"]
        assert [block["is_error"] for block in blocks] == [True, True]


@pytest.mark.parametrize("name", ALL)
async def test_model_tools_arguments_that_did_not_parse_go_back_as_they_were(name: str) -> None:
    """The model sees what it wrote, inside arguments that the provider takes (A2)."""
    window = [user("go"), called(("c1", "run", '{"cmd": "ls')), results(("c1", "run", ["no JSON"], True))]
    request = await sent_for(name, window, tools=[{"name": "run"}])
    assert request.violations() == []
    body = request.json()
    if name == ANTHROPIC:
        sent = body["messages"][1]["content"][0]["input"]
    elif name == RESPONSES:
        sent = json.loads(body["input"][1]["arguments"])
    else:
        sent = json.loads(body["messages"][1]["tool_calls"][0]["function"]["arguments"])
    assert sent == {"raw_arguments": '{"cmd": "ls'}


@pytest.mark.parametrize("name", ALL)
async def test_model_tools_images_are_seen_and_stand_with_their_texts(name: str) -> None:
    """An image in a result reaches the model: in the result where that has a place for it, else behind all results (C7)."""
    window = [
        user("go"),
        called(("c1", "shot", {}), ("c2", "list", {}), ("c3", "shot", {})),
        results(
            ("c1", "shot", ["before", IMAGE, "after"], False),
            ("c2", "list", ["a\nb"], False),
            ("c3", "shot", [IMAGE, "no display"], True),
        ),
        user("and?"),
    ]
    request = await sent_for(name, window, tools=[{"name": "shot"}, {"name": "list"}])
    assert request.violations() == []
    # An error is text: its image is named and not shown.
    assert request.body.decode().count(PNG) == 1
    assert "image/png 'shot.png', 68 bytes, not shown" in request.body.decode()
    body = request.json()
    if name == CHAT:
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["user", "assistant", "tool", "tool", "tool", "user", "user"]
        assert "image/png from the tool shot" in body["messages"][5]["content"][0]["text"]
        assert body["messages"][2]["content"].split("\n")[::2] == ["before", "after"]
    elif name == RESPONSES:
        output = next(item for item in body["input"] if item.get("type") == "function_call_output")["output"]
        assert [part["type"] for part in output] == ["input_text", "input_image", "input_text"]
    else:
        block = body["messages"][2]["content"][0]
        assert [part["type"] for part in block["content"]] == ["text", "image", "text"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("media_type", ["application/zip", "image/tiff", "video/mp4", "audio/x-aiff"])
async def test_model_is_told_of_media_that_it_cannot_take(name: str, media_type: str) -> None:
    """What a provider refuses is named in its place, and the rest of the window is sent (C7, C28)."""
    part = {"type": "media", "media_type": media_type, "data": "UEs=", "size": 2, "name": "thing"}
    request = await sent_for(name, [user("look", part)])
    assert request.violations() == []
    assert f"[{media_type} 'thing', 2 bytes, not shown]" in "\n".join(asked_texts(request.json()))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("data", ["", "not base64!"])
async def test_model_is_not_sent_media_that_are_broken(name: str, data: str) -> None:
    """An image without bytes is named instead of being refused by the provider with the whole window (C7)."""
    part = {"type": "media", "media_type": "image/png", "data": data, "size": 9}
    request = await sent_for(name, [user("look", part)])
    assert request.violations() == []
    assert "[image/png, 9 bytes, not shown]" in "\n".join(asked_texts(request.json()))


@pytest.mark.parametrize("name", ALL)
async def test_model_answer_of_nothing_is_an_empty_reply(name: str) -> None:
    """No text and no call is a whole answer with nothing to keep, never an error or an invented text (A3)."""
    for scripted in (FakeAnswer(), FakeAnswer(" \n"), FakeAnswer(output_tokens=0)):
        with FakeProvider([scripted]) as provider:
            async with client_of(provider, name) as client:
                reply = await reply_of(client, [user("go")], tools=[{"name": "run"}])
        assert (reply.content, reply.tool_calls, reply.state) == ((), (), "complete")
        assert not is_useful(reply)


@pytest.mark.parametrize("name", [RESPONSES, ANTHROPIC])
async def test_model_thinking_between_calls_goes_back_to_its_places(name: str) -> None:
    """Sealed thinking before and between calls returns in order, each before what it led to (C28)."""
    second = FakeAnswer(reasoning="And b?", signature="seal-2", calls=[FakeCall("k2", "look", '{"at": 2}')])
    first = FakeAnswer(
        "I look.", reasoning="Is it a?", signature="seal-1", calls=[FakeCall("k1", "look", '{"at": 1}')], then=second
    )
    tools = [{"name": "look"}]
    with FakeProvider([first, FakeAnswer("Both.")]) as provider:
        async with client_of(provider, name) as client:
            reply = await reply_of(client, [user("go")], tools=tools)
            kept = json.loads(json.dumps(list(reply.content)))
            told = results(("k1", "look", ["1"], False), ("k2", "look", ["2"], False))
            await events_of(client, [user("go"), {"role": "assistant", "content": kept}, told], tools=tools)
        assert provider.violations() == []
        sent = provider.asked[1].json()
    assert [call["input"] for call in reply.tool_calls] == [{"at": 1}, {"at": 2}]
    if name == ANTHROPIC:
        blocks = sent["messages"][1]["content"]
        order = [block["type"] for block in blocks]
        seals = [block["signature"] for block in blocks if block["type"] == "thinking"]
    else:
        items = sent["input"][1:-2]
        order = [item.get("type", item.get("role")) for item in items]
        seals = [item["encrypted_content"] for item in items if item.get("type") == "reasoning"]
    thinking, say, call = (
        ("thinking", "text", "tool_use") if name == ANTHROPIC else ("reasoning", "message", "function_call")
    )
    assert order in ([thinking, say, call, thinking, call], [thinking, "assistant", call, thinking, call])
    assert seals == ["seal-1", "seal-2"]


def logged(reply: ModelReply, turn: int) -> list[SessionEvent]:
    """Return the events of an answer with ids of our own, and a result for each call."""
    mark = ProviderMark(name=reply.provider, model=reply.model, opaque=dict(reply.opaque) if reply.opaque else None)
    events: list[SessionEvent] = [
        AgentMessageEvent(content=reply.text, reasoning=reply.reasoning or None, provider=mark)
    ]
    ours = [f"call_t{turn}_{index}" for index in range(len(reply.tool_calls))]
    for call_id, call in zip(ours, reply.tool_calls, strict=True):
        raw = call.get("raw")
        events.append(
            ToolCallEvent(
                tool_name=call["name"],
                tool_input=call.get("input") or {},
                tool_call_id=call_id,
                provider_call_id=call["id"],
                raw=raw,
                parse_error="no JSON object" if raw is not None else None,
            )
        )
    for call_id, call in zip(reversed(ours), reversed(reply.tool_calls), strict=True):
        said = f"{call.get('input', call.get('raw'))} of turn {turn}"
        events.append(ToolResultEvent(tool_call_id=call_id, result=said, is_error="raw" in call))
    return events


@pytest.mark.parametrize("name", ALL)
async def test_model_tools_work_over_many_turns_whose_ids_repeat(name: str) -> None:
    """Through log, window and client, parallel calls that are all "call_0" keep their own results (A23, A25, A35, C9)."""
    calls = [FakeCall("call_0", "mcp__x__y", f'{{"n": {n}}}') for n in range(2)] + [FakeCall("call_0", "bad", '{"n"')]
    sealed = "" if name == CHAT else "seal"
    step = FakeAnswer("Looking.", reasoning="Hm." if sealed else "", signature=sealed, calls=calls)
    tools = [{"name": "mcp__x__y"}, {"name": "bad"}]
    log: list[SessionEvent] = [UserMessageEvent(content="go")]
    texts: list[str] = []
    with FakeProvider([step] * 3 + [FakeAnswer("Done.")]) as provider:
        async with client_of(provider, name) as client:
            described = client.describe()
            for turn in range(4):
                items = [Item(seq, event, 20) for seq, event in enumerate(log, start=1)]
                window = build_window(items, provider=described.provider, model=described.model).messages
                reply = await reply_of(client, window, tools=tools)
                texts.append(reply.text)
                log += logged(reply, turn)
        assert provider.violations() == []
        bodies = [request.json() for request in provider.asked]
    assert texts == ["Looking.", "Looking.", "Looking.", "Done."]
    for turn, body in enumerate(bodies[1:]):
        assert len({call_id for call_id, _ in asked_calls(body)}) == 3 * (turn + 1)
        said = [said.removeprefix("Error: ") for _, said in newest_results(body)]
        assert said == [f"{{'n': 0}} of turn {turn}", f"{{'n': 1}} of turn {turn}", f'{{"n" of turn {turn}']
    history = [body["input" if name == RESPONSES else "messages"] for body in bodies]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(history))


@pytest.mark.parametrize("name", ALL)
async def test_model_sessions_at_once_get_the_answers_to_their_own_windows(name: str) -> None:
    """Thirty streams of one client, each with a tool step, never mix (A41)."""

    def script(body: dict[str, Any]) -> FakeAnswer:
        told = newest_results(body)
        if told:
            return FakeAnswer(f"{asked_texts(body)[0]} got {told[0][1]}")
        return FakeAnswer(calls=[FakeCall("call_0", "echo", json.dumps({"said": asked_texts(body)[0]}))])

    async def session(client: PydanticAIClient, number: int) -> str:
        window: list[Any] = [user(f"session {number}")]
        first = await reply_of(client, window, tools=[{"name": "echo"}])
        said = first.tool_calls[0]["input"]["said"]
        window += [called(("c", "echo", {"said": said})), results(("c", "echo", [said], False))]
        return (await reply_of(client, window, tools=[{"name": "echo"}])).text

    with FakeProvider(script=script) as provider:
        async with client_of(provider, name) as client:
            answers = await asyncio.gather(*(session(client, number) for number in range(30)))
        assert provider.violations() == []
    assert answers == [f"session {number} got session {number}" for number in range(30)]


@pytest.mark.parametrize("name", ALL)
async def test_model_is_sent_a_text_of_several_parts_as_it_takes_it(name: str) -> None:
    """Texts of one message stay one message, in the form that most servers of the format take (C7)."""
    request = await sent_for(name, [user("one", "two")])
    assert request.violations() == []
    content = request.json()["input" if name == RESPONSES else "messages"][0]["content"]
    assert content == "one\ntwo" if name == CHAT else [part["text"] for part in content] == ["one", "two"]


@pytest.mark.parametrize("name", ALL)
async def test_model_that_keeps_prompts_for_a_while_is_asked_to(name: str) -> None:
    """Anthropic's own service is asked to cache the growing window; gateways, which may not know how, are not (C9)."""
    own = open_provider_client(name, api_key="key-of-a-test")
    asked = own._settings({})
    assert asked.get("anthropic_cache", False) is (name == ANTHROPIC)
    assert own._settings({"provider": {"anthropic_cache": False}}).get("anthropic_cache", False) is False
    await own.aclose()
    assert "cache_control" not in (await sent_for(name, [user("go")])).body.decode()
    if name == ANTHROPIC:
        request = await sent_for(name, [user("go")], settings={"provider": {"anthropic_cache": True}})
        assert request.json()["cache_control"]["type"] == "ephemeral"
