"""Keys lead to sessions."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from kipu.errors import InputError, InvalidEventError, InvalidSessionKeyError, SessionNotFoundError
from kipu.events.conversation import UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.ports.principal import Principal
from kipu.session.key import SessionKey
from kipu.wiring import open_manager
from tests.acceptance.manager.conftest import Opener


async def test_messages_of_one_chat_reuse_the_session(opener: Opener) -> None:
    """The same key leads to the same session, also after a restart; the first to ask for it makes it (A6, A13, A46, B44)."""
    first = await opener()
    session = await first.get_or_create("telegram:42")
    assert await first.get_or_create("telegram:42") is session
    await first.close()
    assert (await (await opener()).get_or_create("telegram:42")).session_id == session.session_id


async def test_every_channel_and_thread_has_a_history_of_its_own(manager: SessionManager) -> None:
    """Channels, chats, threads and members never share a session (A8, A12, A14, A15)."""
    keys: list[str | SessionKey] = [
        f"{channel}:7" for channel in ("cli", "gateway", "wechat", "qq", "telegram", "slack", "webhook", "cron")
    ]
    keys += [SessionKey("slack", "7", scope="thread", thread_id=thread) for thread in ("1", "2")]
    keys += [SessionKey("slack", "7", scope="group", member=member) for member in ("u1", "u2")]
    sessions = [(await manager.get_or_create(key)).session_id for key in keys]
    assert len(set(sessions)) == len(keys)


async def test_an_explicit_key_joins_several_connections(manager: SessionManager) -> None:
    """A product may give one key to many connections: all reach the same history (A7, A9, A16)."""
    one = await manager.get_or_create(SessionKey("gateway", "board-7"))
    two = await manager.get_or_create("gateway:board-7")
    await one.add_event(UserMessageEvent(content="from tab one"))
    assert two is one
    assert [message["content"] for message in await two.get_context_for_llm()] == ["from tab one"]


async def test_keys_that_look_alike_have_different_sessions(manager: SessionManager) -> None:
    """Case, separators and escapes tell sessions apart; Unicode forms of one name do not (A21)."""
    keys = ["a:b", "A:b", "a:B", "a:b_", "a_b:x", "a:b/c", "a:b:c", "a:b%253Ac", "w:日本", "w:한국"]
    sessions = {key: (await manager.get_or_create(key)).session_id for key in keys}
    assert len(set(sessions.values())) == len(keys)
    assert (await manager.get_or_create("x:é")) is (await manager.get_or_create("x:e\u0301"))


@pytest.mark.parametrize("key", ["", "nochat", ":x", "x:", "a:b;what=1"])
async def test_a_bad_key_makes_nothing(manager: SessionManager, key: str) -> None:
    """A key with a missing part is refused, for whatever comes in, and no session comes of it (A5, A62)."""
    for attempt in (
        manager.get_or_create(key),
        manager.receive(key, UserMessageEvent(content="x")),
        manager.acquire(key),
        manager.new_session(key),
        manager.create_session(key=key),
    ):
        with pytest.raises(InvalidSessionKeyError):
            await attempt
    assert await manager.list_sessions() == []


async def test_racing_creators_of_one_key_get_one_session(opener: Opener) -> None:
    """However many ask at once, in how many managers, one key has one session (A13, A45)."""
    managers = [await opener() for _ in range(3)]
    sessions = await asyncio.gather(*(manager.get_or_create("cli:race") for manager in managers for _ in range(5)))
    assert len({session.session_id for session in sessions}) == 1
    assert len(await managers[0].list_sessions()) == 1


async def test_new_binds_a_fresh_session_and_keeps_the_old_one(opener: Opener) -> None:
    """After /new the key leads to a fresh session; the old one stays listable, resumable and whole (A56)."""
    first = await opener()
    old = await first.get_or_create("cli:p")
    await old.add_event(UserMessageEvent(content="old words"))
    new = await first.new_session("cli:p")
    assert new.session_id != old.session_id
    assert await new.get_context_for_llm() == []
    assert (await first.get_or_create("cli:p")) is new
    await first.close()
    second = await opener()
    assert await second.list_sessions({"status": "expired"}) == [old.session_id]
    resumed = await second.open(old.session_id)
    assert [message["content"] for message in await resumed.get_context_for_llm()] == ["old words"]


async def test_new_leaves_a_session_that_was_deleted_by_hand(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A key that leads to files that are gone gets a fresh session all the same, and it is said; a message for it is an error (A50)."""
    async with await open_manager(f"jsonl:///{tmp_path}/s") as manager:
        old = await manager.create_session(key="cli:p")
    shutil.rmtree(tmp_path / "s" / old)
    async with await open_manager(f"jsonl:///{tmp_path}/s") as manager:
        with pytest.raises(SessionNotFoundError):
            await manager.receive("cli:p", UserMessageEvent(content="x"))
        with pytest.raises(SessionNotFoundError):
            await manager.new_session("cli:p", principal=Principal("ann"))
        new = await manager.new_session("cli:p")
        assert f"session {old}, which cannot be read" in caplog.text
        assert (await manager.get_or_create("cli:p")) is new


