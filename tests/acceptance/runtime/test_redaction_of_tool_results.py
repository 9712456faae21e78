"""What tools return loses its secrets before it is cut and its whole is put away."""

from __future__ import annotations

from pathlib import Path

from kipu.events.conversation import ToolResultEvent, UserMessageEvent
from kipu.ports.model import ModelRequest
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.agent_builder import AgentSettings
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply, results_of
from kipu.wiring import open_manager, open_redactor, open_runtime
from tests.acceptance.runtime.fakes import of_type

SECRET = "zebra-Quartz-77-lantern"


class Dump:
    """A tool that returns more than an event takes, with a secret where the cut is."""

    spec = ToolSpec("dump", "Dump.", {"type": "object"}, has_side_effect=False, default_policy="allow")

    def subject(self, arguments: JsonObject) -> str:
        return ""

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        return ToolPreview("dump")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        lines = [f"line {number}" for number in range(4_000)]
        lines[2_000] = f"deploy uses {SECRET} here"
        return ToolResult("\n".join(lines))

    async def aclose(self) -> None:
        return None


def answer(request: ModelRequest) -> ScriptedReply:
    """Call the tool, then end."""
    return ScriptedReply("Done.") if results_of(request) else ScriptedReply("On it.", calls=[ScriptedCall("dump", {})])


async def test_blob_of_a_cut_result_holds_no_secret(tmp_path: Path) -> None:
    """A result too long for its event is kept whole without its secret: no file holds it, and the event says so (C21, B57)."""
    store = tmp_path / "store"
    model = ScriptedModelClient(answer)
    settings = AgentSettings(tmp_path / "workspaces")
    redactor = open_redactor(known=[SECRET])
    async with await open_manager(f"jsonl:///{store}", redactor=redactor) as manager:
        async with open_runtime(
            manager, settings=settings, open_model=lambda _name: model, more_tools=lambda _session: [Dump()]
        ) as run:
            session = await manager.get_or_create("test:1")
            await session.add_event(UserMessageEvent(content="dump it", queued=True, busy={"mode": "followup"}))
            run.worker.wake(session.session_id)
            await run.worker.until_idle()
        (result,) = await of_type(session, ToolResultEvent)
        assert result.blob is not None
        whole = (await session.blob(result.blob.digest)).decode()
        assert "deploy uses [redacted:known-secret] here" in whole
        assert result.normalised == [{"path": "/result", "kind": "redacted", "rule": "known-secret", "count": 1}]
    assert all(SECRET.encode() not in path.read_bytes() for path in store.rglob("*") if path.is_file())
