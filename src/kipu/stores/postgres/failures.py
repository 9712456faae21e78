"""What the driver raises, as Kipu's errors. No message of it ever holds the URL's password: the driver's own texts do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from kipu.errors import (
    InputError,
    KipuError,
    StoreClosedError,
    StoreCorruptError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)

# The server asks for the statement once more, or another server is to be asked; it has changed nothing.
TRY_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected, errors.ReadOnlySqlTransaction)
# The connection is gone: whether a statement that was under way has happened is not known.
LOST = (psycopg.OperationalError, psycopg.InterfaceError)
# No connection was given, so nothing can have happened; the pool's errors are the driver's by their class.
NOT_GIVEN = (PoolTimeout, TooManyRequests, PoolClosed)


def is_lost(error: BaseException) -> bool:
    """Return True where the connection went, so that nobody knows whether the statement happened."""
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        # Class 57P is the server going down, 08 a connection that broke, 25P03 one that slept within a transaction.
        return error.sqlstate.startswith(("57P", "08", "25P03"))
    return isinstance(error, LOST) and not isinstance(error, NOT_GIVEN)


def translate(error: Exception, *, store: str) -> KipuError | None:
    """Return Kipu's error for a driver's, or None where it is none of the driver's."""
    if isinstance(error, (errors.DiskFull, errors.OutOfMemory)):
        return StoreFullError(store=store, reason=_text(error))
    if isinstance(error, (errors.ReadOnlySqlTransaction, errors.InsufficientPrivilege)):
        return StoreReadOnlyError(store=store, reason=_text(error))
    if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
        return StoreCorruptError(store=store, reason=_text(error))
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)):
        return StoreCorruptError(store=store, reason=f"{_text(error)}; run `kipu store check`")
    if isinstance(error, (PoolTimeout, TooManyRequests)):
        return StoreUnavailableError(store=store, reason="every connection is in use, or none can be made")
    if isinstance(error, PoolClosed):
        return StoreClosedError(store=store)
    if isinstance(error, (psycopg.DataError, errors.ProgramLimitExceeded)):  # no key of an index is longer than 2.7 kB
        return InputError(reason=f"the server cannot keep it: {_text(error)}")
    if isinstance(error, errors.QueryCanceled):
        return StoreUnavailableError(store=store, reason="the server took longer than statement_timeout_s")
    if isinstance(error, (psycopg.Error, OSError, TimeoutError)):
        return StoreUnavailableError(store=store, reason=_text(error) or type(error).__name__)
    return None


@contextmanager
def translated(store: str) -> Iterator[None]:
    """Raise Kipu's errors for the driver's."""
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
