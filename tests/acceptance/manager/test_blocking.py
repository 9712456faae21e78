"""The façade without async."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kipu import blocking
from kipu.errors import InputError, SessionBusyError, SessionNotFoundError, StoreClosedError
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


def test_a_lock_says_whose_it_is() -> None:
    """The thread that holds a session is told that it does, any other that it does not (A37)."""
    with blocking.open_manager("memory://") as manager:
        lock = manager.acquire("cli:p")
        with ThreadPoolExecutor(1) as other:
            assert not lock.mine
            with manager.get_or_create("cli:p").turn():
                assert lock.mine
                assert lock.in_use
                assert not other.submit(lambda: lock.mine).result(20)
            assert not lock.mine


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
        assert started.wait(60)
        session.add_event(UserMessageEvent(content="a"))
        session.add_event(UserMessageEvent(content="b"))
        thread.join(60)
        assert seen == [1, 2, 3]


def test_a_closed_manager_says_so() -> None:
    """After closing, calls fail clearly instead of hanging (B49)."""
    manager = blocking.open_manager("memory://")
    manager.close()
    manager.close()
    with pytest.raises(RuntimeError, match="closed"):
        manager.create_session()


def test_threads_that_ended_leave_no_task(caplog: pytest.LogCaptureFixture) -> None:
    """A thread's task ends with the thread: none is torn down while it waits, which asyncio would report."""
    with blocking.open_manager("memory://") as manager:
        for _ in range(20):
            thread = threading.Thread(target=manager.get_or_create, args=("cli:p",))
            thread.start()
            thread.join()
        gc.collect()
    assert "destroyed" not in caplog.text


def test_a_manager_from_before_a_fork_says_so(tmp_path: Path) -> None:
    """In a forked child the parent's manager has no thread to work in: a typed error says what to do, and nothing hangs."""
    with blocking.open_folder(tmp_path / "sessions") as manager:
        manager.get_or_create("cli:p")
        answers: multiprocessing.Queue[str] = multiprocessing.get_context("fork").Queue()

        def child() -> None:
            try:
                manager.get_or_create("cli:p")
            except InputError as error:
                answers.put(error.code)
            manager.close()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what this is about
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
        try:
            assert answers.get(timeout=60) == "input"
            process.join(timeout=60)
            assert process.exitcode == 0
        finally:
            process.kill()
        assert manager.get_or_create("cli:p").head.last_seq == 1


def test_a_turn_does_not_begin_within_a_turn() -> None:
    """A task that runs a turn gets no second one of the same session before the first has ended (A39)."""
    with blocking.open_manager("memory://") as manager:
        session = manager.get_or_create("cli:p")
        with session.turn() as outer:
            with pytest.raises(SessionBusyError), session.turn():
                pass
            outer.add_event(AgentMessageEvent(content="still mine"))
        with session.turn():
            pass
        types = [event.event_type for event in session.get_full_history()]
        assert types[1:] == ["turn_started", "agent_message", "turn_finished", "turn_started", "turn_finished"]


def test_an_interrupt_ends_what_waits() -> None:
    """Ctrl-C while a call waits cancels it: nothing goes on waiting behind the caller's back, and the next call works (C16, A37)."""
    with blocking.open_manager("memory://") as manager:
        session = manager.get_or_create("cli:p")
        held, begins, done = threading.Event(), threading.Event(), threading.Event()
        caller = threading.get_ident()

        def hold() -> None:
            with session.turn():
                held.set()
                begins.wait()
                while sys._current_frames()[caller].f_code is not threading.Condition.wait.__code__:
                    time.sleep(0.001)  # nobody interrupts what does not wait yet: that would be another truth
                os.kill(os.getpid(), signal.SIGINT)
                done.wait()

        def wait() -> None:
            begins.set()
            with session.turn(wait_s=120):
                pytest.fail("two have the turn")

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        began_s = time.monotonic()
        try:
            with pytest.raises(KeyboardInterrupt):
                wait()
        finally:
            done.set()
            thread.join()
        assert time.monotonic() - began_s < 60
        assert not session.in_use
        with session.turn(wait_s=5) as turn:
            turn.add_event(AgentMessageEvent(content="on"))


def test_closing_answers_whoever_still_calls(tmp_path: Path) -> None:
    """However threads call while another closes the manager, each call ends, with its result or an error that says why (B49)."""
    for number in range(5):
        manager = blocking.open_manager(f"sqlite:///{tmp_path}/{number}.db")
        session = manager.get_or_create("cli:p")
        ends: list[RuntimeError] = []

        def write(session: blocking.Blocking = session, ends: list[RuntimeError] = ends) -> None:
            while True:
                try:
                    session.add_event(AgentMessageEvent(content="more"))
                except StoreClosedError:
                    continue  # it goes on calling, as a program does that tries again
                except RuntimeError as error:
                    ends.append(error)
                    return

        threads = [threading.Thread(target=write, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        closers = [threading.Thread(target=manager.close, daemon=True) for _ in range(2)]
        for thread in closers:
            thread.start()
        for thread in (*closers, *threads):
            thread.join(60)
            assert not thread.is_alive()
        assert [str(end) for end in ends] == ["the manager is closed"] * 4
