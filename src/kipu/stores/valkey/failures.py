"""What the client raises, as Kipu's errors. No message of it ever holds the password: the server's own texts do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from valkey import exceptions

from kipu.errors import KipuError, StoreFullError, StoreReadOnlyError, StoreUnavailableError

# The connection went, or gave no answer in time: whether what was asked over it has happened is not known.
_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.InvalidResponse, OSError, EOFError)
_NOT_LOST = (exceptions.AuthenticationError, exceptions.BusyLoadingError)
_DENIED = ("NOPERM", "ACL failure", "user executing the script")  # as the servers have it, old and new
_READ_ONLY = "it is a replica: another server takes the writes now. The URL may name several, host1,host2, or a name that follows"
_ELSEWHERE = (
    "this node of a cluster does not have the store's slot: name the one that does (CLUSTER SLOTS, CLUSTER KEYSLOT)"
)


def is_lost(error: BaseException) -> bool:
    """Return True where nobody knows whether what was asked has happened: for the client's errors, and for ours made of them."""
    if isinstance(error, KipuError):
        return error.__cause__ is not None and is_lost(error.__cause__)
    return isinstance(error, _LOST) and not isinstance(error, _NOT_LOST)


def leads_elsewhere(error: BaseException) -> bool:
    """Return True where the server takes no writes, and another one may by now: it is to be looked for."""
    other = (exceptions.ReadOnlyError, exceptions.BusyLoadingError, exceptions.MovedError, exceptions.AskError)
    return isinstance(error, other) or "READONLY" in str(error)


def translate(error: Exception, *, store: str) -> KipuError | None:
    """Return Kipu's error for one of the client's, or None where it is none of those."""
    text = _text(error)
    if is_lost(error):
        return StoreUnavailableError(store=store, reason=text or type(error).__name__)
    if isinstance(error, exceptions.OutOfMemoryError) or text.startswith("OOM ") or "OOM command not allowed" in text:
        return StoreFullError(store=store, reason="the server has reached its maxmemory; raise it, or archive sessions")
    if isinstance(error, exceptions.ReadOnlyError) or "READONLY" in text:
        return StoreUnavailableError(store=store, reason=_READ_ONLY)
    if isinstance(error, (exceptions.MovedError, exceptions.AskError)):
        return StoreUnavailableError(store=store, reason=_ELSEWHERE)
    if isinstance(error, exceptions.NoPermissionError) or any(sign in text for sign in _DENIED):
        return StoreReadOnlyError(
            store=store, reason=f"its user may not do that ({text}); docs/formats/valkey.md says what"
        )
    if isinstance(error, exceptions.ValkeyError):
        return StoreUnavailableError(store=store, reason=text or type(error).__name__)
    return None


@contextmanager
def translated(store: str) -> Iterator[None]:
    """Raise Kipu's errors for the client's."""
    try:
        yield
    except KipuError:
        raise
    except Exception as error:
        ours = translate(error, store=store)
        if ours is None:
            raise
        raise ours from error


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
