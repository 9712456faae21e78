"""Grants for a project or a user that were given in a session: they quote its calls, and stand in a session of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kipu.errors import DataKeyDestroyedError
from kipu.events.boundary import SessionInitEvent
from kipu.manager.lock import SessionLock
from kipu.ports.erasure import Emptied, Facts
from kipu.ports.head import Head
from kipu.ports.store import Binding, EventStore, SessionQuery
from kipu.runtime.policy.grants import PREFIX
from kipu.session.patch import patch_for

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager

_PREFIX = "kipu:grants"  # of the keys of sessions that keep grants


class GrantPlace:
    """Take back what was allowed by approvals of an erased session.

    A log is not rewritten: who has such a grant gets a fresh session for the others, and the one that quoted it is erased.
    """

    name = "grants"

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager

    async def plan(self, head: Head, *, store: EventStore) -> Facts | None:
        """Return the ids of the session's approvals."""
        approvals: list[str] = []
        after = head.base_seq
        while page := await store.read(head.session_id, after=after):
            decisions = [stored.record for stored in page if stored.record.event_type == "approval_decision"]
            approvals += [str(_fields(record.body).get("approval_id")) for record in decisions]
            after = page[-1].seq
        return {"approvals": approvals, "tenant": head.tenant} if approvals else None

    async def settle_fork(self, head: Head) -> None:
        """Leave forks alone: they inherit no grants."""

    async def erase(self, session_id: str, facts: Facts) -> Emptied:
        """Erase what quotes the approvals, after what else it held stands elsewhere."""
        wanted = [approval.encode() for approval in facts.get("approvals", ())]
        gone = 0
        async for head in self._keepers(facts.get("tenant", "")):
            try:
                is_quoting = await self._quotes(head, wanted)
            except DataKeyDestroyedError:  # a kill came while it was erased; what else it held stands elsewhere since
                await self._erase(head)
                continue
            if is_quoting:
                gone += await self._replace(head, set(facts.get("approvals", ())))
        return Emptied({"grants": gone})

    async def _keepers(self, tenant: str) -> AsyncIterator[Head]:
        """Yield every session that keeps grants, also one that lost its key to a newer one when a kill came."""
        query = SessionQuery(tenant=tenant, key_prefix=_PREFIX, limit=500)
        while True:
            page = await self._manager.store.list(query)
            for head in page.items:
                yield head
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    async def _quotes(self, head: Head, approvals: Sequence[bytes]) -> bool:
        after = 0
        while page := await self._manager.store.read(head.session_id, after=after):
            if any(approval in stored.record.body for stored in page for approval in approvals):
                return True
            after = page[-1].seq
        return False

    async def _replace(self, head: Head, approvals: set[str]) -> int:
        manager, store = self._manager, self._manager.store
        grants = {name: value for name, value in head.metadata.items() if name.startswith(PREFIX)}
        kept = {name: value for name, value in grants.items() if _approval(value) not in approvals}
        if head.key is not None and await store.resolve(head.key) == head.session_id:
            fresh = manager.mint("sess")
            init = SessionInitEvent(key=head.key, owner=head.owner, tenant=head.tenant, metadata=kept)
            prepared = await manager.writer.prepare(fresh, init, principal=head.owner)
            bind = Binding(head.key, head.session_id)
            await store.append(fresh, [prepared.record], head=patch_for([prepared.event]), bind=bind)
        await self._erase(head)
        return len(grants) - len(kept)

    async def _erase(self, head: Head) -> None:
        manager = self._manager
        async with SessionLock(manager.store, head.session_id, owner=f"{manager.owner}.grants") as lock:
            if lock.lease is not None:
                await manager.store.erase(head.session_id, lease=lock.lease)

    async def erase_person(self, tenant: str, owner: str) -> Emptied:
        """Erase what erasing the person's sessions one by one put in place of the session that kept their grants."""
        gone = 0
        async for head in self._keepers(tenant):
            if head.owner == owner:
                await self._erase(head)
                gone += 1
        return Emptied({"keepers": gone})

    def roots(self) -> Sequence[Path]:
        """Return none: they are in the store."""
        return ()


def _approval(value: object) -> str:
    return str(value.get("approval_id")) if isinstance(value, dict) else ""


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}
