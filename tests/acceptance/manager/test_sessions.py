"""Creating, opening, writing, listing and ending sessions."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kipu.errors import (
    InvalidEventError,
    InvalidQueryError,
    InvalidSessionIdError,
    SessionErasedError,
    SessionForkedError,
    SessionNotFoundError,
    TransitionError,
)
from kipu.events.boundary import GenericEvent, MetadataChangedEvent
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.manager.manager import SessionManager
from kipu.ports.principal import Principal
from kipu.ports.store import SessionQuery
from tests.acceptance.manager.conftest import Opener


async def talk(manager: SessionManager, session_id: str) -> None:
    """Add a question, a call, its result and an answer."""
    session = await manager.open(session_id)
    await session.add_event(UserMessageEvent(content="read a.txt", sender_id="u1", metadata={"client": "cli"}))
    await session.add_event(ToolCallEvent(tool_name="read", tool_input={"path": "a.txt"}, tool_call_id="call_1"))
    await session.add_event(ToolResultEvent(tool_call_id="call_1", result="alpha", tool_name="read"))
    await session.add_event(AgentMessageEvent(content="It says alpha.", reasoning="I read it."))


async def test_a_restarted_session_goes_on_with_the_same_context(opener: Opener) -> None:
    """Dialogue, tool records and variables are back after a restart; the window shows all of them, the same (B1, B2, B32, B33, A24)."""
    first = await opener()
    session_id = await first.create_session(initial_context={"topic": "files", "vars": {"n": 1}})
    await talk(first, session_id)
    before = await (await first.open(session_id)).get_context_for_llm()
    assert [message["role"] for message in before] == ["user", "assistant", "tool", "assistant"]
    await first.close()
    session = await (await opener()).open(session_id)
    assert await session.get_context_for_llm() == before
    assert session.metadata["vars"] == {"n": 1}
    assert session.metadata["topic"] == "files"


async def test_messages_carry_their_tool_fields_and_sender(manager: SessionManager) -> None:
    """The session has key, messages, times, metadata, status; messages have tool fields, who and when (A22, A23, A28)."""
    session = await manager.get_or_create("cli:project")
    await talk(manager, session.session_id)
    user, call, result, answer = session.messages
    assert user["content"] == "read a.txt"
    assert user["sender_id"] == "u1"
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert result["name"] == "read"
    assert answer["content"] == "It says alpha."
    assert session.key == "cli:project"
    assert session.status == "active"
    assert session.last_consolidated == 0
    assert session.created_at.tzinfo is UTC
    assert session.created_at <= session.updated_at


async def test_calls_and_results_pair_by_id_after_loading(opener: Opener) -> None:
    """Every result leads to its call by id over save and load, in the order of the causal record (A25, A27, B17)."""
    first = await opener()
    session_id = await first.create_session()
    await talk(first, session_id)
    await first.close()
    history = await (await (await opener()).open(session_id)).get_full_history()
    assert [event.event_type for event in history] == [
        "session_init", "user_message", "tool_call", "tool_result", "agent_message",
    ]  # fmt: skip
    assert [event.seq for event in history] == [1, 2, 3, 4, 5]
    call, result = history[2], history[3]
    assert isinstance(call, ToolCallEvent)
    assert isinstance(result, ToolResultEvent)
    assert call.tool_call_id == result.tool_call_id
    assert all(event.timestamp is not None and event.timestamp.tzinfo is UTC for event in history)


async def test_a_new_session_begins_with_session_init(manager: SessionManager) -> None:
    """The first event of a session that somebody makes is its session_init, with unique ids (B10, B19, B44)."""
    sessions = [await manager.create_session() for _ in range(3)]
    assert len(set(sessions)) == 3
    events = [event for one in sessions for event in await (await manager.open(one)).get_full_history()]
    assert [event.event_type for event in events] == ["session_init"] * 3
    assert len({event.event_id for event in events}) == 3


async def test_creating_an_id_that_exists_loads_it_with_a_warning(
    manager: SessionManager, caplog: pytest.LogCaptureFixture
) -> None:
    """An id that exists is loaded, never overwritten, and that is said (B21)."""
    await manager.create_session("mine", {"topic": "one"})
    await talk(manager, "mine")
    with caplog.at_level(logging.WARNING):
        assert await manager.create_session("mine", {"topic": "two"}) == "mine"
    assert "mine exists already" in caplog.text
    session = await manager.open("mine")
    assert session.metadata["topic"] == "one"
    assert len(await session.get_full_history()) == 5


async def test_a_missing_session_is_none_and_logged(manager: SessionManager, caplog: pytest.LogCaptureFixture) -> None:
    """get_session gives None for an unknown id, and opening or writing one is an error, never a new session (B23, B24)."""
    with caplog.at_level(logging.WARNING):
        assert await manager.get_session("nobody") is None
    assert "nobody" in caplog.text
    with pytest.raises(SessionNotFoundError) as caught:
        await manager.open("nobody")
    assert caught.value.code == "session_not_found"
    with pytest.raises(SessionNotFoundError):
        await manager.save_event("nobody", UserMessageEvent(content="x"))
    assert await manager.list_sessions() == []


async def test_save_event_is_durable_when_it_returns(opener: Opener) -> None:
    """What save_event returned is there for another manager at once (B24, C2)."""
    first, second = await opener(), await opener()
    session_id = await first.create_session()
    stored = await first.save_event(session_id, UserMessageEvent(content="hello"))
    assert stored.seq == 2
    seen = await (await second.open(session_id)).get_recent_events(1)
    assert seen == [stored]


async def test_sessions_do_not_share_memory_or_state(manager: SessionManager) -> None:
    """Switching between sessions mixes nothing: each has its own events, window and settings (B3, B4, B38, A4)."""
    one, two = await manager.get_or_create("cli:a"), await manager.get_or_create("cli:b")
    for turn in range(3):
        await one.add_event(UserMessageEvent(content=f"a{turn}"))
        await two.add_event(UserMessageEvent(content=f"b{turn}"))
    await one.set_metadata(model="m1")
    assert [message["content"] for message in await one.get_context_for_llm()] == ["a0", "a1", "a2"]
    assert [message["content"] for message in await two.get_context_for_llm()] == ["b0", "b1", "b2"]
    assert "model" not in two.metadata


async def test_one_object_per_session(manager: SessionManager) -> None:
    """Opening a session twice gives the same object (A45)."""
    session_id = await manager.create_session()
    assert await manager.open(session_id) is await manager.get_session(session_id)


async def test_the_context_is_a_copy(manager: SessionManager) -> None:
    """Changing what get_context_for_llm returned changes nothing else (B34)."""
    session_id = await manager.create_session()
    await talk(manager, session_id)
    session = await manager.open(session_id)
    before = await session.get_context_for_llm()
    spoiled = await session.get_context_for_llm()
    spoiled[1]["tool_calls"][0]["function"]["name"] = "rm"
    spoiled[0]["content"] = "changed"
    spoiled.clear()
    assert await session.get_context_for_llm() == before


async def test_recent_events_are_the_last_ones(manager: SessionManager) -> None:
    """get_recent_events gives the last n, oldest first, and get_full_history all (B35)."""
    session_id = await manager.create_session()
    session = await manager.open(session_id)
    for n in range(30):
        await session.add_event(UserMessageEvent(content=str(n)))
    recent = await session.get_recent_events()
    assert [event.seq for event in recent] == list(range(22, 32))
    assert await session.get_recent_events(0) == []
    assert len(await session.get_recent_events(1000)) == 31


async def test_metadata_tells_times_and_counts(manager: SessionManager) -> None:
    """Loaded metadata has created_at, last_event_at and total_events beside the session's own settings (B30, B37)."""
    session_id = await manager.create_session(initial_context={"topic": "login", "temperature": 0.2})
    await talk(manager, session_id)
    session = await manager.open(session_id)
    assert session.metadata["total_events"] == 5
    assert datetime.fromisoformat(session.metadata["created_at"]) == session.created_at
    assert datetime.fromisoformat(session.metadata["last_event_at"]) == session.updated_at
    assert session.metadata["temperature"] == 0.2


