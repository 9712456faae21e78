"""Whether to ask a model again after an error, and after how long: a decision, without a clock and without waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kipu.errors import ModelAnswerError, ModelError
from kipu.ports.model import ModelReply


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How patient a caller is.

    `max_tries` counts the calls of one step, the first included; `max_total_s` bounds all its waiting together. An answer
    that cannot be read, or is empty, is given up after `max_unreadable` failures: it is rarely the moment's fault.
    """

    max_tries: int = 6
    max_unreadable: int = 3
    first_delay_s: float = 1.0
    max_delay_s: float = 30.0
    max_total_s: float = 180.0


DEFAULT_LIMITS = RetryLimits()
# A thousand sessions that were all told "17 seconds" do not come back in the same instant.
ASKED_SPREAD = 0.1


def retry_delay_s(
    error: ModelError,
    attempt: int,
    *,
    random: Callable[[], float],
    limits: RetryLimits = DEFAULT_LIMITS,
    waited_s: float = 0.0,
    has_said: bool = False,
) -> float | None:
    """Return the seconds to wait before asking again, or None where asking again is no use or is no longer worth it.

    `attempt` is the number of calls of this step that have failed, 1 after the first; `random` gives numbers from 0 to below
    1; `waited_s` is what this step has waited already. With `has_said` the answer broke off when a person had seen something
    of it (`is_useful`): it is kept, and not asked for again behind their back. A provider's `retry_after_s` is never undercut;
    where it is longer than the limits allow, the answer is None rather than a wait that is known to be too short.
    """
    if not error.retryable or has_said or attempt >= _tries(error, limits):
        return None
    asked_s = error.data.get("retry_after_s")
    if asked_s is not None and asked_s > 0:
        delay_s = asked_s * (1 + ASKED_SPREAD * random())
        fits = waited_s + asked_s <= limits.max_total_s
    else:
        # Half is certain, so that the waits grow; half is chance, so that callers drift apart.
        full_s = min(limits.max_delay_s, limits.first_delay_s * 2.0 ** min(attempt - 1, 60))
        delay_s = full_s * (1 + random()) / 2
        fits = waited_s + delay_s <= limits.max_total_s
    return delay_s if fits else None


def _tries(error: ModelError, limits: RetryLimits) -> int:
    if isinstance(error, ModelAnswerError):
        return min(limits.max_unreadable, limits.max_tries)
    return limits.max_tries


def is_useful(reply: ModelReply) -> bool:
    """Return whether a reply, also a partial one, holds something to keep: visible text or a whole call."""
    return bool(reply.tool_calls or reply.text.strip())