async def test_new_stands_where_the_old_one_cannot_be_marked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What became unreadable while it was open is left too: the fresh session is there, and no error says otherwise (A50, C16)."""
    async with await open_manager(f"jsonl:///{tmp_path}/s") as manager:
        old = await manager.get_or_create("cli:p")
        await old.add_event(UserMessageEvent(content="x"))
        log = tmp_path / "s" / old.session_id / "000001.jsonl"
        log.unlink()
        log.symlink_to(log)
        new = await manager.new_session("cli:p")
        assert (await manager.get_or_create("cli:p")) is new
        assert f"session {old.session_id} was not marked as expired" in caplog.text


async def test_an_alias_leads_to_the_same_history(manager: SessionManager) -> None:
    """When keys are made otherwise, the old history is still reached (A21)."""
    session = await manager.get_or_create("slack:C1")
    await manager.add_alias("slack:C1;scope=group", "slack:C1")
    assert await manager.get_or_create("slack:C1;scope=group") is session


async def test_a_message_delivered_twice_is_stored_once(opener: Opener) -> None:
    """The same source message is one event in the whole store, also from another manager and after /new (C4)."""
    one, two = await opener(), await opener()
    message = UserMessageEvent(content="hi", channel="telegram", source_message_id="m1")
    first = await one.receive("telegram:42", message)
    again = await two.receive("telegram:42", message)
    assert (again.session_id, again.first_seq, again.duplicate) == (first.session_id, first.first_seq, True)
    await one.new_session("telegram:42")
    late = await one.receive("telegram:42", message)
    assert (late.session_id, late.first_seq, late.duplicate) == (first.session_id, first.first_seq, True)
    edited = await one.receive("telegram:42", message, revision="2")
    assert not edited.duplicate
    other = await one.receive("slack:42", message.model_copy(update={"channel": "slack"}))
    assert not other.duplicate


@pytest.mark.parametrize("empty", ["", " "])
async def test_an_empty_id_makes_no_message_the_same_as_another(manager: SessionManager, empty: str) -> None:
    """What identifies nothing is refused, and no second message is lost as a duplicate of the first (C2, C4, C5)."""
    session = await manager.get_or_create("slack:C1")
    last = session.head.last_seq
    for text in ("一", "二"):
        with pytest.raises(InvalidEventError, match="source_message_id is empty"):
            await manager.receive("slack:C1", UserMessageEvent(content=text, source_message_id=empty))
        with pytest.raises(InputError, match="idempotency key is empty"):
            await session.add_event(UserMessageEvent(content=text), idempotency_key=empty)
        with pytest.raises(InputError, match="idempotency key is empty"):
            await session.add_events([UserMessageEvent(content=text)], idempotency_key=empty)
    assert session.head.last_seq == last


async def test_equal_words_are_two_messages(manager: SessionManager) -> None:
    """Equal content without the same source id is never taken for a duplicate (C2)."""
    session = await manager.get_or_create("cli:p")
    for _ in range(2):
        await manager.receive("cli:p", UserMessageEvent(content="yes"))
        await session.add_event(UserMessageEvent(content="yes"))
    assert [event.event_type for event in await session.get_full_history()].count("user_message") == 4
