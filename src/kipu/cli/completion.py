"""What the shell offers where a session, an approval or a proposal is wanted."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import typer

OFFERED = 100
PATIENCE_S = 5.0
Offers = list[tuple[str, str]]
# zsh evaluates what it is offered, and Typer takes brackets for styles: of a title, `\$(…)` would be run and `[/b]` fail.
_UNSAFE = str.maketrans({**dict.fromkeys("\\$`", None), '"': "'", "[": "(", "]": ")"})


def complete_session(context: typer.Context, incomplete: str) -> Offers:
    """Return the newest sessions whose id begins so, with their titles; nothing where the store cannot be read."""
    return _offered(context, incomplete, find=_newest)


def complete_approval(context: typer.Context, incomplete: str) -> Offers:
    """Return the approvals that wait and whose id begins so, with what they are about."""
    return _offered(context, incomplete, find=_waiting)


def complete_proposal(context: typer.Context, incomplete: str) -> Offers:
    """Return the proposals whose id begins so, with what they would change."""
    return _offered(context, incomplete, find=_proposed)


def _offered(context: typer.Context, incomplete: str, *, find: Callable[[str, str], Awaitable[Offers]]) -> Offers:
    import asyncio
    import threading

    from kipu.errors import KipuError

    async def found() -> Offers:
        return await find(_store_url(context), incomplete)

    # The shell stands still meanwhile, and a thread that waits for a lock of the store cannot be cancelled.
    overdue = threading.Timer(PATIENCE_S, os._exit, (0,))
    overdue.daemon = True
    overdue.start()
    try:
        return [(offer, text.translate(_UNSAFE)) for offer, text in asyncio.run(found())]
    except (KipuError, OSError):
        return []
    finally:
        overdue.cancel()


async def _newest(url: str, incomplete: str) -> Offers:
    from kipu.interop.printable import printable_line
    from kipu.manager.listing import all_heads
    from kipu.ports.principal import Principal
    from kipu.ports.store import SessionQuery
    from kipu.wiring import open_store

    store = await open_store(url)
    found: Offers = []
    try:
        async for head in all_heads(store, SessionQuery(limit=500), principal=Principal.local()):
            if head.session_id.startswith(incomplete):
                found.append((head.session_id, printable_line(head.display_title)[:60]))
            if len(found) == OFFERED:
                break
    finally:
        await store.close()
    return found


async def _waiting(url: str, incomplete: str) -> Offers:
    from kipu.interop.printable import printable_line
    from kipu.runtime.approvals import ApprovalDesk
    from kipu.wiring import open_manager

    async with await open_manager(url) as manager:
        pending = await ApprovalDesk(manager).pending()
    return [
        (one.approval_id, printable_line(f"{one.tool_name} {one.shown.get('summary', '')}")[:60])
        for one in pending
        if one.approval_id.startswith(incomplete)
    ][:OFFERED]


async def _proposed(url: str, incomplete: str) -> Offers:
    from kipu.proposals.desk import ProposalDesk
    from kipu.proposals.ledger import ProposalLedger
    from kipu.proposals.text_check import shown
    from kipu.wiring import open_manager

    async with await open_manager(url) as manager:
        every = await ProposalDesk(ProposalLedger(manager, manager.principal)).all()
    return [
        (one.proposal_id, shown(f"{one.status}: {one.target.label}")[:60])
        for one in every
        if one.proposal_id.startswith(incomplete)
    ][:OFFERED]


def _store_url(context: typer.Context) -> str:
    """Return the store that the words so far name, or the one in force. Raises: StoreNotFoundError (it is not made yet)."""
    from kipu.cli.place import require_place
    from kipu.cli.settings import Settings
    from kipu.store_url import default_store_url

    named: str | None = context.params.get("store")
    at = context.parent
    while named is None and at is not None:  # --store may stand before or after each command's name
        named, at = at.params.get("store"), at.parent
    url = Settings.load(os.environ, options={"store": named})["store"] or default_store_url(os.environ)
    require_place(url, create=False)
    return url
