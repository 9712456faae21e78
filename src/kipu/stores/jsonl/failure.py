"""What the operating system refused, as errors of the store contract."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from kipu.errors import StoreFullError, StoreReadOnlyError, StoreUnavailableError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def translated(error: OSError, store: str) -> StoreUnavailableError | StoreReadOnlyError:
    """Return the store error that says what `error` said."""
    reason = f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, 'unknown')})"
    if error.errno in _FULL:
        return StoreFullError(store=store, reason=reason)
    if error.errno == errno.EROFS:
        return StoreReadOnlyError(store=store, reason=reason)
    return StoreUnavailableError(store=store, reason=reason)


@contextmanager
def translating(store: str) -> Iterator[None]:
    """Let no error of the operating system leave untranslated, but for the one that says "wait in a thread"."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        raise translated(error, store) from error
