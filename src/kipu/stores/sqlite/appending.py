"""One append inside the transaction: what it is refused for, then what it writes."""

from __future__ import annotations

from kipu.ports.head import apply_patch
from kipu.ports.owner import Liveness
from kipu.ports.store import Appended
from kipu.stores.admission import AppendRequest, admit, ends_sharing, taken_over
from kipu.stores.sqlite import event_table
from kipu.stores.tables import key_tables
from kipu.stores.tables.heads import Heads


def append_records(heads: Heads, request: AppendRequest, *, now_us: int, liveness: Liveness) -> Appended:
    """Append the request's records, its head patch, binding and key, or raise with nothing written."""
    connection = heads.connection
    key, session_id, records, bind = request.idempotency_key, request.session_id, request.records, request.bind
    if key is not None:
        known = key_tables.outcome(connection, key, now_us=now_us)
        if known is not None:
            return known
    row = heads.load(session_id)
    shared: tuple[int, list[int]] = (0, [])
    if row is not None and ends_sharing(request):
        shared = event_table.adopted(connection, row.number)
    before = admit(
        request,
        row.data if row is not None else None,
        erased=row is None and key_tables.is_erased(connection, session_id),
        bound_to=key_tables.resolve(connection, bind.key) if bind is not None else None,
        adopted_seq=shared[0],
        now_us=now_us,
        liveness=liveness,
    )
    first_seq = before["last_seq"] + 1
    timestamps = [record.timestamp for record in records]
    tokens = sum([record.tokens for record in records])
    after = apply_patch(before, request.head, first_seq=first_seq, timestamps=timestamps, tokens=tokens)
    if row is not None and shared[1]:
        after = taken_over(after, shared[1])
        event_table.take_over(connection, row.number)
    number = (heads.insert(after) if row is None else heads.update(row, after=after)).number
    event_table.insert(connection, number, session_id=session_id, first_seq=first_seq, records=records)
    appended = Appended(session_id, first_seq, after["last_seq"])
    if bind is not None:
        key_tables.bind(connection, bind.key, number=number)
    if key is not None:
        key_tables.remember(connection, key, number=number, appended=appended, now_us=now_us)
    return appended
