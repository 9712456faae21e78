"""What a command's exit code says. The numbers are stable: scripts rely on them."""

from __future__ import annotations

from enum import IntEnum

from kipu import errors


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILURE = 1  # it could not be done, or it found damage
    USAGE = 2  # the words given cannot be used
    NOT_FOUND = 3  # no such store, session, message or blob for this principal
    BUSY = 4  # somebody else has it, or was first
    UNREADABLE = 5  # the store cannot be read or written
    DENIED = 6  # the session is shared in a role that may not do this
    TURN_FAILED = 10  # `kipu run`: the turn ended with an error, such as one of the model
    PARKED = 11  # `kipu run`: the turn waits for a person, who is told how to decide
    LIMIT = 12  # `kipu run`: the turn came to a limit on its steps, tokens, time or money
    STOPPED = 13  # `kipu run`: somebody else stopped the turn, or took the message back
    INTERRUPTED = 130  # Ctrl-C; `kipu run` has ended its turn in order
    HANDED_OVER = 143  # SIGTERM: `kipu run` and `kipu chat` leave their turn open, for whoever goes on with it


# The first class that matches decides.
_CODES: tuple[tuple[type[errors.KipuError], ExitCode], ...] = (
    (errors.AccessDeniedError, ExitCode.DENIED),
    (errors.SessionNotFoundError, ExitCode.NOT_FOUND),
    (errors.SessionErasedError, ExitCode.NOT_FOUND),
    (errors.BlobNotFoundError, ExitCode.NOT_FOUND),
    (errors.ApprovalNotFoundError, ExitCode.NOT_FOUND),
    (errors.GrantNotFoundError, ExitCode.NOT_FOUND),
    (errors.FactNotFoundError, ExitCode.NOT_FOUND),
    (errors.ProposalNotFoundError, ExitCode.NOT_FOUND),
    (errors.MessageRejectedError, ExitCode.BUSY),
    (errors.StoreNotFoundError, ExitCode.NOT_FOUND),
    (errors.SessionAmbiguousError, ExitCode.USAGE),
    (errors.ReplayMismatchError, ExitCode.FAILURE),
    (errors.SessionError, ExitCode.BUSY),
    (errors.ConcurrencyError, ExitCode.BUSY),
    (errors.InputError, ExitCode.USAGE),
    (errors.CopyMismatchError, ExitCode.FAILURE),
    (errors.StoreInUseError, ExitCode.BUSY),
    (errors.StoreConvertingError, ExitCode.BUSY),
    (errors.StoreBeingFilledError, ExitCode.BUSY),
    (errors.MoveRunningError, ExitCode.BUSY),
    (errors.KeysBusyError, ExitCode.BUSY),
    (errors.StoreError, ExitCode.UNREADABLE),
)


def exit_code_of(error: errors.KipuError) -> ExitCode:
    """Return the exit code that an error leads to."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILURE)
