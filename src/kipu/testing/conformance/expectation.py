"""What a requirement says when it does not hold, in words that need no test runner."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

_SHOWN_CHARACTERS = 400


class UnmetError(AssertionError):
    """The store does not do what the contract says."""


class NotSupportedError(Exception):
    """The requirement does not apply to this store, for the reason given."""


def expect(condition: object, what: str) -> None:
    """Say `what` must hold."""
    if not condition:
        raise UnmetError(what)


def expect_equal(actual: Any, expected: Any, *, what: str) -> None:
    """Say that `actual` must be `expected`, and show both shortly where it is not."""
    if actual != expected:
        raise UnmetError(f"{what}: expected {_short(expected)}, got {_short(actual)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"


class expect_error:  # noqa: N801
    """Say that the block must raise one of `kinds`; the error is kept in `error`."""

    def __init__(self, *kinds: type[Exception], what: str = "the call") -> None:
        self._kinds = kinds
        self._what = what
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        names = " or ".join(kind.__name__ for kind in self._kinds)
        if error is None:
            raise UnmetError(f"{self._what} must raise {names}, and did not")
        if isinstance(error, self._kinds):
            self.error = error
            return True
        if isinstance(error, Exception) and not isinstance(error, AssertionError):
            raise UnmetError(f"{self._what} must raise {names}, and raised {type(error).__name__}: {error}") from error
        return False
