"""One call, run: its beginning recorded before it, bounded in time, its result recorded after it, whatever the tool does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from kipu.errors import (
    BlobNotFoundError,
    CallParkedError,
    KipuError,
    LeaseLostError,
    SearchUnavailableError,
    StoreError,
    TurnStoppedError,
    WorkspaceError,
)
from kipu.events.conversation import ToolResultEvent, ToolStartedEvent
from kipu.events.normalise import normalise
from kipu.ports.principal import Principal
from kipu.ports.store import EventStore
from kipu.ports.tool import JsonObject, ParkingTool, Tool, ToolContext, ToolResult
from kipu.ports.workspace import Workspace
from kipu.runtime.observer import BeginNews, EndNews, ToolNews, TurnObserver
from kipu.runtime.tools.result_limit import limited
from kipu.runtime.tools.toolbox import Toolbox
from kipu.runtime.turns.turn_control import HANDOVER
from kipu.runtime.turns.turn_run import TurnRun
from kipu.session.turn_story import OpenCall

logger = logging.getLogger(__name__)

GRACE_S = 5.0  # how long a tool that was told to end may take to clean up
_NOT_THE_LOG = (BlobNotFoundError, SearchUnavailableError)  # errors of the store that say nothing against the log
Checkpoint = Callable[[TurnRun, OpenCall], Awaitable[None]]


class ToolExecution:
    """Run calls of one session."""

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        store: EventStore,
        principal: Principal,
        observer: TurnObserver,
        workspace: Workspace | None = None,
        environment: Mapping[str, str] | None = None,
        credentials: Callable[[str], Mapping[str, str]] | None = None,
        checkpoint: Checkpoint | None = None,
        remaining_s: Callable[[], float | None] = lambda: None,
        grace_s: float = GRACE_S,
    ) -> None:
        self._toolbox = toolbox
        self._store = store
        self._principal = principal
        self._observer = observer
        self._workspace = workspace
        self._environment = dict(environment or {})
        self._credentials = credentials
        self._checkpoint = checkpoint
        self._remaining_s = remaining_s
        self._grace_s = grace_s

    def has_side_effect(self, call: OpenCall) -> bool:
        """Return what the tool declares; an unknown one is taken to change things."""
        tool = self._toolbox.find(call.call.tool_name)
        return tool is None or tool.spec.has_side_effect

    def context(self, run: TurnRun) -> Callable[[OpenCall], Awaitable[ToolContext]]:
        """Return what makes the context of a call of this turn."""

        async def make(call: OpenCall) -> ToolContext:
            session_id, turn_id, name = run.session.session_id, run.turn.id, call.call.tool_name

            def emit(text: str) -> None:
                self._observer.tell(ToolNews(session_id, turn_id, call.id, text))

            async def put_blob(data: bytes) -> str:
                return await self._store.put_blob(session_id, run.session.redacted_blob(data))

            return ToolContext(
                session_id=session_id,
                turn_id=turn_id,
                call_id=call.id,
                principal=self._principal,
                workspace=self._workspace,
                environment=self._environment,
                credentials=self._credentials(name) if self._credentials is not None else {},
                emit=emit,
                read_blob=partial(run.session.blob, principal=run.turn.principal),
                put_blob=put_blob,
                is_handover=lambda: run.control.mode == HANDOVER,
            )

        return make

    async def run(self, run: TurnRun, call: OpenCall, *, arguments: JsonObject) -> None:
        """Run the call and append its result. Raises: TurnStoppedError (the call is left open), LeaseLostError, StoreError."""
        tool = self._toolbox.find(call.call.tool_name)
        if tool is None:
            return
        if tool.spec.has_side_effect and self._checkpoint is not None:
            try:
                await self._checkpoint(run, call)
            except WorkspaceError as error:  # what cannot be brought back is not changed
                await run.add(_not_run(call, f"Not run, since the files could not be kept first: {error}"))
                return
        await run.add(ToolStartedEvent(tool_call_id=call.id))
        context = await self.context(run)(call)
        at, token = run.place
        self._observer.tell(BeginNews(run.session.session_id, run.turn.id, call.id, at=at, token=token))
        try:
            result = await self._bounded(run, tool, arguments, context)
        except CallParkedError as parked:
            run.parked[call.id] = parked
            return
        finally:
            self._observer.tell(EndNews(run.session.session_id, run.turn.id, call.id))
        await run.add(await self._event(run, call, arguments=arguments, result=result, context=context))

    async def withdraw(self, run: TurnRun, call: OpenCall) -> ToolResult:
        """End what a call that waits elsewhere left there, and return what there is of its result."""
        tool = self._toolbox.find(call.call.tool_name)
        if not isinstance(tool, ParkingTool):
            return ToolResult("", is_error=True)
        try:
            return await tool.withdraw(run.withheld.arguments(call), await self.context(run)(call))
        except (LeaseLostError, StoreError):
            raise
        except Exception as error:  # the turn is to end, whatever becomes of the rest
            logger.warning("what %s left behind could not be ended", tool.spec.name, exc_info=error)
            return ToolResult(_said(error), is_error=True)

    async def _bounded(self, run: TurnRun, tool: Tool, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Return the result within the tool's time, or when the turn is stopped, end the tool and raise TurnStoppedError."""
        work = asyncio.ensure_future(_ran(tool, arguments, context))
        stopped = asyncio.ensure_future(run.control.wait())
        bounds = [bound for bound in (tool.spec.timeout_s, self._remaining_s()) if bound is not None]
        timeout_s = min(bounds, default=None)
        try:
            await asyncio.wait({work, stopped}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return _outcome(tool, work)
            await self._end(work, tool)
            if stopped.done():
                raise TurnStoppedError(mode=run.control.mode or "stop")
            text = f"{tool.spec.name} was ended after {timeout_s:.4g} s without a result."
            return ToolResult(text, is_error=True, error_info="timeout")
        except asyncio.CancelledError:
            await self._end(work, tool)
            raise
        finally:
            stopped.cancel()

    async def _end(self, work: asyncio.Future[ToolResult], tool: Tool) -> None:
        """Cancel the tool and wait for its cleaning up; one that does not end is left behind and named in the log file."""
        work.cancel()
        done, _ = await asyncio.wait({work}, timeout=self._grace_s)
        if not done:
            logger.warning("tool %s did not end within %s s after it was told to", tool.spec.name, self._grace_s)

    async def _event(
        self, run: TurnRun, call: OpenCall, *, arguments: JsonObject, result: ToolResult, context: ToolContext
    ) -> ToolResultEvent:
        # Before it is cut and its whole put into a blob: no secret reaches either.
        content, notes = run.session.redacted(result.content, path="/result")
        if dict(arguments) != dict(run.withheld.arguments(call)):
            content = _with_notice(content, arguments)
        put_blob = context.put_blob
        content, blob = await limited(content, put_blob=put_blob) if put_blob is not None else (content, None)
        return ToolResultEvent(
            tool_call_id=call.id,
            tool_name=call.call.tool_name,
            result=content,
            is_error=result.is_error,
            error_info=result.error_info,
            blob=blob,
            pinned=result.pinned,
            usage=dict(result.usage) if result.usage is not None else None,
            normalised=notes or None,
        )


def _not_run(call: OpenCall, text: str) -> ToolResultEvent:
    return ToolResultEvent(
        tool_call_id=call.id, tool_name=call.call.tool_name, result=text, is_error=True, error_info="checkpoint"
    )


async def _ran(tool: Tool, arguments: JsonObject, context: ToolContext) -> ToolResult:
    """Run the tool. An exit that it asks for ends the call: in a task it would end this process, with every other session's turn."""
    try:
        return await tool.run(arguments, context)
    except SystemExit as error:
        return _fault(tool, error)


def _outcome(tool: Tool, work: asyncio.Future[ToolResult]) -> ToolResult:
    """Return what the tool gave, its own fault as an error result: only the log's failures end a turn."""
    if work.cancelled():
        return ToolResult(f"{tool.spec.name} ended itself without a result.", is_error=True, error_info="fault")
    error = work.exception()
    if error is None:
        return _as_declared(work.result())
    is_log = isinstance(error, LeaseLostError | StoreError) and not isinstance(error, _NOT_THE_LOG)
    if is_log or isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, CallParkedError) and isinstance(tool, ParkingTool):
        raise error
    return _fault(tool, error)


