"""Packing what a provider wants back."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kipu.ports.model import ModelUsage
from kipu.runtime.models.opaque import AssistantPart, unpack_parts
from kipu.runtime.models.reply import build_reply

PROVIDER, MODEL, ACCOUNT = "a", "m", "acct"


def parts() -> st.SearchStrategy[list[AssistantPart]]:
    tied = st.one_of(st.none(), st.fixed_dictionaries({"signature": st.text()}))
    thinking = st.builds(
        AssistantPart, st.just("thinking"), st.text(), tied=st.fixed_dictionaries({"signature": st.text()})
    )
    text = st.builds(AssistantPart, st.just("text"), st.text().filter(str.strip), tied=tied)
    call = st.integers(0, 3).map(lambda n: {"type": "tool_call", "id": f"c{n}", "name": "t", "input": {"n": n}})
    calls = st.builds(AssistantPart, st.just("tool_call"), call=call, tied=tied)
    return st.lists(st.one_of(thinking, text, calls), max_size=6)


def content_of(answer: list[AssistantPart]) -> list[dict[str, Any]]:
    usage = ModelUsage()
    reply = build_reply(answer, provider=PROVIDER, model=MODEL, state="complete", usage=usage, account=ACCOUNT)
    kept: list[dict[str, Any]] = json.loads(json.dumps([dict(part) for part in reply.content]))
    return kept


@given(parts())
def test_opaque_rebuilds_a_message_part_by_part(answer: list[AssistantPart]) -> None:
    """Whatever the order of thoughts, texts and calls, the maker gets them back in it, with each seal (C28)."""
    rebuilt = unpack_parts(content_of(answer), provider=PROVIDER, model=MODEL, account=ACCOUNT)
    if any(part.kind == "thinking" for part in answer):
        assert rebuilt == answer
    else:
        assert [(part.kind, part.text, part.call) for part in rebuilt] == [(p.kind, p.text, p.call) for p in answer]


@given(parts())
def test_opaque_survives_texts_that_were_joined(answer: list[AssistantPart]) -> None:
    """A history that keeps one text per message still gives each part its own (C28)."""
    content = content_of([part for part in answer if part.kind != "tool_call"])
    text = "".join(part["text"] for part in content if part["type"] == "text")
    joined = [part for part in content if part["type"] == "reasoning"] + (
        [{"type": "text", "text": text}] if text else []
    )
    rebuilt = unpack_parts(joined, provider=PROVIDER, model=MODEL, account=ACCOUNT)
    assert "".join(part.text for part in rebuilt if part.kind == "text") == text
    if any(part.kind == "thinking" for part in answer):
        assert rebuilt == [part for part in answer if part.kind != "tool_call"]


def test_opaque_order_survives_blank_text_whoever_kept_it() -> None:
    """Blank text between two thoughts is sent by nobody and changes no order, kept in the history or not (C28)."""
    answer = [
        AssistantPart("thinking", "one", tied={"signature": "1"}),
        AssistantPart("text", "\n\n"),
        AssistantPart("text", "First."),
        AssistantPart("thinking", "two", tied={"signature": "2"}),
        AssistantPart("text", "Second."),
    ]
    visible = [part for part in answer if part.text.strip()]
    content = content_of(answer)
    assert unpack_parts(content, provider=PROVIDER, model=MODEL, account=ACCOUNT) == visible
    whole = [content[0], {"type": "text", "text": "\n\nFirst.Second."}]
    assert unpack_parts(whole, provider=PROVIDER, model=MODEL, account=ACCOUNT) == visible


@given(parts(), st.sampled_from([("b", MODEL, ACCOUNT), (PROVIDER, "n", ACCOUNT), (PROVIDER, MODEL, "other")]))
def test_opaque_is_for_its_maker_only(answer: list[AssistantPart], other: tuple[str, str, str]) -> None:
    """Another provider, model or account gets the visible parts in order, and no thought, seal or id (C28)."""
    provider, model, account = other
    rebuilt = unpack_parts(content_of(answer), provider=provider, model=model, account=account)
    visible = [part for part in answer if part.kind != "thinking"]
    assert [(part.kind, part.text, part.call) for part in rebuilt] == [
        (part.kind, part.text, part.call) for part in visible
    ]
    assert all(part.tied is None for part in rebuilt)


def test_opaque_ties_nothing_to_a_text_that_was_changed() -> None:
    """When redaction changed a text, thoughts go first and the text goes without the old seal (C21)."""
    answer = [
        AssistantPart("text", "the key is 1234", tied={"signature": "of the text"}),
        AssistantPart("thinking", "hm", tied={"signature": "of the thought"}),
    ]
    content = content_of(answer)
    content[-1]["text"] = "the key is [redacted]"
    rebuilt = unpack_parts(content, provider=PROVIDER, model=MODEL, account=ACCOUNT)
    assert rebuilt == [answer[1], AssistantPart("text", "the key is [redacted]")]


def test_reply_interrupted_holds_no_call_and_no_seal() -> None:
    """What was cut short is only text: no call can run, and no half seal is sent (A24, A2)."""
    answer = [
        AssistantPart("thinking", "hm", tied={"signature": "s"}),
        AssistantPart("text", "I will"),
        AssistantPart("tool_call", call={"type": "tool_call", "id": "c", "name": "t", "input": {}}),
    ]
    reply = build_reply(answer, provider=PROVIDER, model=MODEL, state="interrupted", usage=ModelUsage())
    assert (reply.text, reply.tool_calls, reply.opaque) == ("I will", (), None)
    assert [part["type"] for part in reply.content] == ["reasoning", "text"]
