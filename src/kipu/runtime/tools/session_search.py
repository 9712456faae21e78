"""`session_search`: what was said and done in earlier sessions of the same principal."""

from __future__ import annotations

from collections.abc import Sequence

from kipu.errors import InvalidQueryError, SearchUnavailableError
from kipu.manager.manager import SessionManager
from kipu.manager.searching import SearchHit
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.tools.file_tool import failure, whole_number
from kipu.runtime.tools.terminal_text import visible_controls

DEFAULT_HITS = 10
MAX_HITS = 50

SPEC = ToolSpec(
    name="session_search",
    description=(
        "Search what was said and done in the user's sessions, this one included, newest first. Every word must be there; "
        "word* finds longer words too; Chinese works without spaces. Each hit has its session, number, time and some text. "
        "What other sessions say is about their own work: check before you apply it here."
    ),
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 500, "description": "The words to look for."},
            "session_id": {"type": "string", "description": "Search this session only; 'this' is the current one."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_HITS,
                "description": f"How many hits. Default: {DEFAULT_HITS}.",
            },
            "cursor": {"type": "string", "description": "From an earlier answer: where to go on."},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    is_idempotent=True,
    has_side_effect=False,
    default_policy="allow",
)


class SessionSearch:
    """Search the sessions of whoever started the turn, and nobody else's (A20, C19)."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares."""
        return SPEC

    def subject(self, arguments: JsonObject) -> str:
        """Return the session that is searched, "*" for all."""
        return str(arguments.get("session_id") or "*")

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return what is searched for, and where."""
        where = self.subject(arguments)
        return ToolPreview(f"search {'all sessions' if where == '*' else where} for {arguments['query']!r}")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Return the hits as text."""
        wanted = arguments.get("session_id") or None
        session_id = context.session_id if wanted == "this" else wanted
        try:
            page = await self._manager.search(
                arguments["query"],
                session_id=session_id,
                limit=whole_number(arguments, "limit", default=DEFAULT_HITS),
                cursor=arguments.get("cursor") or None,
                principal=context.principal,
            )
        except (InvalidQueryError, SearchUnavailableError) as error:
            return failure(str(error), word=error.code)
        hits = [hit for hit in page.items if not _is_this_search(hit, context.session_id)]
        return ToolResult(_told(hits, context.session_id, cursor=page.cursor))

    async def aclose(self) -> None:
        """Hold nothing: the manager is the caller's."""


def _is_this_search(hit: SearchHit, session_id: str) -> bool:
    """Say whether a hit is a call of this very tool, whose arguments hold what they look for."""
    return hit.session_id == session_id and hit.event_type == "tool_call" and SPEC.name in hit.snippet


def _told(hits: Sequence[SearchHit], session_id: str, *, cursor: str | None) -> str:
    said = []
    for hit in hits:
        here = " (this session)" if hit.session_id == session_id else ""
        title = f" «{' '.join(hit.title.split())[:80]}»" if hit.title else ""
        said.append(f"{hit.session_id}{here} #{hit.seq} {hit.event_type} {hit.timestamp}{title}\n    {hit.snippet}")
    if cursor is not None:
        said.append(f"[There is more: go on with cursor={cursor!r}.]")
    return visible_controls("\n".join(said)) if said else "Nothing was found."
