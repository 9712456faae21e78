"""Tools that raise or return what no tool should: each is a result, and ends neither the turn nor the process."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.events.conversation import ToolCallEvent, ToolResultEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.ports.tool import ToolResult
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.testing.validators.neutral import validate_neutral
from tests.acceptance.runtime.fakes import FunctionTool, of_type, runtime, until


class PanicError(BaseException):
    """What libraries written in Rust raise: no `Exception`."""


class WordlessError(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class BareTool(FunctionTool):
    """A tool that returns just what its function gives."""

    async def run(self, arguments: Any, context: Any) -> Any:
        assert self.function is not None
        return await self.function(arguments, context)


async def results_with(tool: FunctionTool) -> list[Any]:
    """Return the results of a call of this tool and of one after it, once their turn has come to its own end."""
    calls = [ScriptedCall(tool.name), ScriptedCall("look")]
    model = ScriptedModelClient([ScriptedReply(calls=calls), "I see."])
    async with runtime(model, tool, FunctionTool("look")) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        assert [(event.outcome, event.error) for event in await of_type(session, TurnFinishedEvent)] == [
            ("completed", None)
        ]
        results = await of_type(session, ToolResultEvent)
        made = [event.tool_call_id for event in await of_type(session, ToolCallEvent)]
        assert sorted(made) == sorted(result.tool_call_id for result in results)
        return sorted(results, key=lambda result: made.index(result.tool_call_id))


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (PanicError("index out of bounds"), "PanicError: index out of bounds"),
        (GeneratorExit(), "GeneratorExit"),
        (WordlessError(), "WordlessError"),
        (BaseExceptionGroup("several", [PanicError("one")]), "several"),
    ],
    ids=["exit", "panic", "generator", "wordless", "group"],
)
async def test_whatever_a_tool_raises_is_its_result(error: BaseException, name: str) -> None:
    """Also what is no `Exception`, an exit and an error without a text: every call has its result, the turn goes on (A2, A25)."""

    async def fail(_arguments: Any, _context: Any) -> str:
        raise error

    failed, looked = await results_with(FunctionTool("fail", fail, {"has_side_effect": True}))
    assert (failed.is_error, failed.error_info) == (True, "fault")
    assert name in failed.result
    assert looked.result == "look done"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("written", ("written", False, None)),
        (None, (None, False, None)),
        (ToolResult("not written", is_error="yes", error_info=404), ("not written", True, "404")),  # type: ignore[arg-type]
        (ToolResult("written", pinned=1, usage=["3 steps"]), ("written", False, None)),  # type: ignore[arg-type]
    ],
    ids=["text", "nothing", "flags", "usage"],
)
async def test_whatever_a_tool_returns_is_told(given: object, kept: tuple[Any, bool, str | None]) -> None:
    """A call that had its effect is not told as cancelled, whatever shape its result has (B16)."""

    async def write(_arguments: Any, _context: Any) -> object:
        return given

    written, _looked = await results_with(BareTool("write", write, {"has_side_effect": True}))
    assert (written.result, written.is_error, written.error_info) == kept
    assert written.synthetic is None


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"parameters": {"type": "object", "default": object()}}, "no JSON"),
        ({"parameters": {"type": "object", "properties": {1: {}}}}, "no JSON"),
        ({"parameters": 5}, "no JSON"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"timeout_s": 0}, "timeout_s is 0"),
    ],
    ids=["value", "key", "number", "nan", "zero"],
)
async def test_tool_that_cannot_be_used_is_named(spec: dict[str, Any], reason: str) -> None:
    """What a tool says of itself wrongly fails the turn with the tool's name, before a model is asked (B39)."""
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("odd")]), "I see."])
    async with runtime(model, FunctionTool("odd", spec_fields=spec)) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        (finished,) = await of_type(session, TurnFinishedEvent)
        assert (finished.outcome, model.requests) == ("failed", [])
        assert "tool odd cannot be used" in finished.error
        assert reason in finished.error
        assert finished.error.endswith("[tool]")


@pytest.mark.parametrize("name", ["  ", "\n", ""])
async def test_call_to_a_tool_without_a_name_makes_a_valid_window(name: str) -> None:
    """White space is no tool's name: the model is told that there is none of it, in a window that is accepted (A2, C7)."""
    model = ScriptedModelClient([ScriptedReply("Now.", calls=[ScriptedCall(name)]), "Never mind."])
    async with runtime(model) as run:
        session = await run.session()
        await run.say(session, "go")
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        assert validate_neutral(model.requests[-1].messages) == []
