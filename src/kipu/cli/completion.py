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
    from kipu.cli.place import require_place
    from kipu.cli.settings import Settings
    from kipu.interop.printable import printable_line
    from kipu.manager.listing import all_heads
    from kipu.ports.principal import Principal
    from kipu.ports.store import SessionQuery
    from kipu.wiring import default_store_url, open_store

    settings = Settings.load(os.environ, options={})
    url = settings["store"] or default_store_url(os.environ)
    require_place(url, create=False)
    store = await open_store(url)
    found: list[tuple[str, str]] = []
    try:
        async for head in all_heads(store, SessionQuery(limit=500), principal=Principal.local()):
            if head.session_id.startswith(incomplete):
                found.append((head.session_id, printable_line(head.display_title)[:60]))
            if len(found) == OFFERED:
                break
    finally:
        await store.close()
    return found