def _fault(tool: Tool, error: BaseException) -> ToolResult:
    """Return what a tool raised as its result, also what is no `Exception`, such as a panic of a library in Rust."""
    if not isinstance(error, KipuError):
        logger.warning("tool %s failed", tool.spec.name, exc_info=error)
    said = f"{tool.spec.name} failed: {type(error).__name__}: {_said(error)}"
    return ToolResult(said, is_error=True, error_info="fault")


def _said(error: BaseException) -> str:
    """Return an error's text, whatever making that text raises."""
    return str(normalise(error)[0])


def _as_declared(result: object) -> ToolResult:
    """Return a tool's result with each part as an event keeps it: the call may have had its effect, and that is told."""
    if not isinstance(result, ToolResult):
        return ToolResult(result)
    word = result.error_info
    return ToolResult(
        result.content,
        is_error=bool(result.is_error),
        error_info=None if word is None else str(normalise(word)[0]),
        pinned=bool(result.pinned),
        usage=result.usage if isinstance(result.usage, Mapping) else None,
    )


def _with_notice(content: Any, arguments: JsonObject) -> Any:
    notice = f"[A person changed the arguments of this call to {dict(arguments)!r}.]"
    return f"{notice}\n{content}" if isinstance(content, str) else {"notice": notice, "result": content}
