"""Errors about one session, and who may use it."""

from __future__ import annotations

from kipu.errors.kipu_error import KipuError


class SessionError(KipuError):
    """Session {session_id}: {reason}."""

    code = "session"


class SessionNotFoundError(SessionError):
    """There is no session {session_id!r} for this principal. List those there are with `kipu ls`; nothing was created."""

    code = "session_not_found"


class SessionExistsError(SessionError):
    """Session {session_id!r} exists already. Open it with get_session, or create one under another id."""

    code = "session_exists"


class SessionErasedError(SessionError):
    """Session {session_id!r} was erased. Ids are not used again: create one under another id."""

    code = "session_erased"


class SessionBusyError(SessionError):
    """Session {session_id!r} is in use by {owner}. Wait for it, open it read-only, fork it, or stop the other one."""

    code = "session_busy"


class SessionForkedError(SessionError):
    """Session {session_id!r} has forks that need its events: {forks}. Erase them too (cascade), let them stand alone (detach)."""

    code = "session_forked"


class SessionHeldError(SessionError):
    """Session {session_id!r} is under legal hold since {at} by {by}: {reason}. Release it first (kipu release {session_id})."""

    code = "session_held"


class ErasureUnfinishedError(SessionError):
    """Erasure {erasure_id} has begun and is not done: {reason}. Put that right; whoever opens the store next goes on with it."""

    code = "erasure_unfinished"


class SessionAmbiguousError(SessionError):
    """{text!r} could be any of these sessions: {candidates}. Give the whole id of one; nothing was opened."""

    code = "session_ambiguous"


class ReplayMismatchError(SessionError):
    """Model call {seq} of session {session_id!r} renders as {actual}, not as {expected}. Run `kipu verify {session_id}`."""

    code = "replay_mismatch"


class TransitionError(SessionError):
    """Session {session_id!r} cannot go from {before} to {after}. See the lifecycle table in docs/concepts/lifecycle.md."""

    code = "transition"


class AccessDeniedError(KipuError):
    """{principal} may not {verb} session {session_id!r}: {reason}. Nothing was changed."""

    code = "access_denied"
