"""What live pieces may never do: leave unasked, unsealed or unredacted, reach whom they may not, or hold anything up (A9, C20, C21)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kipu.errors import ModelUnavailableError, SessionNotFoundError
from kipu.events.conversation import AgentMessageEvent, ToolResultEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.ports.principal import Principal
from kipu.runtime.live.watch import PIECES_KEPT
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_redactor
from tests.acceptance.live.kit import Speaker, begun, overhearing, process, say, watching
from tests.acceptance.runtime.fakes import FunctionTool
from tests.servers import fresh_schema, postgres_url
from tests.valkey_servers import valkey_url

ANSWER = "The rain in Spain stays mainly in the plain."
SECRET = "ghp_" + "a8Kd72Lq0ZxM4nB6vC9pR1sT3uW5yE7gH2jF"  # of nobody


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


async def test_secret_that_streams_in_pieces_leaves_no_process(url: str, tmp_path: Path) -> None:
    """A secret cut over many pieces is in none that is carried; the watcher sees what the log has (C21, A9)."""
    model = ScriptedModelClient([ScriptedReply(f"Use {SECRET} for it, and then some more words.", piece_chars=3)])
    redactor = open_redactor()
    async with (
        overhearing(valkey_url()) as carried,
        process(url, tmp_path, model, live=valkey_url(), redactor=redactor) as works,
        process(url, tmp_path, live=valkey_url(), redactor=redactor) as looks,
    ):
        session = await begun(works.manager)
        async with watching(looks, session.session_id) as seen:
            await say(works, session.session_id, "which token?")
            await seen.until_finished()
            answer = next(event for event in seen.events if isinstance(event, AgentMessageEvent))
            assert seen.text == answer.content
            assert "some more words" in seen.text
        everything = "".join(carried)
        assert '"p":' in everything
        for start in range(0, len(SECRET) - 12, 4):
            assert SECRET[start : start + 12] not in everything + seen.text


async def test_pieces_of_an_encrypted_store_are_carried_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an encrypted store pieces travel under the session's data key: who overhears them reads nothing (C20, A9)."""
    monkeypatch.setenv("LIVE_TEST_KEY", "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=")
    url = f"sqlite:///{tmp_path}/s.db?encrypt=env:LIVE_TEST_KEY"
    model = ScriptedModelClient([ScriptedReply(ANSWER, piece_chars=22, hold_after=1)])
    async with (
        overhearing(valkey_url()) as carried,
        process(url, tmp_path, model, live=valkey_url()) as works,
        process(url, tmp_path, live=valkey_url()) as looks,
    ):
        session = await begun(works.manager)
        async with watching(looks, session.session_id) as seen:
            await say(works, session.session_id, "what is said?")
            await seen.until(lambda it: it.text == ANSWER[:22])
        texts = [text for text in carried if '"by"' not in text]
        assert texts
        assert not any("rain" in text or '"p":' in text for text in texts)
        model.release()


async def test_nothing_is_carried_while_nobody_watches(url: str, tmp_path: Path) -> None:
    """Turns that nobody watches elsewhere send nothing at all, and none more once the watcher has gone (A9)."""
    model = ScriptedModelClient([ANSWER, ScriptedReply(ANSWER, piece_chars=10, hold_after=2), ANSWER])
    async with process(url, tmp_path, model) as works, process(url, tmp_path) as looks:
        session = await begun(works.manager)
        assert works.relay is not None
        async with watching(works, session.session_id) as here:  # in the process that runs it
            await say(works, session.session_id, "one")
            await here.until_finished()
            assert (here.streamed, works.relay.sent_count) == (ANSWER, 0)
        async with watching(looks, session.session_id) as there:
            await say(works, session.session_id, "two")
            await there.until(lambda it: it.streamed == ANSWER[:20])
            model.release()
            await there.until_finished()
            before = works.relay.sent_count
            assert before > 0
        async with asyncio.timeout(60):
            while works.relay.is_wanted(session.session_id):  # noqa: ASYNC110 - another process takes it back
                await asyncio.sleep(0.01)
        await say(works, session.session_id, "three")
        await works.worker.until_idle()
        assert works.relay.sent_count == before


async def test_who_may_not_read_a_session_is_given_nothing_and_whose_right_ends_no_more(
    url: str, tmp_path: Path
) -> None:
    """To a stranger there is no session to watch; whose right is taken back is given nothing after it (A20, C19)."""
    ada, bob, eve = Principal("ada", "acme"), Principal("bob", "acme"), Principal("ada", "other")
    model = ScriptedModelClient([ANSWER, "a secret plan"])
    async with (
        process(url, tmp_path, model, principal=ada) as works,
        process(url, tmp_path, principal=Principal("root", "acme", frozenset({"admin"}))) as looks,
    ):
        session = await works.manager.get_or_create("test:1")
        for stranger in (bob, eve):
            with pytest.raises(SessionNotFoundError):
                await looks.bus.watch(session.session_id, principal=stranger)
        await session.share("bob", role="viewer")
        async with watching(looks, session.session_id, principal=bob) as seen:
            await say(works, session.session_id, "what is said?")
            await seen.until_finished()
            assert seen.text == ANSWER
            await works.worker.until_idle()
            await session.revoke("bob")
            await say(works, session.session_id, "and the plan?")
            await works.worker.until_idle()
            with pytest.raises(SessionNotFoundError):
                await seen.until(lambda it: "plan" in it.text)
            assert not any("plan" in str(event) for event in seen.events)


