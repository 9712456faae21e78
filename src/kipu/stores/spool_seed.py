"""How a session begins in the spool: where the primary's log ends, with its head and its lease."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from kipu.errors import SessionExistsError
from kipu.ports.clock import Clock
from kipu.ports.head import Head, HeadPatch, JsonObject, head_to_json
from kipu.ports.store import Record
from kipu.stores.jsonl.store import JsonlStore
from kipu.stores.spool_merge import MARKER_ID, MARKER_TYPE, is_marker
from kipu.stores.times import iso_from_us

# What the spool keeps by itself; everything else of the primary's head goes on in it.
_OWN_FIELDS = (
    "session_id",
    "last_seq",
    "due_at",
    "lease_owner",
    "lease_token",
    "lease_until",
    "indexed_seq",
    "offloaded_seq",
    "archive",
)


class Seed(NamedTuple):
    """What the primary's log is like where the spool's own events begin: behind `last_seq`."""

    base_seq: int
    last_seq: int
    offloaded_seq: int = 0
    archive: JsonObject | None = None


async def seed_session(spool: JsonlStore, head: Head, *, clock: Clock) -> None:
    """Begin the session of this head in the spool; that another process was quicker is as well."""
    await spool.spool.seed_lease(
        head.session_id, owner=head.lease_owner, token=head.lease_token, until=head.lease_until
    )
    seed = Seed(head.base_seq, head.last_seq, head.offloaded_seq, head.archive)
    said = {"spool": seed._asdict()}
    record = Record(MARKER_ID, MARKER_TYPE, iso_from_us(clock.now_us()), orjson.dumps(said))
    row = head_to_json(head)
    for name in _OWN_FIELDS:
        row.pop(name)
    patch = HeadPatch(set={**row, "base_seq": head.last_seq - 1})
    try:
        await spool.append(head.session_id, [record], head=patch)
    except SessionExistsError:
        return


async def seeded_at(spool: JsonlStore, session_id: str) -> Seed | None:
    """Return what the primary's log was like when the spool began; None when the spool began the session."""
    first = await spool.read(session_id, limit=1)
    if not first or not is_marker(first[0].record):
        return None
    return Seed(**orjson.loads(first[0].record.body)["spool"])
