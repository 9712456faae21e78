"""The same façade without async, for scripts and notebooks.

Nothing is written twice: every object of the manager is shown through a thin wrapper that runs its coroutines on one loop
in a background thread. Methods keep their names, arguments, results and errors; `async with` becomes `with`, and an
asynchronous iterator becomes an ordinary one.

>>> from kipu import blocking, UserMessageEvent
>>> with blocking.open_manager("memory://") as manager:
...     session = manager.get_or_create("cli:demo")
...     event = session.add_event(UserMessageEvent(content="hello"))
...     session.get_context_for_llm()
[{'role': 'user', 'content': 'hello'}]
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kipu.errors import InputError
from kipu.manager.filesystem import FileSystemSessionManager
from kipu.manager.lock import SessionLock
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.manager.turn import Turn
from kipu.ports.store import Page
from kipu.wiring import open_manager as open_manager_async

_CLOSED = "the manager is closed"
_Job = tuple[Coroutine[Any, Any, Any], "Future[Any]"]


class _Seat:
    """Something that lives as long as the calling thread does."""


class Portal:
    """Run coroutines of any number of threads on one event loop in a thread of its own.

    The coroutines of one calling thread run in one task, one after another, so that what is held by "the current task" in
    the asynchronous façade (a session's lock) is held by the calling thread here.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._local = threading.local()
        self._process = os.getpid()
        self._gate = threading.Lock()  # nothing is handed to the loop once it is told to end
        self._ending = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="kipu-portal", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the coroutine's result, or raise its error. An interrupt (Ctrl-C) cancels it first."""
        if os.getpid() != self._process:
            coroutine.close()
            raise InputError(reason="this manager was opened before the process forked; open one in each process")
        with self._gate:
            if self._ending:
                coroutine.close()
                raise RuntimeError(_CLOSED)
            worker = self._worker()
            outcome = worker.hand(coroutine)
        return worker.wait_for(outcome)

    def _worker(self) -> _Worker:
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is None:
            worker = self._local.worker = _Worker(self._loop)
            self._local.seat = seat = _Seat()
            # When the thread ends its task must, and nothing of the loop may be torn down in another thread.
            weakref.finalize(seat, worker.end).atexit = False
        return worker

    @property
    def closed(self) -> bool:
        """Return True once the loop ends, or where it cannot be reached: after a fork."""
        return self._ending or os.getpid() != self._process

    def close(self) -> None:
        """End the loop; calls of other threads that are under way are told so. Closing twice is harmless."""
        if self.closed:
            return
        with self._gate:
            if self._ending:
                return
            self._ending = True
        asyncio.run_coroutine_threadsafe(_finish_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _finish_tasks() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Worker:
    """One calling thread's task on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: asyncio.Queue[_Job | None] = asyncio.Queue()
        self._running: asyncio.Task[Any] | None = None
        self._cancelling = False
        asyncio.run_coroutine_threadsafe(self._serve(), loop)

    def end(self) -> None:
        """End the task after what was handed to it; called when the thread has ended."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._jobs.put_nowait, None)

    def hand(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Queue a coroutine and return what becomes of it."""
        outcome: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._jobs.put_nowait, (coroutine, outcome))
        return outcome

    def wait_for(self, outcome: Future[Any]) -> Any:
        """Return the result of what was queued, or raise its error."""
        try:
            return outcome.result()
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(self._cancel, outcome)
            with suppress(BaseException):  # the interrupt is what the caller gets
                outcome.result()
            raise

    def _cancel(self, outcome: Future[Any]) -> None:
        if outcome.done():
            return
        if self._running is None:  # it has not begun: its task is about to take it
            self._loop.call_soon(self._cancel, outcome)
            return
        self._cancelling = True
        self._running.cancel()

    async def _serve(self) -> None:
        try:
            await self._work()
        finally:  # whoever handed something over while the loop was told to end would wait for ever
            while not self._jobs.empty():
                job = self._jobs.get_nowait()
                if job is not None:
                    job[0].close()
                    job[1].set_exception(RuntimeError(_CLOSED))

    async def _work(self) -> None:
        task = asyncio.current_task()
        while (job := await self._jobs.get()) is not None:
            coroutine, outcome = job
            self._running = task
            try:
                outcome.set_result(await coroutine)
            except asyncio.CancelledError as error:
                if not self._cancelling:  # the loop ends
                    outcome.set_exception(RuntimeError(_CLOSED))
                    raise
                outcome.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - it is raised again in the calling thread
                outcome.set_exception(error)
            finally:
                self._running = None
                if self._cancelling and task is not None:  # also where it ended well all the same
                    self._cancelling = False
                    task.uncancel()


class Blocking:
    """An object of the asynchronous façade, shown without async. `wrapped` is the object itself."""

    def __init__(self, wrapped: Any, portal: Portal) -> None:
        self.wrapped = wrapped
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        # Whose a lock is depends on the task that asks: the calling thread's, which is on the loop.
        by_task = isinstance(self.wrapped, SessionLock)
        value = self._portal.run(_attribute(self.wrapped, name)) if by_task else getattr(self.wrapped, name)
        return self._callable(value) if inspect.isroutine(value) else self._shown(value)

    def __dir__(self) -> list[str]:
        return dir(self.wrapped)

    def __repr__(self) -> str:
        return f"Blocking({self.wrapped!r})"

    def _callable(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            plain = [_unwrapped(value) for value in args]
            named = {name: _unwrapped(value) for name, value in kwargs.items()}
            return self._shown(function(*plain, **named))

        return call

    def _shown(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            return self._shown(self._portal.run(value))
        if isinstance(value, SessionManager | Session | Turn | SessionLock) or hasattr(value, "__aenter__"):
            return Blocking(value, self._portal)
        if isinstance(value, AsyncIterator):
            return self._iterated(value)
        if isinstance(value, Page):
            return Page(tuple(self._shown(item) for item in value.items), value.cursor)
        return value

    def _iterated(self, source: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._shown(self._portal.run(_next(source)))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                self._portal.run(close())

    def __enter__(self) -> Self:
        self._portal.run(self.wrapped.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return self._portal.run(self.wrapped.__aexit__(kind, error, trace))


class BlockingManager(Blocking):
    """A `SessionManager` without async. Closing it closes the store and ends the background thread."""

    def close(self) -> None:
        """Save every live session, close the store, end the thread. Closing twice is harmless."""
        if self._portal.closed:
            return
        try:
            self._portal.run(self.wrapped.close())
        except RuntimeError:
            if not self._portal.closed:  # else another thread was quicker
                raise
        finally:
            self._portal.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _attribute(wrapped: object, name: str) -> Any:
    return getattr(wrapped, name)


async def _next(source: AsyncIterator[Any]) -> Any:
    # A StopAsyncIteration cannot leave a coroutine through a future by itself; it can as an exception that was set.
    return await anext(source)


def _unwrapped(value: Any) -> Any:
    return value.wrapped if isinstance(value, Blocking) else value


def open_manager(url: str | None = None, **settings: Any) -> BlockingManager:
    """Return a manager over the store at `url`, as `kipu.open_manager`, for use with `with`."""
    return _opened(lambda: open_manager_async(url, **settings))


def open_folder(storage_dir: str | Path = "./sessions", **settings: Any) -> BlockingManager:
    """Return a `FileSystemSessionManager` over a folder of JSONL files, for use with `with`."""

    async def made() -> SessionManager:
        return FileSystemSessionManager(storage_dir, **settings)

    return _opened(made)


def _opened(make: Callable[[], Coroutine[Any, Any, SessionManager]]) -> BlockingManager:
    portal = Portal()
    try:
        return BlockingManager(portal.run(make()), portal)
    except BaseException:
        portal.close()
        raise