async def test_list_filters_by_status_time_owner_and_metadata(manager: SessionManager) -> None:
    """list_sessions filters by creation, activity, status, tags and metadata, newest activity first (B26, B37)."""
    login = await manager.create_session(initial_context={"topic": "login", "model": "m1"})
    other = await manager.create_session(initial_context={"topic": "other", "model": "m1"})
    await (await manager.open(other)).set_status("archived")
    await (await manager.open(login)).set_metadata(tags=["urgent"])
    await talk(manager, login)
    now = datetime.now(UTC)
    assert await manager.list_sessions() == [login, other]
    assert await manager.list_sessions({"topic": "login"}) == [login]
    assert await manager.list_sessions({"metadata": {"model": "m1"}, "status": "archived"}) == [other]
    assert await manager.list_sessions({"tags": "urgent"}) == [login]
    assert await manager.list_sessions({"created_before": now - timedelta(days=1)}) == []
    assert await manager.list_sessions({"active_after": now - timedelta(days=1), "topic": "other"}) == [other]
    with pytest.raises(InvalidQueryError, match="status 'zzz' is not one of"):
        await manager.list_sessions({"status": "zzz"})
    with pytest.raises(InvalidQueryError, match="metadata is a mapping"):
        await manager.list_sessions({"metadata": 3})
    with pytest.raises(InvalidQueryError):
        await manager.list_sessions({"created_before": "yesterday"})
    with pytest.raises(InvalidQueryError):
        await manager.list_sessions({"created_before": datetime(2026, 1, 1)})  # noqa: DTZ001 - a time without a zone


