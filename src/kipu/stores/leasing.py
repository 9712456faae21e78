"""How leases change hands, as pure code over one head row; the store makes it one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kipu.errors import InputError, LeaseLostError
from kipu.ports.owner import Liveness
from kipu.ports.store import Lease
from kipu.stores.admission import lease_is_live
from kipu.stores.times import iso_from_us

Row = Mapping[str, Any]


def claimed(
    row: Row, *, owner: str, ttl_s: float, now_us: int, liveness: Liveness
) -> tuple[dict[str, Any], Lease] | None:
    """Return the row and the lease after a claim, or None while another owner's is live."""
    if not owner or ttl_s <= 0:
        raise InputError(reason="a lease needs an owner and a time to live above zero")
    if row.get("lease_owner") != owner and lease_is_live(row, now=iso_from_us(now_us), liveness=liveness):
        return None
    expires_at = iso_from_us(now_us + int(ttl_s * 1_000_000))
    token = row.get("lease_token", 0) + 1
    after = {**row, "lease_owner": owner, "lease_token": token, "lease_until": expires_at}
    return after, Lease(row["session_id"], owner, token, ttl_s, expires_at)


def renewed(row: Row, lease: Lease, *, now_us: int) -> tuple[dict[str, Any], Lease]:
    """Return the row and the lease with a later expiry."""
    if not holds(row, lease):
        raise LeaseLostError(session_id=lease.session_id, token=lease.token, current=row.get("lease_token", 0))
    expires_at = iso_from_us(now_us + int(lease.ttl_s * 1_000_000))
    return {**row, "lease_until": expires_at}, Lease(
        lease.session_id, lease.owner, lease.token, lease.ttl_s, expires_at
    )


def released(row: Row, lease: Lease, *, expected_seq: int | None) -> dict[str, Any] | bool:
    """Return the row without the lease; True when there was nothing to give back, False when something arrived since."""
    if not holds(row, lease):
        return True
    if expected_seq is not None and row["last_seq"] != expected_seq:
        return False
    return {**row, "lease_owner": None, "lease_until": None}


def holds(row: Row, lease: Lease) -> bool:
    """Return whether the lease is the session's newest and was not given back."""
    # Tokens are counted by each session for itself: another session's lease may have this one's owner and token.
    own = row.get("session_id", lease.session_id) == lease.session_id
    return bool(own and row.get("lease_token", 0) == lease.token and row.get("lease_owner") == lease.owner)
