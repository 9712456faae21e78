"""Whether an append may happen: the refusals of the store contract, as pure code over one head row.

Every store asks here, inside its transaction and before it writes anything, so that all refuse the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kipu.errors import (
    ConflictError,
    InputError,
    LeaseLostError,
    LeaseRequiredError,
    SessionErasedError,
    SessionExistsError,
    SessionNotFoundError,
)
from kipu.events.ids import check_session_id
from kipu.ports.head import HeadPatch
from kipu.ports.owner import Liveness
from kipu.ports.store import LEASE_FREE_TYPES, Binding, Record
from kipu.stores.times import iso_from_us

Row = Mapping[str, Any]


class AppendRequest(NamedTuple):
    """What one caller of `append` asked for."""

    session_id: str
    records: Sequence[Record]
    head: HeadPatch
    bind: Binding | None
    token: int | None
    expected_seq: int | None
    idempotency_key: str | None


def admit(
    request: AppendRequest,
    row: Row | None,
    *,
    erased: bool,
    bound_to: str | None,
    adopted_seq: int = 0,
    now_us: int,
    liveness: Liveness,
) -> Row:
    """Return the head row that the append starts from: the one there is, or a new session's.

    `bound_to` is where the key of `request.bind` leads now; `adopted_seq` up to where shared events were taken in.
    """
    session_id = request.session_id
    _check_records(request)
    begins = any(record.event_type == "session_init" for record in request.records)
    if row is None:
        row = _new_row(request, begins=begins, erased=erased)
    elif begins and request.token is None:
        raise SessionExistsError(session_id=session_id)
    if request.token is not None and request.token != row.get("lease_token", 0):
        raise LeaseLostError(session_id=session_id, token=request.token, current=row.get("lease_token", 0))
    if request.expected_seq is not None and request.expected_seq != row["last_seq"]:
        raise ConflictError(session_id=session_id, expected=request.expected_seq, actual=row["last_seq"])
    if request.token is None and row.get("lease_owner"):
        _require_no_lease(request, row, now_us=now_us, liveness=liveness)
    if request.bind is not None and request.bind.expected != bound_to:
        raise ConflictError(session_id=request.bind.key, expected=request.bind.expected, actual=bound_to)
    if ends_sharing(request) and row.get("last_seq") and adopted_seq != row.get("base_seq", 0):
        raise ConflictError(session_id=session_id, expected=row.get("base_seq", 0), actual=adopted_seq)
    return row


def ends_sharing(request: AppendRequest) -> bool:
    """Return whether the append makes a fork stand alone: what it shared is its own from now on (`EventStore.adopt`)."""
    return request.head.set.get("base_seq") == 0


def taken_over(row: Row, tokens: Sequence[int]) -> dict[str, Any]:
    """Return the head row with events counted that became the session's own; they wait to be indexed."""
    counts = {"event_count": row["event_count"] + len(tokens), "token_count": row["token_count"] + sum(tokens)}
    return {**row, **counts, "indexed_seq": 0}


def check_adopted(row: Row, count: int, *, after: int, end: int) -> None:
    """Return where `count` events after `after` go on from `end` and stay within what the session shares.

    Raises: ConflictError.
    """
    if after > end or after + count > row.get("base_seq", 0):
        raise ConflictError(session_id=row["session_id"], expected=end, actual=after)


def _check_records(request: AppendRequest) -> None:
    if not request.records:
        raise InputError(reason="an append needs at least one record")
    for record in request.records:
        if type(record.body) is not bytes or b"\n" in record.body:
            raise InputError(reason="a record's body is bytes of one line")


def _new_row(request: AppendRequest, *, begins: bool, erased: bool) -> Row:
    if not begins:
        raise SessionNotFoundError(session_id=request.session_id)
    if erased:
        raise SessionErasedError(session_id=request.session_id)
    check_session_id(request.session_id)
    base_seq = int(request.head.set.get("base_seq", 0))
    return {"session_id": request.session_id, "base_seq": base_seq, "last_seq": base_seq}


def _require_no_lease(request: AppendRequest, row: Row, *, now_us: int, liveness: Liveness) -> None:
    held = next((r.event_type for r in request.records if r.event_type not in LEASE_FREE_TYPES), None)
    if held is not None and lease_is_live(row, now=iso_from_us(now_us), liveness=liveness):
        raise LeaseRequiredError(event_type=held, session_id=request.session_id, owner=row["lease_owner"])


def lease_is_live(row: Row, *, now: str, liveness: Liveness) -> bool:
    """Return whether somebody holds the session: not released, not expired, and not known to be dead."""
    owner, until = row.get("lease_owner"), row.get("lease_until")
    return bool(owner and until and until > now and not liveness.is_dead(owner))
