"""What the operating system refused, as errors of the store contract."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

from kipu.errors import StoreFullError, StoreReadOnlyError, StoreUnavailableError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def translated(error: OSError, store: str) -> StoreUnavailableError | StoreReadOnlyError:
    """Return the store error that says what `error` said."""
    reason = f"{_place(error)}{error.strerror or error} ({errno.errorcode.get(error.errno or 0, 'unknown')})"
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


def _place(error: OSError) -> str:
    """Return where it was, as far as the system says: the file with its folder, which a session's id names."""
    return "/".join(PurePath(error.filename).parts[-2:]) + ": " if isinstance(error.filename, str) else ""
