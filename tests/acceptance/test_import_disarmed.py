"""What an imported file says is on record, and makes nothing happen here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kipu.events.turn import TurnFinishedEvent
from kipu.interop.export_jsonl import export_jsonl
from kipu.interop.import_events import import_events
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, of_type, runtime


async def exported(place: Path) -> tuple[Path, str]:
    """A session with an approved, parked call, a grant, variables and a waiting message, as a file."""
    write = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("write")])])
    async with runtime(model, write) as run:
        session = await run.session()
        grant: dict[str, Any] = {"grant.x": {"tool": "write"}, "kipu.parent": {"call_id": "c", "principal": "root"}}
        await session.set_metadata(env={"PATH": "/evil"}, topic="kept", **grant)
        await run.say(session, "go")
        await run.settled()
        await run.worker.drain(timeout_s=0)  # nobody goes on with it
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await run.say(session, "and then?")
        file = place / "session.jsonl"
        file.write_bytes(b"".join([line async for line in export_jsonl(session)]))
        return file, session.session_id


async def test_imported_session_starts_nothing(tmp_path: Path) -> None:
    """An open turn, an approved call, a waiting message, a grant, variables of a file: on record, and none of them acts (A19, A20)."""
    file, session_id = await exported(tmp_path)
    write = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})
    model = ScriptedModelClient(["hello"])
    async with await open_manager(f"sqlite:////{tmp_path}/s.db") as manager:
        await import_events(manager, file)
        async with runtime(model, write, manager=manager) as run:
            await run.worker.sweep()
            await run.settled()
            session = await manager.open(session_id)
            assert model.requests == []
            assert write.calls == []
            assert await run.desk.pending() == []
            head = session.head
            assert (head.open_turn, head.waiting, head.due_at, head.workspace) == (None, (), None, None)
            assert head.metadata == {"topic": "kept"}
            await run.say(session, "a message of our own")
            await run.settled()
            assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"]
            assert write.calls == []
