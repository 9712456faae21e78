"""`read_skill`: the texts about how to work that a person approved, read when they are needed."""

from __future__ import annotations

from kipu.manager.access import owner_of
from kipu.manager.session import Session
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.proposals.learned import LearnedSource
from kipu.runtime.policy.grants import project_of
from kipu.runtime.tools.file_tool import failure

SPEC = ToolSpec(
    name="read_skill",
    description="Read a skill that your instructions list: what the person approved about how to do something here.",
    parameters={
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1, "description": "The skill's name."}},
        "required": ["name"],
        "additionalProperties": False,
    },
    is_idempotent=True,
    has_side_effect=False,
    default_policy="allow",
)


class ReadSkill:
    """Read the skills in force for one session: those of its project first, then those of its owner."""

    def __init__(self, source: LearnedSource, *, session: Session) -> None:
        self._source = source
        self._session = session

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares."""
        return SPEC

    def subject(self, arguments: JsonObject) -> str:
        """Return the skill's name."""
        return str(arguments.get("name", ""))

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return which skill is read."""
        del context
        return ToolPreview(f"read the skill {self.subject(arguments)}")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Return its text."""
        del context
        learned = await self._source.learned(owner_of(self._session.head), project=project_of(self._session))
        text = learned.skills.get(self.subject(arguments))
        if text is not None:
            return ToolResult(text)
        there = ", ".join(sorted(learned.skills)) or "none"
        return failure(f"There is no skill {self.subject(arguments)!r}. There are: {there}.", word="not_found")

    async def aclose(self) -> None:
        """Hold nothing."""
