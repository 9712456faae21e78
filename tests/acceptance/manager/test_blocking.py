"""The façade without async."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kipu import blocking
from kipu.errors import SessionBusyError, SessionNotFoundError
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.manager.session import Session


def test_the_whole_design_interface_is_there_without_async(tmp_path: Path) -> None:
    """A script creates, writes, lists, reads and deletes sessions by the design's names (B20, B23, B24, B26, B27, B35)."""
    with blocking.open_folder(tmp_path / "sessions") as manager:
        session_id = manager.create_session(initial_context={"topic": "login"})
        manager.save_event(session_id, UserMessageEvent(content="hi"))
        session = manager.get_session(session_id)
        session.add_event(AgentMessageEvent(content="hello"))
        assert session.get_context_for_llm() == [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
        ]
        assert session.get_full_history()[0].event_type == "session_init"
        assert len(session.get_recent_events(2)) == 2
        assert [message["content"] for message in session.get_history(max_messages=500)] == ["hi", "hello"]
        assert manager.list_sessions({"topic": "login"}) == [session_id]
        assert [event.seq for event in session.events(after=1)] == [2, 3]
        assert manager.get_session("nobody") is None
        assert manager.delete_session(session_id) is True
    assert not (tmp_path / "sessions" / session_id / "000001.jsonl").exists()


def test_turns_and_locks_work_by_thread() -> None:
    """What a task holds in the asynchronous façade, a thread holds here (A37, A39)."""
    with blocking.open_manager("memory://") as manager:
        session = manager.get_or_create("cli:p")
        order: list[str] = []

        def work(name: str) -> None:
            with session.turn() as turn:
                order.append(name)
                turn.add_event(AgentMessageEvent(content=name))
                order.append(name)

        threads = [threading.Thread(target=work, args=(str(number),)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert order[::2] == order[1::2]
        with manager.acquire("cli:p"), session.turn() as turn:
            turn.add_event(AgentMessageEvent(content="within"))
        caught: list[Exception] = []

        def other() -> None:
            try:
                with session.turn(wait_s=0.05):
                    pass
            except SessionBusyError as error:
                caught.append(error)

        with session.turn():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert len(caught) == 1


def test_errors_and_the_wrapped_object_are_the_same() -> None:
    """Errors cross the portal as they are, and the asynchronous object can be had (A50)."""
    with blocking.open_manager("memory://") as manager:
        with pytest.raises(SessionNotFoundError):
            manager.open("nobody")
        session = manager.get_or_create("cli:p")
        assert isinstance(session.wrapped, Session)
        assert "add_event" in dir(session)
        assert session.key == "cli:p"
        fork = session.fork()
        assert fork.head.forked_from == session.session_id


def test_following_blocks_for_the_next_event() -> None:
    """Follow yields what is there and then waits for what another thread adds (C24)."""
    with blocking.open_manager("memory://") as manager:
        session = manager.get_or_create("cli:p")
        seen: list[int] = []
        started = threading.Event()

        def watch() -> None:
            for event in session.follow(after=0):
                seen.append(event.seq)
                started.set()
                if event.seq == 3:
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        assert started.wait(10)
        session.add_event(UserMessageEvent(content="a"))
        session.add_event(UserMessageEvent(content="b"))
        thread.join(10)
        assert seen == [1, 2, 3]


def test_a_closed_manager_says_so() -> None:
    """After closing, calls fail clearly instead of hanging (B49)."""
    manager = blocking.open_manager("memory://")
    manager.close()
    manager.close()
    with pytest.raises(RuntimeError, match="closed"):
        manager.create_session()
