"""Who shares which session, as rows in the order of lists: for a member a page costs what it costs for an owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kipu.stores.postgres.database import Connection, Database, run
from kipu.stores.postgres.heads import sql

ORDERS: Mapping[str, str] = {"last_activity_at": "active_at", "created_at": "began_at"}
_MOVE = "UPDATE {schema}.members SET began_at = %s, active_at = %s WHERE session_id = %s"
REMOVE = "DELETE FROM {schema}.members WHERE session_id = %s"
_ADD = (
    "INSERT INTO {schema}.members(session_id, member, began_at, active_at)"
    " SELECT %s, m.member, %s, %s FROM unnest(%s::text[]) AS m(member)"
)


async def follow_members(
    connection: Connection, database: Database, *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Bring the rows of a session to what its head says after a change, in the change's transaction."""
    members, session_id = after.get("members"), after["session_id"]
    if not members and not before.get("members"):
        return
    times = (after.get("created_at", ""), after.get("last_activity_at", ""))
    if members == before.get("members"):
        if times != (before.get("created_at", ""), before.get("last_activity_at", "")):
            await run(connection, sql(_MOVE, database), values=(*times, session_id))
        return
    await run(connection, sql(REMOVE, database), values=(session_id,))
    if members:
        await run(connection, sql(_ADD, database), values=(session_id, *times, list(members)))
