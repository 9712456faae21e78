"""Characters that arrive in halves, or that no log can hold: watchers see what the log has, and no line breaks over them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kipu.events.conversation import AgentMessageEvent
from kipu.ports.model import TextDelta
from kipu.runtime.observer import LostNews, ModelNews
from kipu.testing.scripted_model import ScriptedModelClient, ScriptedReply
from kipu.wiring import open_redactor
from tests.acceptance.live.kit import begun, process, say, watching

# As providers cut them: a pair of halves in two pieces, a half that nothing follows, and a character that no store takes.
ANSWERS = {
    "a pair in two pieces": "ab\ud83d\ude00cd, and so on to the end",
    "a half at the end": "so it ends\ud83d",
    "a half in the middle": "ab\ud83dcd and more",
    "a second half alone": "ab \ude00cd",
    "a NUL": "ab\0cd and more",
}


@pytest.mark.parametrize("redacts", [False, True])
@pytest.mark.parametrize("odd", ANSWERS)
async def test_watchers_see_the_characters_that_the_log_has(odd: str, redacts: bool, tmp_path: Path) -> None:
    """Pieces joined are the answer, in its own process and in another, and nothing is taken back (A9, B61)."""
    url = f"sqlite:///{tmp_path}/s.db"
    redactor = open_redactor() if redacts else None
    model = ScriptedModelClient([ScriptedReply(ANSWERS[odd], piece_chars=3, hold_after=1), "Next."])
    async with process(url, tmp_path, model, redactor=redactor) as works, process(url, tmp_path) as looks:
        session = await begun(works.manager)
        async with watching(looks, session.session_id) as there, watching(works, session.session_id) as here:
            await say(works, session.session_id, "go")
            await asyncio.wait_for(model.held.wait(), 60)
            model.release()
            await there.until_finished()
            await here.until_finished()
            (answer,) = [event.content for event in here.events if isinstance(event, AgentMessageEvent)]
            assert here.streamed == answer
            assert there.text == answer
            assert not any(isinstance(one, LostNews) for one in [*here.happenings, *there.happenings])
            await say(works, session.session_id, "and now?")  # what carries the pieces goes on
            await there.until_finished(2)
            await there.until(lambda seen: seen.text == f"{answer}Next.")
            pieces = [
                one.event.text
                for one in there.happenings
                if isinstance(one, ModelNews) and isinstance(one.event, TextDelta)
            ]
            assert all(piece.encode() for piece in pieces)
