"""A fault that does not pass: the turn ends with what there was, and the session's next turn works, every body valid."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.runtime.turns.model_step import StreamLimits
from kipu.testing.fake_provider import FakeAnswer, FakeCall, FakeFailure
from tests.acceptance.runtime.fakes import of_type
from tests.acceptance.runtime.soak_check import windows_refused
from tests.acceptance.runtime.test_turns_over_http import ANTHROPIC, CHAT, turns_over

OVERLOADED = FakeFailure(529, "Overloaded", "overloaded_error", "overloaded_error")
LOOK = FakeCall("call_0", "look", '{"at": 1}')
LIMITS = StreamLimits(silence_s=0.3, max_characters=2_000)
FAULTS: dict[str, FakeAnswer | FakeFailure] = {
    "400": FakeFailure(400, "messages: roles must alternate"),
    "401": FakeFailure(401, "no such key", "authentication_error"),
    "404": FakeFailure(404, "no such model", "not_found_error"),
    "413": FakeFailure(413, "request too large", "request_too_large"),
    "429": FakeFailure(429, "slow down", "rate_limit_error", headers={"retry-after-ms": "1"}),
    "500": FakeFailure(500, "oops", "api_error"),
    "dropped": FakeFailure(0),
    "overloaded in the stream": FakeAnswer("a part of it", fail_after=2, failure=OVERLOADED),
    "cut stream": FakeAnswer("a part of a long answer that goes on", cut_after=4),
    "early end": FakeAnswer("a part of a long answer that goes on", end_after=4),
    "cut call": FakeAnswer("Look:", calls=[FakeCall("call_0", "look", '{"at": "' + "a" * 80 + '"}', cut=True)]),
    "silent stream": FakeAnswer("a part of a long answer", hold_after=3),
    "endless stream": FakeAnswer("and so on, ", endless=True),
    "empty": FakeAnswer(),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", [CHAT, ANTHROPIC])
async def test_next_turn_works_after_a_fault_that_does_not_pass(name: str, fault: str) -> None:
    """Whatever a provider keeps doing in one turn, the next one sends a body that is valid and is answered (A2, A35, C7)."""

    def script(body: dict[str, Any]) -> FakeAnswer | FakeFailure:
        if "and now?" in str(body):
            return FakeAnswer("Here I am again.")
        return FAULTS[fault] if "Looking." in str(body) else FakeAnswer("Looking.", calls=[LOOK, LOOK])

    async with turns_over(name, script=script, stream_limits=LIMITS) as (run, provider):
        session = await run.session()
        await run.say(session, "fault, please")
        await run.settled()
        provider.release()
        await run.say(session, "and now?")
        await run.settled()
        assert provider.violations() == []
        outcomes = [event.outcome for event in await of_type(session, TurnFinishedEvent)]
        # Nothing more to say after tools have run is an end, not a fault.
        assert outcomes == ["completed" if fault == "empty" else "failed", "completed"]
        answers = await of_type(session, AgentMessageEvent)
        assert (answers[-1].content, answers[-1].state) == ("Here I am again.", "complete")
        assert [answer.state for answer in answers].count("complete") == (3 if fault == "empty" else 2)
        assert len(await of_type(session, UserMessageEvent)) == 2
        assert await windows_refused(session) == []