async def test_listing_pages_through_everything_once(manager: SessionManager) -> None:
    """Pages by cursor give each session once (B26, B50)."""
    made = [await manager.create_session() for _ in range(7)]
    seen: list[str] = []
    query = SessionQuery(limit=3)
    pages = 0
    while True:
        page = await manager.list(query)
        seen += [head.session_id for head in page.items]
        pages += 1
        if page.cursor is None:
            break
        query = SessionQuery(limit=3, cursor=page.cursor)
    assert sorted(seen) == sorted(made)
    assert pages == 3


async def test_the_head_answers_lists_without_the_log(manager: SessionManager) -> None:
    """The index row has id, times, counts and a preview of the last events (B50)."""
    session_id = await manager.create_session()
    await talk(manager, session_id)
    (head,) = (await manager.list()).items
    assert (head.event_count, head.last_seq, head.first_text) == (5, 5, "read a.txt")
    assert [preview.event_type for preview in head.previews] == ["user_message", "tool_call", "agent_message"]
    assert head.previews[-1].text == "It says alpha."


async def test_deleting_removes_everything_and_the_id_stays_used(opener: Opener) -> None:
    """delete_session is True once, False after; memory, list, search and key are gone, and the id is not used again (B27, B46)."""
    manager = await opener()
    session = await manager.get_or_create("cli:gone")
    session_id = session.session_id
    await session.add_event(UserMessageEvent(content="xyzzy"))
    assert (await manager.search("xyzzy")).items
    assert await manager.delete_session(session_id) is True
    assert await manager.delete_session(session_id) is False
    assert await manager.get_session(session_id) is None
    assert await manager.list_sessions() == []
    assert not (await manager.search("xyzzy")).items
    assert await manager.resolve("cli:gone") is None
    with pytest.raises(SessionErasedError):
        await manager.create_session(session_id)
    with pytest.raises(SessionNotFoundError):
        await session.add_event(UserMessageEvent(content="too late"))
    await manager.close()
    assert await (await opener()).get_session(session_id) is None


async def test_deleting_a_session_with_forks_is_refused_with_their_names(manager: SessionManager) -> None:
    """Erasing a parent names the forks that need it, or takes them along when told to (C11)."""
    session_id = await manager.create_session()
    await talk(manager, session_id)
    fork = await (await manager.open(session_id)).fork()
    with pytest.raises(SessionForkedError, match=fork.session_id):
        await manager.delete_session(session_id)
    assert len(await fork.get_full_history()) == 6
    assert await manager.delete_session(session_id, cascade=True)
    assert await manager.get_session(fork.session_id) is None


