"""A store of many sessions made of one real one: its head and its events, multiplied within the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.kipu_postgres import Bare, bare
from bench.kipu_runtime import Builder, Place, running
from kipu import Session
from kipu.ports.model import ModelRequest
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.agent import Agent, AgentParts
from kipu.runtime.tools.toolbox import Toolbox
from kipu.testing.scripted_model import ScriptedCall, ScriptedReply

TOOL_CALLS = 3
MESSAGE, RESULT, ANSWER = (
    "Could you look at it once more? " * 8,
    "a line of what was found\n" * 60,
    "It is as it was. " * 36,
)
_HEAD_COLUMNS = "tenant, owner, key, status, tags, pinned, forked_from, due_at, lagging, last_event_at, open_turn, hidden_seq, metadata"
_EVENT_COLUMNS = "seq, event_id, event_type, timestamp, tokens, turn_id, trace_id, principal, v, crc, body, at"
# The moment of session g: minutes of one year, so that lists have an order to keep.
_MOMENT = "to_char(timestamp '2026-01-01' + (g % 500000) * interval '1 minute', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"


class LookTool:
    """Return some lines at once."""

    spec = ToolSpec("look", "Looks.", {"type": "object"}, has_side_effect=False, default_policy="allow")

    def subject(self, arguments: JsonObject) -> str:
        return ""

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        return ToolPreview("look")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        return ToolResult(RESULT)

    async def aclose(self) -> None:
        return None


class LookingBuilder(Builder):
    """Build an agent whose tool gives some lines."""

    async def build(self, session: Session) -> Agent:
        return Agent(session, AgentParts(self._model, Toolbox([LookTool()])), manager=self._manager)


def looking(request: ModelRequest) -> ScriptedReply:
    """Call the tool some times, then answer."""
    results = 0
    for message in reversed(request.messages):
        if message["role"] == "user":
            break
        results += message["role"] == "tool"
    if results < TOOL_CALLS:
        return ScriptedReply("Looking.", calls=[ScriptedCall("look", {"at": results})])
    return ScriptedReply(ANSWER)


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[Place]:
    """Give a worker that runs such turns."""
    async with running(url, looking, builder=LookingBuilder) as place:
        yield place


async def make_template(url: str, *, turns: int) -> tuple[str, int]:
    """Make one session by real turns; return its id and its last seq."""
    async with serving(url) as place:
        session_id = ""
        for _ in range(turns):
            session_id = await place.say("template", MESSAGE)
            await place.worker.until_idle()
        session = await place.manager.open(session_id)
        await session.refresh()
        await place.manager.catch_up_index()
        return session_id, session.head.last_seq


async def multiply(connection: Bare, template: str, *, first: int, count: int, schema: str = "kipu") -> None:
    """Make sessions `g<first>` and on as the template is, with their events and their terms, in one transaction."""
    numbers = f"generate_series({first}, {first + count - 1}) AS g"
    name = "'g' || lpad(g::text, 8, '0')"
    given = f"{{schema}}.heads, {numbers} WHERE session_id = '{template}'"
    heads = (
        f"INSERT INTO {{schema}}.heads(session_id, version, changed_at, last_seq, created_at, last_activity_at, {_HEAD_COLUMNS}, data)"
        f" SELECT {name}, 1, now() - interval '1 hour', last_seq, {_MOMENT}, {_MOMENT}, {_HEAD_COLUMNS},"
        f" replace(data, '{template}', {name}) FROM {given}"
    )
    events = (
        f"INSERT INTO {{schema}}.events(session_id, {_EVENT_COLUMNS}) SELECT {name}, {_EVENT_COLUMNS}"
        f" FROM {numbers}, {{schema}}.events WHERE session_id = '{template}'"
    )
    async with connection.transaction():
        for statement in (heads, events):
            await connection.execute(statement.replace("{schema}", schema).encode())


def main_load(url: str, *, sessions: int, at_once: int) -> None:
    """Make a big store; used by hand, since it takes minutes."""

    async def load() -> None:
        template, last_seq = await make_template(url, turns=1)
        connection = await bare(url)
        for first in range(0, sessions, at_once):
            await multiply(connection, template, first=first, count=at_once)
            print(first + at_once, "sessions of", last_seq, "events", flush=True)
        await connection.execute(b"VACUUM ANALYZE kipu.heads")
        await connection.close()

    asyncio.run(load())