async def test_output_of_a_running_call_is_seen_elsewhere_before_its_result(url: str, tmp_path: Path) -> None:
    """What a tool prints reaches a watcher elsewhere while it runs, also one who comes later (A9)."""
    speaker = Speaker()
    tool = FunctionTool("speak", speaker.run)
    model = ScriptedModelClient([ScriptedReply("", calls=[ScriptedCall("speak")]), "It spoke."])
    more_tools = lambda _session: [tool]  # noqa: E731
    async with process(url, tmp_path, model, more_tools=more_tools) as works, process(url, tmp_path) as looks:
        session = await begun(works.manager)
        async with watching(looks, session.session_id) as seen:
            await say(works, session.session_id, "speak")
            await speaker.begun.wait()
            speaker.say("one ")
            await seen.until(lambda it: it.output == "one ")
            async with watching(looks, session.session_id) as later:
                await later.until(lambda it: it.output == "one ")
                speaker.say("two")
                await seen.until(lambda it: it.output == "one two")
                await later.until(lambda it: it.output == "one two")
                assert not any(isinstance(event, ToolResultEvent) for event in seen.events)
            speaker.over.set()
            await seen.until_finished()
            assert (seen.output, seen.text) == ("one two", "It spoke.")


async def test_answer_that_is_asked_for_again_is_shown_once_elsewhere(url: str, tmp_path: Path) -> None:
    """After a fault of the provider the second try takes the place of what had streamed of the first (A9)."""
    fault = ModelUnavailableError(model="m", status=529, reason="busy", retry_after_s=0.2)
    model = ScriptedModelClient(
        [ScriptedReply("Not this one at all", piece_chars=4, error=fault, error_after=3), ScriptedReply(ANSWER)]
    )
    async with process(url, tmp_path, model) as works, process(url, tmp_path) as looks:
        session = await begun(works.manager)
        async with watching(looks, session.session_id) as seen:
            await say(works, session.session_id, "what is said?")
            await seen.until_finished()
            assert seen.text == ANSWER


async def test_watcher_that_does_not_keep_up_holds_nothing_up_and_misses_no_event(tmp_path: Path) -> None:
    """A watcher that reads nothing for a whole turn loses pieces at most: the turn ends, and every event comes (A9)."""
    words = "".join(f"word{number:05d} " for number in range(PIECES_KEPT + 500))
    model = ScriptedModelClient([ScriptedReply(words, piece_chars=10)])
    async with process("memory://", tmp_path, model) as works:
        session = await begun(works.manager)
        happenings = await works.bus.watch(session.session_id)
        first = asyncio.ensure_future(anext(happenings))
        await say(works, session.session_id, "say much")
        await first
        async with asyncio.timeout(60):
            await works.worker.until_idle()
        events, text = [], ""
        async for happening in happenings:
            if isinstance(happening, AgentMessageEvent):
                text = str(happening.content)
            events.append(happening)
            if isinstance(happening, TurnFinishedEvent):
                break
        assert text == words
        seqs = [event.seq for event in events if isinstance(event, SessionEvent)]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


async def test_lost_lines_cost_liveness_for_a_moment_and_no_event(tmp_path: Path) -> None:
    """When the server ends the lines that carry pieces, every event comes and pieces come again soon (A9)."""
    from tests.acceptance.postgres.kit import ask

    url, speaker = fresh_schema(postgres_url()), Speaker()
    tool = FunctionTool("speak", speaker.run)
    model = ScriptedModelClient([ScriptedReply("", calls=[ScriptedCall("speak")]), "It spoke."])
    more_tools = lambda _session: [tool]  # noqa: E731
    async with process(url, tmp_path, model, more_tools=more_tools) as works, process(url, tmp_path) as looks:
        session = await begun(works.manager)
        async with watching(looks, session.session_id) as seen:
            await say(works, session.session_id, "speak")
            await speaker.begun.wait()
            speaker.say("one ")
            await seen.until(lambda it: it.output == "one ")
            lines = "FROM pg_stat_activity WHERE application_name = 'kipu live'"
            ended = await ask(postgres_url(), f"SELECT pg_terminate_backend(pid) {lines}")
            assert len(ended) >= 2
            speaker.say("two ")
            await seen.until(lambda it: it.output == "one two ")
            speaker.over.set()
            await seen.until_finished()
            assert seen.text == "It spoke."
            assert [event.seq for event in seen.events] == list(range(seen.events[0].seq, seen.events[-1].seq + 1))


@pytest.mark.parametrize("live", ["off", "valkey://127.0.0.1:1/0"])
async def test_without_anything_that_carries_pieces_every_event_comes(live: str, url: str, tmp_path: Path) -> None:
    """With live pieces off, or a server that is not there, a watcher elsewhere has the events alone (A9)."""
    async with (
        process(url, tmp_path, ScriptedModelClient([ANSWER]), live=live) as works,
        process(url, tmp_path, live=live) as looks,
    ):
        session = await begun(works.manager)
        async with watching(looks, session.session_id) as seen:
            await say(works, session.session_id, "what is said?")
            await seen.until_finished()
            assert seen.streamed == ""
            assert [event.content for event in seen.events if isinstance(event, AgentMessageEvent)] == [ANSWER]
