"""What the driver raises, said in Kipu's errors: no driver error leaves a store."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from kipu.errors import (
    InputError,
    KipuError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)

_KINDS: tuple[tuple[type[Exception], type[StoreError]], ...] = (
    (apsw.FullError, StoreFullError),
    (apsw.NoMemError, StoreUnavailableError),
    (apsw.ReadOnlyError, StoreReadOnlyError),
    (apsw.PermissionsError, StoreReadOnlyError),
    (apsw.CorruptError, StoreCorruptError),
    (apsw.NotADBError, StoreCorruptError),
    (apsw.FormatError, StoreCorruptError),
    (UnicodeDecodeError, StoreCorruptError),
    (apsw.ConnectionClosedError, StoreClosedError),
    (apsw.Error, StoreUnavailableError),
    (OSError, StoreUnavailableError),
)


# What cannot be bound or written as JSON, whatever the state of the store.
UNSTORABLE = (UnicodeEncodeError, OverflowError, TypeError, apsw.TooBigError)


def unstorable(error: Exception) -> InputError:
    """Return Kipu's error for one of `UNSTORABLE`."""
    return InputError(reason=f"it cannot be stored ({type(error).__name__}: {error})")


def translate(error: Exception, *, store: str) -> KipuError | None:
    """Return Kipu's error for a driver's, or None when it is not one."""
    if isinstance(error, UNSTORABLE):
        return unstorable(error)
    if _is_full(error):
        return StoreFullError(store=store, reason=f"{type(error).__name__}: {error}")
    for kind, ours in _KINDS:
        if isinstance(error, kind):
            return ours(store=store, reason=f"{type(error).__name__}: {error}")
    return None


def _is_full(error: Exception) -> bool:
    """Return True where there was no room, also for the memory that connections share: that alone keeps SQLite from reading."""
    if isinstance(error, apsw.IOError):
        return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def translated(store: str) -> Iterator[None]:
    """Raise Kipu's error in place of a driver's."""
    try:
        yield
    except (apsw.Error, OSError, UnicodeDecodeError) as error:
        ours = translate(error, store=store)
        if ours is None:
            raise
        raise ours from error
