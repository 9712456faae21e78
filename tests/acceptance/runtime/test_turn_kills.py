"""SIGKILL before and after every append of a turn: nothing runs twice silently, nothing is lost (C5, C14, C16)."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from pathlib import Path

import pytest

from kipu.events.conversation import ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.turn import TurnFinishedEvent, TurnStartedEvent
from kipu.testing.scripted_model import ScriptedModelClient
from kipu.testing.validators.neutral import validate_neutral
from kipu.wiring import open_manager
from tests.acceptance.runtime import turn_driver
from tests.acceptance.runtime.fakes import of_type, runtime

MOST_APPENDS = 25
STORES = {"sqlite": "sqlite:////{}/s.db", "jsonl": "jsonl:////{}/sessions"}


def killed_at(url: str, effects: Path, *, append: int, before: bool) -> bool:
    """Run the turn in a process of its own; True when it was killed, False when it came to its end."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.acceptance.runtime.turn_driver"])
    child = context.Process(target=turn_driver.main, args=(url, str(effects), append, before))
    child.start()
    child.join(60)
    assert child.exitcode in (0, -9), f"the child ended with {child.exitcode}"
    return child.exitcode == -9


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("kind", STORES)
async def test_turn_survives_a_kill_at_every_append(tmp_path: Path, kind: str, before: bool) -> None:
    """Whatever append a process dies at, another goes on: each effect at most once, one answer, a valid history (C5, C14)."""
    deaths = 0
    for append in range(1, MOST_APPENDS):
        place = tmp_path / str(append)
        place.mkdir()
        url, effects = STORES[kind].format(place), place / "effects"
        if not killed_at(url, effects, append=append, before=before):
            break
        deaths += 1
        await check(url, effects, may_be_lost=before and append == 1)
    assert deaths >= 12, "the kills must reach every append of the turn"


async def check(url: str, effects: Path, *, may_be_lost: bool) -> None:
    async with await open_manager(url) as manager:
        model = ScriptedModelClient(turn_driver.answer)
        async with runtime(model, *turn_driver.tools(effects), manager=manager) as run:
            await turn_driver.finish(run)
        session = await manager.get_or_create("test:1")
        messages = await of_type(session, UserMessageEvent)
        if may_be_lost and not messages:
            return
        ran = Counter(effects.read_text().split()) if effects.exists() else Counter()
        assert ran["write"] <= 1, "ran twice"
        assert ran["danger"] <= 1, "ran twice"
        calls = [event.tool_call_id for event in await of_type(session, ToolCallEvent)]
        results = await of_type(session, ToolResultEvent)
        assert sorted(calls) == sorted(result.tool_call_id for result in results)
        for result in results:
            if ran[result.tool_name] == 0:
                assert result.synthetic == "interrupted", f"{result.tool_name} says {result.result}"
        assert [event.consumes for event in await of_type(session, TurnStartedEvent)] == [[messages[0].seq]]
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"]
        assert session.head.waiting == ()
        assert session.head.open_turn is None
        window = await session.get_context_for_llm("neutral")
        assert validate_neutral(window, may_end_with_model=True) == []
