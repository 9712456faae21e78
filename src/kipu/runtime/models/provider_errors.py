"""What a provider's failure means for the session, in Kipu's own errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kipu.errors import (
    ModelAnswerError,
    ModelAuthError,
    ModelContextOverflowError,
    ModelError,
    ModelNotFoundError,
    ModelQuotaError,
    ModelRateLimitedError,
    ModelRefusedError,
    ModelStreamCutError,
    ModelUnavailableError,
    ModelUnreachableError,
)

Category = Literal[
    "context", "auth", "not_found", "refused", "quota", "rate_limit", "unavailable", "unreachable", "answer", "status"
]

ERRORS: Mapping[Category, type[ModelError]] = {
    "context": ModelContextOverflowError,
    "auth": ModelAuthError,
    "not_found": ModelNotFoundError,
    "refused": ModelRefusedError,
    "quota": ModelQuotaError,
    "rate_limit": ModelRateLimitedError,
    "unavailable": ModelUnavailableError,
    "unreachable": ModelUnreachableError,
    "answer": ModelAnswerError,
}
MAX_REASON_CHARS = 500
TOO_LARGE = 413
# Request timeout, conflict, too early: the request was fine, its moment was not.
PASSING_STATUS = frozenset({408, 409, 425})


@dataclass(frozen=True, slots=True)
class Failure:
    """Hold what is known of a failed call."""

    category: Category
    text: str
    body: Any = None
    status: int | None = None
    retry_after_s: float | None = None
    answering: bool = False


def translate(
    failure: Failure, *, model: str, endpoint: str | None, key_variable: str, secret: str | None
) -> ModelError:
    """Return the error to raise. The key never appears in it, even when the provider repeats it."""
    kind = _kind(failure)
    return kind(
        model=model,
        endpoint=endpoint or "the provider",
        key_variable=key_variable,
        status=failure.status,
        reason=_reason(failure, secret),
        retry_after_s=failure.retry_after_s,
    )


def _kind(failure: Failure) -> type[ModelError]:
    if failure.category == "unreachable" and failure.answering:
        return ModelStreamCutError
    status = failure.status or 0
    if failure.category in {"status", "refused"}:
        if status == TOO_LARGE:
            return ModelContextOverflowError
        return ModelUnavailableError if status in PASSING_STATUS or status >= 500 else ModelRefusedError
    return ERRORS[failure.category]


def _reason(failure: Failure, secret: str | None) -> str:
    text = " ".join((_message(failure.body) or failure.text or failure.category).split()).rstrip(" .")
    if secret and len(secret) >= 4:
        text = text.replace(secret, "[key]")
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…"


def _message(body: Any) -> str | None:
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping):
            inner = inner.get("message")
        return inner if isinstance(inner, str) else None
    return body if isinstance(body, str) else None
