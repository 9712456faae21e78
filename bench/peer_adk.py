"""google-adk's SqliteSessionService on the figures' work. Runs in .venv-bench."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from google.adk.events import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from bench.stopwatch import Stopwatch
from bench.workload import WINDOW, Turn, turns


def _parts(turn: Turn) -> list[tuple[str, types.Part]]:
    call = types.FunctionCall(id=turn.call_id, name="shell", args=dict(turn.call_input))
    result = types.FunctionResponse(id=turn.call_id, name="shell", response={"result": turn.result})
    return [
        ("user", types.Part(text=turn.user)),
        ("model", types.Part(function_call=call)),
        ("user", types.Part(function_response=result)),
        ("model", types.Part(text=turn.answer)),
    ]


async def _append(service: SqliteSessionService, session: Session, *, role: str, part: types.Part) -> None:
    content = types.Content(role=role, parts=[part])
    await service.append_event(session, Event(author=role, invocation_id="i", content=content))


async def _turn(service: SqliteSessionService, session: Session, turn: Turn) -> None:
    parts = _parts(turn)
    await _append(service, session, role=parts[0][0], part=parts[0][1])
    await service.get_session(
        app_name="bench", user_id="u", session_id=session.id, config=GetSessionConfig(num_recent_events=WINDOW)
    )
    for role, part in parts[1:]:
        await _append(service, session, role=role, part=part)


def one_session(directory: Path, *, count: int) -> dict[str, float]:
    """W1: every event its own durable append, the last 200 loaded each turn."""

    async def run() -> dict[str, float]:
        conversation = turns(count)
        service = SqliteSessionService(str(directory / "peer.db"))
        session = await service.create_session(app_name="bench", user_id="u", session_id="s")
        watch = Stopwatch()
        for turn in conversation:
            await _turn(service, session, turn)
            watch.lap()
        return watch.report() | {"bytes": (directory / "peer.db").stat().st_size}

    return asyncio.run(run())


def many_sessions(directory: Path, *, sessions: int, turns_each: int, at_once: int) -> dict[str, float]:
    """W2: many sessions in one database, so many at once."""

    async def run() -> dict[str, float]:
        conversation = turns(turns_each)
        gate = asyncio.Semaphore(at_once)
        service = SqliteSessionService(str(directory / "peer.db"))

        async def one(number: int) -> None:
            async with gate:
                session = await service.create_session(app_name="bench", user_id="u", session_id=f"s{number}")
                for turn in conversation:
                    await _turn(service, session, turn)

        start_s = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(sessions)))
        wall_s = time.perf_counter() - start_s
        return {"wall_s": wall_s, "turns_per_s": sessions * turns_each / wall_s}

    return asyncio.run(run())