@pytest.mark.parametrize("bad", ["../x", "CON", "x" * 300, "e\u0301", "A", ""])
async def test_bad_ids_are_refused_everywhere(manager: SessionManager, bad: str) -> None:
    """A bad id is a typed error for every verb, and makes nothing (A21)."""
    with pytest.raises(InvalidSessionIdError):
        await manager.create_session(bad)
    with pytest.raises(InvalidSessionIdError):
        await manager.open(bad)
    with pytest.raises(InvalidSessionIdError):
        await manager.delete_session(bad)
    assert await manager.list_sessions() == []


async def test_status_moves_along_the_table_and_use_revives(manager: SessionManager) -> None:
    """Transitions are durable events; illegal ones are refused; a message revives, but not out of the trash (A54, A56, A67)."""
    session_id = await manager.create_session()
    session = await manager.open(session_id)
    assert await session.set_status("archived", reason="done")
    assert not await session.set_status("archived")
    await session.add_event(UserMessageEvent(content="again"))
    assert session.status == "active"
    await session.set_status("trashed")
    with pytest.raises(TransitionError):
        await session.set_status("archived")
    assert session_id not in await manager.list_sessions()
    assert await manager.list_sessions({"status": "trashed"}) == [session_id]
    await session.set_status("active")
    assert await manager.list_sessions() == [session_id]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (UserMessageEvent(content="x", mood="good"), "mood"),  # type: ignore[call-arg]
        (UserMessageEvent(content="x", seq=4), "stored already"),
        (UserMessageEvent(content="x", session_id="other"), "other"),
        (SessionEvent(event_type="user_message"), "content"),
        (GenericEvent(event_type="tool_call"), "tool_name"),
    ],
)
async def test_invalid_events_are_refused_and_leave_nothing(
    manager: SessionManager, event: SessionEvent, reason: str
) -> None:
    """An event that is not valid is a typed error, and neither memory nor store has it (B15, B31, EV-2, EV-6, EV-8)."""
    session_id = await manager.create_session()
    session = await manager.open(session_id)
    with pytest.raises(InvalidEventError, match=reason):
        await session.add_event(event)
    assert len(await session.get_full_history()) == 1
    assert session.messages == []


async def test_events_of_unknown_types_are_kept(opener: Opener) -> None:
    """A type nobody knows here is stored and read back with every field (B9, B29)."""
    first = await opener()
    session_id = await first.create_session()
    event = GenericEvent.model_validate({"event_type": "plan_changed", "steps": [1, {"a": None}]})
    await first.save_event(session_id, event)
    await first.close()
    (read,) = await (await (await opener()).open(session_id)).get_recent_events(1)
    assert read.event_type == "plan_changed"
    assert read.model_extra == {"steps": [1, {"a": None}]}


class Handle:
    """Something a tool might return that does not serialise."""


async def test_a_result_that_does_not_serialise_is_stored_as_something(manager: SessionManager) -> None:
    """The event of a side effect is stored whatever the tool returned; memory and disk agree on what (B14, B16, EV-11)."""
    session_id = await manager.create_session()
    session = await manager.open(session_id)
    odd: Any = {"handle": Handle(), "half": "\ud83d", "nul": "a\0b", 7: {1, 2}, "big": 2**70, "nan": float("nan")}
    await session.add_event(ToolCallEvent(tool_name="t", tool_call_id="c1"))
    stored = await session.add_event(ToolResultEvent(tool_call_id="c1", result=odd, is_error=False))
    assert isinstance(stored, ToolResultEvent)
    assert stored.result["half"] == "\ufffd"
    assert stored.normalised
    assert (await session.get_recent_events(1))[0] == stored


async def test_big_results_keep_a_preview_and_the_whole_as_a_blob(opener: Opener) -> None:
    """A result over 32 kB keeps head, tail and a reference; the whole can be read, also from a fork (EV-12, C11)."""
    first = await opener()
    session_id = await first.create_session()
    session = await first.open(session_id)
    whole = "".join(f"line {n}\n" for n in range(20_000))
    await session.add_event(UserMessageEvent(content="go"))
    await session.add_event(ToolCallEvent(tool_name="t", tool_call_id="c1"))
    stored = await session.add_event(ToolResultEvent(tool_call_id="c1", result=whole))
    assert isinstance(stored, ToolResultEvent)
    assert stored.blob is not None
    assert len(stored.result) < 20_000
    assert stored.result.startswith("line 0\n")
    assert stored.result.endswith("line 19999\n")
    fork = await session.fork()
    await first.close()
    reopened = await (await opener()).open(fork.session_id)
    assert (await reopened.blob(stored.blob.digest)).decode() == whole


