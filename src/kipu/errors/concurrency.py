"""Somebody else was there first."""

from __future__ import annotations

from kipu.errors.kipu_error import KipuError


class ConcurrencyError(KipuError):
    """Somebody else changed session {session_id} first. Read it again and decide again."""

    code = "concurrency"


class LeaseLostError(ConcurrencyError):
    """The lease on session {session_id!r} is not yours any more (token {token}, now {current}). Stop this turn; append nothing."""

    code = "lease_lost"


class LeaseRequiredError(ConcurrencyError):
    """Appending {event_type} to session {session_id!r} needs its lease, which {owner} holds. Claim it first, or wait."""

    code = "lease_required"


class ConflictError(ConcurrencyError):
    """Session or key {session_id!r} is not where you saw it (expected {expected}, is {actual}). Read again and decide again."""

    code = "conflict"
