"""What the shell offers where a session id is wanted."""

from __future__ import annotations

import os

OFFERED = 100


def complete_session(incomplete: str) -> list[tuple[str, str]]:
    """Return the newest sessions whose id begins so, with their titles; nothing where the store cannot be read."""
    import asyncio

    from kipu.errors import KipuError

    try:
        return asyncio.run(_newest(incomplete))
    except (KipuError, OSError):
        return []


async def _newest(incomplete: str) -> list[tuple[str, str]]:
    from kipu.cli.settings import Settings
    from kipu.interop.printable import printable_line
    from kipu.ports.store import SessionQuery
    from kipu.wiring import open_manager

    settings = Settings.load(os.environ, options={})
    async with await open_manager(settings["store"]) as manager:
        found: list[tuple[str, str]] = []
        async for head in manager.heads(SessionQuery(limit=500)):
            if head.session_id.startswith(incomplete):
                found.append((head.session_id, printable_line(head.display_title)[:60]))
            if len(found) == OFFERED:
                break
        return found