async def test_a_very_large_message_is_no_damage(opener: Opener) -> None:
    """A 20 MB message is stored and read back whole (situation 17)."""
    first = await opener()
    session_id = await first.create_session()
    text = "x" * 20_000_000
    await first.save_event(session_id, UserMessageEvent(content=text))
    await first.close()
    (read,) = await (await (await opener()).open(session_id)).get_recent_events(1)
    assert isinstance(read, UserMessageEvent)
    assert read.content == text


async def test_settings_survive_a_restart_and_can_be_unset(opener: Opener) -> None:
    """Settings are events: they are back after a restart, and unset ones are gone (B22, B37)."""
    first = await opener()
    session_id = await first.create_session(initial_context={"topic": "a", "model": "m"})
    session = await first.open(session_id)
    await session.set_metadata(unset=["topic"], temperature=0.5, title="Renamed")
    await first.close()
    session = await (await opener()).open(session_id)
    assert "topic" not in session.metadata
    assert (session.metadata["model"], session.metadata["temperature"], session.title) == ("m", 0.5, "Renamed")
    assert isinstance((await session.get_recent_events(1))[0], MetadataChangedEvent)


async def test_principals_see_only_their_own(manager: SessionManager) -> None:
    """For a principal who does not own it, a session is not there, whatever is asked (A19, A20, A69, B56)."""
    ada, bob = Principal("ada"), Principal("bob")
    session = await manager.get_or_create("chat:1", principal=ada)
    session_id = session.session_id
    await session.add_event(UserMessageEvent(content="secret plan"), principal=ada)
    assert await manager.get_session(session_id, principal=bob) is None
    assert await manager.resolve("chat:1", principal=bob) is None
    assert await manager.list_sessions(principal=bob) == []
    assert not (await manager.search("secret", principal=bob)).items
    assert await manager.delete_session(session_id, principal=bob) is False
    for attempt in (
        session.add_event(UserMessageEvent(content="x"), principal=bob),
        session.get_context_for_llm(principal=bob),
        session.get_history(principal=bob),
        session.get_full_history(principal=bob),
        session.fork(principal=bob),
        session.rewind(principal=bob),
        session.set_metadata(title="mine", principal=bob),
        session.set_status("trashed", principal=bob),
        session.pin(2, principal=bob),
        manager.get_or_create("chat:1", principal=bob),
        manager.new_session("chat:1", principal=bob),
    ):
        with pytest.raises(SessionNotFoundError):
            await attempt
    written = [event.event_type for event in await session.get_full_history(principal=ada)]
    assert [kind for kind in written if kind != "access_denied"] == ["session_init", "user_message"]


async def test_tenants_share_nothing(manager: SessionManager) -> None:
    """The same key in two tenants leads to two sessions, and an admin sees only their own tenant's (A20, A21)."""
    one = Principal("u", tenant="t1")
    two = Principal("u", tenant="t2", roles=frozenset({"admin"}))
    first = await manager.get_or_create("chat:1", principal=one)
    second = await manager.get_or_create("chat:1", principal=two)
    assert first.session_id != second.session_id
    assert await manager.list_sessions(principal=two) == [second.session_id]
    assert await manager.get_session(first.session_id, principal=two) is None


async def test_a_retry_of_a_long_batch_returns_all_of_it(manager: SessionManager) -> None:
    """However many events went in under a key, whoever appends them again gets them back as they were stored (C2)."""
    session = await manager.get_or_create("cli:p")
    batch = [UserMessageEvent(content=f"message {number}") for number in range(600)]
    stored = await session.add_events(batch, idempotency_key="once")
    again = await session.add_events(batch, idempotency_key="once")
    assert [event.event_id for event in again] == [event.event_id for event in stored]
    assert session.head.event_count == 601
