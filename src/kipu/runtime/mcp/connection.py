"""One session's connection to one server: opened when it is needed, opened again after it died, closed for certain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kipu.errors import KipuError, McpServerError
from kipu.runtime.mcp.http_transport import http_transport
from kipu.runtime.mcp.server_config import McpServerConfig
from kipu.runtime.mcp.stdio_transport import StdioLink, stdio_transport
from kipu.runtime.mcp.tolerant_stream import TolerantStream

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, Tool


class Progress(Protocol):
    """Hear how far a call is."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Take one report."""
        ...


MAX_TOOLS = 200
_ENDED = ("connection closed", "session terminated")  # the client's own words; its code for it is used by servers too
_MAX_PAGES = 50
_MAX_DELAY_S = 60.0
_TIMEOUTS_UNTIL_RESTART = 2
_CLOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class McpState:
    """How a connection stands, for people: off, connecting, ready, failed (with the reason), closed."""

    name: str
    state: str
    reason: str = ""
    restarts: int = 0
    pid: int | None = None


class McpConnection:
    """Speak to one server for one session (B39, B40).

    `tools` and `call` open the connection where there is none, and raise `McpServerError` for whatever the server does: it cannot be
    started, is too slow, dies, answers what cannot be read. A dead one is started again by the next call, at once the first
    time, then with growing delays until a call succeeds. Nothing is sent twice: what a dying server did with a call is unknown.
    `now` is a monotonic clock in seconds. After `aclose` no process of it is left.
    """

    def __init__(
        self,
        config: McpServerConfig,
        *,
        environment: Mapping[str, str],
        cwd: str | None,
        mark: str,
        now: Callable[[], float],
    ) -> None:
        self.config = config
        self.has_changed = False  # the server said that its tools are others now
        self._environment = environment
        self._cwd = cwd
        self._mark = mark
        self._now = now
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._live: _Live | None = None
        self._link = StdioLink()
        self._incoming: TolerantStream | None = None
        self._failures = 0
        self._timeouts = 0
        self._starts = 0
        self._retry_at = 0.0
        self._reason = ""
        self._is_closed = False

    @property
    def state(self) -> McpState:
        """Return how it stands."""
        name = "closed" if self._is_closed else "ready" if self._is_ready() else "failed" if self._reason else "off"
        if self._lock.locked() and name in ("off", "failed"):
            name = "connecting"
        process = self._link.process
        pid = process.pid if process is not None and name == "ready" else None
        return McpState(self.config.name, name, self._reason, max(0, self._starts - 1), pid)

    @property
    def starts(self) -> int:
        """Return how often it was started; tools listed before the last start may be others now."""
        return self._starts

    @property
    def unreadable_tools(self) -> int:
        """Return how many entries of its newest list could not be read, and were left out."""
        return self._incoming.left_out if self._incoming is not None else 0

    async def tools(self) -> list[Tool]:
        """Return what the server says it can do, page by page within the bounds. Raises: McpServerError."""
        live = await self._open()
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                self.has_changed = False
                if self._incoming is not None:
                    self._incoming.left_out = 0
                return await _listed(live.client)
        except TimeoutError:
            raise await self._broken(
                live, f"it did not list its tools in {self.config.connect_timeout_s:g} s"
            ) from None
        except Exception as error:
            raise await self._broken(live, f"its list of tools cannot be read: {_words(error)}") from error

    async def call(self, name: str, arguments: Mapping[str, Any], *, progress: Progress) -> CallToolResult:
        """Return what the tool answered. Raises: McpServerError (`error_info` says which kind: unavailable, timeout, died, …)."""
        import mcp_types as types
        from mcp import MCPError

        live = await self._open()
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=dict(arguments)))
        try:
            async with asyncio.timeout(self.config.call_timeout_s):
                result = await live.client.session.send_request(
                    request, types.CallToolResult, progress_callback=progress
                )
        except TimeoutError:
            raise await self._timed_out(live) from None
        except MCPError as error:
            if live.is_dead or error.message.lower() in _ENDED:
                reason = f"it died during the call: {live.describe_end()}. Whether it did anything is not known"
                raise await self._broken(live, reason, kind="died") from None
            self._succeeded()
            raise self._fault(f"it refused the call: {_words(error)}", "refused") from None
        except ValueError as error:  # pydantic's included
            self._succeeded()
            raise self._fault(f"its answer cannot be read: {_words(error)}", "unreadable") from None
        except Exception as error:
            raise await self._broken(live, f"the call failed: {_words(error)}", kind="failed") from error
        self._succeeded()
        return result

    async def aclose(self) -> None:
        """End the connection and the process. Raises: McpServerError (something of it cannot be ended)."""
        self._is_closed = True
        if self._task is not None and self._live is None:
            self._task.cancel()  # it is connecting still: nobody waits for that any more
        async with self._lock:
            await self._stop()
        if not self._link.is_gone:
            raise self._fault(f"its process {self._link.process and self._link.process.pid} cannot be ended", "alive")

    # ---- opening and ending ----------------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        return self._live is not None and not self._live.is_dead

    async def _open(self) -> _Live:
        async with self._lock:
            if self._is_closed:
                raise self._fault("the session has closed it", "closed")
            if self._live is not None and self._live.is_dead:
                self._note_failure(self._live.describe_end())
                await self._stop()
            if self._live is not None:
                return self._live
            wait_s = self._retry_at - self._now()
            if wait_s > 0:
                raise self._fault(
                    f"{self._reason}. It is started again in {wait_s:.0f} s at the earliest", "unavailable"
                )
            return await self._start()

    async def _start(self) -> _Live:
        self._starts += 1
        self._link = StdioLink()
        self._timeouts = 0
        ready: asyncio.Future[_Live] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._serve(ready, self._link))
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                self._live = await asyncio.shield(ready)
        except TimeoutError:
            await self._give_up(f"it did not connect in {self.config.connect_timeout_s:g} s")
        except asyncio.CancelledError:
            await self._stop()
            raise
        except Exception as error:  # noqa: BLE001 - whatever a server makes the client raise is its fault
            await self._give_up(f"it cannot be reached: {self._why(error)}")
        if self._live is None:
            raise self._fault(self._reason, "unavailable")
        self._reason = ""
        return self._live

    async def _give_up(self, reason: str) -> None:
        tail = self._link.process.stderr_tail[-1000:] if self._link.process is not None else ""
        self._note_failure(f"{reason}; its stderr ends: {tail}" if tail and tail not in reason else reason)
        await self._stop()

    def _why(self, error: Exception) -> str:
        return self._link.describe_end() if self._link.closed.is_set() else _words(error)

    async def _serve(self, ready: asyncio.Future[_Live], link: StdioLink) -> None:
        """Own the connection from its beginning to its end: one task, since its scopes are bound to it."""
        from mcp import Client

        live: _Live | None = None
        try:
            client = Client(self._transport(link), cache=None, message_handler=self._on_message)
            async with client:
                live = _Live(client, link)
                ready.set_result(live)
                await live.wait_end(self._listen)
        except BaseException as error:  # also a group of errors, and a cancellation meant for a scope within
            if not ready.done():
                # A cancellation is ours, and not one of who waits.
                ready.set_exception(error if isinstance(error, Exception) else self._fault("it was ended", "closed"))
                ready.exception()  # whoever waited may have gone
            if not isinstance(error, Exception):
                raise
        finally:
            if live is not None:
                live.is_over = True

    @asynccontextmanager
    async def _transport(self, link: StdioLink) -> AsyncIterator[Any]:
        if self.config.url is not None:
            transport = http_transport(self.config)
        else:
            transport = stdio_transport(
                self.config, link, environment=self._environment, cwd=self._cwd, mark=self._mark
            )
        async with transport as (incoming, outgoing):
            self._incoming = TolerantStream(incoming)
            yield self._incoming, outgoing

    async def _on_message(self, message: object) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self.has_changed = True

    async def _listen(self, client: Client) -> None:
        """Take in that the tools have changed, from servers that want to be asked for it."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        with suppress(Exception):  # a server need not offer it
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.has_changed = True

    async def _stop(self) -> None:
        live, task = self._live, self._task
        self._live = self._task = None
        if task is None:
            return
        if live is not None:
            live.end.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await asyncio.wait([task])
        if not task.done():
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()

    # ---- what went wrong -------------------------------------------------------------------------------------------

    def _succeeded(self) -> None:
        self._failures = self._timeouts = 0

    def _note_failure(self, reason: str) -> None:
        """Remember why, and let the next start wait: not after the first failure, then 1, 2, 4 … 60 s."""
        self._reason = reason
        self._failures += 1
        delay_s = 0.0 if self._failures == 1 else min(_MAX_DELAY_S, 2.0 ** min(self._failures - 2, 10))
        self._retry_at = self._now() + delay_s

    async def _broken(self, live: _Live, reason: str, *, kind: str = "unavailable") -> McpServerError:
        async with self._lock:
            if self._live is live:
                self._note_failure(reason)
                await self._stop()
        return self._fault(reason, kind)

    async def _timed_out(self, live: _Live) -> McpServerError:
        self._timeouts += 1
        reason = f"it did not answer in {self.config.call_timeout_s:g} s. Whether it did anything is not known"
        if self._timeouts >= _TIMEOUTS_UNTIL_RESTART:
            return await self._broken(live, reason, kind="timeout")
        return self._fault(reason, "timeout")

    def _fault(self, reason: str, kind: str) -> McpServerError:
        return McpServerError(server=self.config.name, reason=reason, kind=kind)


class _Live:
    """An open connection."""

    def __init__(self, client: Client, link: StdioLink) -> None:
        self.client = client
        self.end = asyncio.Event()
        self.is_over = False
        self._link = link

    @property
    def is_dead(self) -> bool:
        return self.is_over or self._link.closed.is_set()

    def describe_end(self) -> str:
        return self._link.describe_end()

    async def wait_end(self, listen: Callable[[Client], Awaitable[None]]) -> None:
        """Return when it is to end, or when the other side has ended it."""
        listening = asyncio.ensure_future(listen(self.client))
        waits = [asyncio.create_task(self.end.wait()), asyncio.create_task(self._link.closed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*waits, listening):
                task.cancel()
            await asyncio.gather(*waits, listening, return_exceptions=True)


async def _listed(client: Client) -> list[Tool]:
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        tools += page.tools
        if page.next_cursor is None or page.next_cursor == cursor or len(tools) >= MAX_TOOLS:
            break
        cursor = page.next_cursor
    return tools[:MAX_TOOLS]


def _words(error: BaseException) -> str:
    """Return one line about an error; of a group, about its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = error.data.get("reason") if isinstance(error, KipuError) else str(error)
    return " ".join(f"{text or type(error).__name__}".split())[:500]
