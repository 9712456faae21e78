"""Answers as they stream, seen from another process over every store (A9, B61)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.events.conversation import AgentMessageEvent
from kipu.testing.scripted_model import ScriptedModelClient, ScriptedReply
from tests.acceptance.live.kit import begun, process, say, watching
from tests.servers import fresh_schema, postgres_url
from tests.valkey_servers import fresh_prefix, valkey_url

ANSWER = "The rain in Spain stays mainly in the plain, and so does everything else that was ever said of it."


@pytest.fixture(params=["sqlite", "jsonl", "postgresql", "valkey", "sqlite+valkey", "encrypted postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str | None]:
    """Return a store's URL, and what carries its pieces."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LIVE_TEST_KEY", "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=")
    return {
        "sqlite": (f"sqlite:///{tmp_path}/s.db", None),
        "jsonl": (f"jsonl:///{tmp_path}/s", None),
        "postgresql": (fresh_schema(postgres_url()), None),
        "valkey": (fresh_prefix(valkey_url()), None),
        "sqlite+valkey": (f"sqlite:///{tmp_path}/s.db", valkey_url()),
        "encrypted postgresql": (fresh_schema(postgres_url(), encrypt="env:LIVE_TEST_KEY"), None),
    }[str(request.param)]


async def test_answer_streams_to_another_process_before_the_log_has_it(
    place: tuple[str, str | None], tmp_path: Path
) -> None:
    """Pieces reach a watcher elsewhere while the model speaks, and with the event the text is whole, once (A9)."""
    url, live = place
    model = ScriptedModelClient([ScriptedReply(ANSWER, piece_chars=5, hold_after=6)])
    async with process(url, tmp_path, model, live=live) as works, process(url, tmp_path, live=live) as looks:
        session = await begun(works.manager)
        async with watching(looks, session.session_id) as seen:
            await say(works, session.session_id, "what is said?")
            await seen.until(lambda it: it.text == ANSWER[:30])
            assert not any(isinstance(event, AgentMessageEvent) for event in seen.events)
            model.release()
            await seen.until_finished()
            assert seen.text == ANSWER
            answers = [event for event in seen.events if isinstance(event, AgentMessageEvent)]
            assert [event.content for event in answers] == [ANSWER]
            assert [event.seq for event in seen.events] == list(range(seen.events[0].seq, seen.events[-1].seq + 1))


async def test_watcher_who_comes_later_is_given_the_answer_from_its_beginning(
    place: tuple[str, str | None], tmp_path: Path
) -> None:
    """Who begins to watch in the middle of an answer sees what was said before, once, and then the rest (A9)."""
    url, live = place
    model = ScriptedModelClient([ScriptedReply(ANSWER, reasoning="hm", piece_chars=5, hold_after=7)])
    async with process(url, tmp_path, model, live=live) as works, process(url, tmp_path, live=live) as looks:
        session = await begun(works.manager)
        await say(works, session.session_id, "what is said?")
        await model.held.wait()
        async with watching(looks, session.session_id) as first:
            await first.until(lambda it: it.text == ANSWER[:30])
            async with watching(looks, session.session_id) as second:
                await second.until(lambda it: it.text == ANSWER[:30])
                model.release()
                await first.until_finished()
                await second.until_finished()
                assert (first.text, second.text) == (ANSWER, ANSWER)
