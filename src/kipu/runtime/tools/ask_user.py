"""`ask_user`: a question that only a person can answer. The turn waits for them as for an approval, and costs nothing meanwhile."""

from __future__ import annotations

from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec

NAME = "ask_user"
SPEC = ToolSpec(
    name=NAME,
    description=(
        "Ask the person a question and get their answer. Use it when you cannot go on well without knowing what they want, "
        "such as a choice between ways that differ, and not for what you can find out yourself. One question at a time."
    ),
    parameters={
        "type": "object",
        "properties": {
            "question": {"type": "string", "minLength": 1, "description": "What you want to know, and why it matters."},
            "choices": {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "maxItems": 9,
                "description": "Answers to choose from; the person may still say something else.",
            },
        },
        "required": ["question"],
        "additionalProperties": False,
    },
    is_idempotent=True,
    has_side_effect=False,
    default_policy="ask",
    is_question=True,
)


class AskUser:
    """Put a question to whoever may decide in the session; their words are the call's result."""

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares."""
        return SPEC

    def subject(self, arguments: JsonObject) -> str:
        """Return the question."""
        return str(arguments.get("question", ""))

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return the question with its choices, numbered."""
        del context
        choices = [f"{number} {choice}" for number, choice in enumerate(arguments.get("choices") or (), 1)]
        return ToolPreview(self.subject(arguments) + (f" [{' · '.join(choices)}]" if choices else ""))

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Say that nobody was asked: an answered question never comes here, its answer is the result."""
        del arguments, context
        return ToolResult("Nobody was asked.", is_error=True, error_info="not_asked")

    async def aclose(self) -> None:
        """Do nothing."""
