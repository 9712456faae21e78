"""The seam to tools: what a tool says of itself, what it is given, what it gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from kipu.ports.principal import Principal
from kipu.ports.workspace import Workspace

JsonObject: TypeAlias = Mapping[str, Any]
PolicyAnswer: TypeAlias = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a tool declares.

    `parameters` is the JSON schema of its arguments. An idempotent tool may run again after a crash (C14). A tool with a side
    effect changes something that outlives the call; one that is `external` changes what no checkpoint brings back, so that a
    turn which used it is not rolled back unasked. `timeout_s` bounds one run, None means the turn's own limits. `max_starts`
    bounds how often an idempotent call begins, over crashes. A question is never run: what a person answers is its result.
    """

    name: str
    description: str
    parameters: JsonObject
    is_idempotent: bool = False
    has_side_effect: bool = True
    is_external: bool = False
    default_policy: PolicyAnswer = "ask"
    timeout_s: float | None = 120.0
    max_starts: int = 3
    is_question: bool = False

    def definition(self) -> dict[str, Any]:
        """Return what a model is told of it."""
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended. `content` is text or any JSON; an error is told to the model in `content` too."""

    content: Any
    is_error: bool = False
    error_info: str | None = None  # a stable word for programs, such as "not_found" or "timeout"
    pinned: bool = False
    usage: JsonObject | None = None  # what it spent of its turn's budget, as `turn_finished` says it


@dataclass(frozen=True, slots=True)
class ToolPreview:
    """What a person is shown before they decide: one line, and the change as a unified diff where there is one."""

    summary: str
    diff: str | None = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What one call may use. `emit` takes live output (text, as it comes); it is for people and not part of the result.

    `environment` is the session's (`env` of its metadata) and nothing of this process's own; `credentials` are those
    that the configuration gives to this tool alone. `read_blob` and `put_blob` are the session's. `is_handover` tells a cancelled
    call that its turn is only taken over by another process, not ended.
    """

    session_id: str
    turn_id: str
    call_id: str
    principal: Principal
    workspace: Workspace | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict)
    emit: Callable[[str], None] = lambda _text: None
    read_blob: Callable[[str], Awaitable[bytes]] | None = None
    put_blob: Callable[[bytes], Awaitable[str]] | None = None
    is_handover: Callable[[], bool] = lambda: False


class Tool(Protocol):
    """Do one kind of thing for a model.

    Contract:
    - `spec` never changes while the tool lives.
    - `arguments` were validated against `spec.parameters` before any method gets them.
    - `subject` is what patterns of a policy are matched against (a path, a command line); pure and total.
    - `preview` changes nothing. `run` returns a result also for what fails; an exception out of it is a fault of the tool,
      which the loop turns into an error result.
    - A cancelled `run` leaves no process, handle or half-written file behind (B49).
    - One tool object serves one session (B39, B40). `aclose` frees everything, may be called twice, and waits until it is free.
    """

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares."""
        ...

    def subject(self, arguments: JsonObject) -> str:
        """Return what a policy's patterns are matched against."""
        ...

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return what a person is shown before they allow the call."""
        ...

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Do it."""
        ...

    async def aclose(self) -> None:
        """End what the tool still runs or holds."""
        ...


@runtime_checkable
class ParkingTool(Tool, Protocol):
    """A tool whose calls may wait for a person elsewhere, holding nothing meanwhile.

    Contract:
    - `run` raises `CallParkedError` when it can only wait; it is idempotent, and run again when the wait is over.
    - `withdraw` ends what such a call left behind, and returns what there is of a result; it may be called again.
    """

    async def withdraw(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """End a call that waits elsewhere: nobody wants its result any more."""
        ...
