"""Which model errors are worth another try, and after how long."""

from __future__ import annotations

import random

import pytest

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
from kipu.ports.model import ModelReply
from kipu.runtime.models.retrying import RetryLimits, is_useful, retry_delay_s

PASSING: list[type[ModelError]] = [
    ModelRateLimitedError,
    ModelUnavailableError,
    ModelUnreachableError,
    ModelStreamCutError,
]
LASTING: list[type[ModelError]] = [
    ModelRefusedError,
    ModelContextOverflowError,
    ModelAuthError,
    ModelQuotaError,
    ModelNotFoundError,
]


def error_of(kind: type[ModelError], *, retry_after_s: float | None = None) -> ModelError:
    return kind(model="m", status=0, reason="r", endpoint="e", key_variable="K", retry_after_s=retry_after_s)


def low() -> float:
    return 0.0


def high() -> float:
    return 1.0 - 2**-53


@pytest.mark.parametrize("kind", PASSING)
def test_retry_waits_longer_each_time_and_ends(kind: type[ModelError]) -> None:
    """Passing faults are tried again after growing waits, a bounded number of times (A72)."""
    limits = RetryLimits(max_tries=5, first_delay_s=1, max_delay_s=4)
    error = error_of(kind)
    shortest = [retry_delay_s(error, n, random=low, limits=limits) for n in range(1, 6)]
    longest = [retry_delay_s(error, n, random=high, limits=limits) for n in range(1, 6)]
    assert shortest == [0.5, 1, 2, 2, None]
    assert [None if delay is None else round(delay, 6) for delay in longest] == [1, 2, 4, 4, None]


@pytest.mark.parametrize("kind", LASTING)
def test_retry_is_refused_for_what_was_refused(kind: type[ModelError]) -> None:
    """Sending a refused request again changes nothing, so nobody does, whatever the provider says of waiting."""
    assert retry_delay_s(error_of(kind), 1, random=low) is None
    assert retry_delay_s(error_of(kind, retry_after_s=1), 1, random=low) is None


def test_retry_waits_as_long_as_the_provider_asks() -> None:
    """The wait is never shorter than asked for, and spread a little so that not all come back at once."""
    error = error_of(ModelRateLimitedError, retry_after_s=17)
    assert retry_delay_s(error, 1, random=low) == 17
    assert 17 < (retry_delay_s(error, 1, random=high) or 0) < 19
    assert retry_delay_s(error_of(ModelRateLimitedError, retry_after_s=0), 1, random=low) == 0.5


def test_retry_gives_up_where_the_wait_would_be_too_long() -> None:
    """A wait that exceeds what is left of the total is not begun, neither the provider's nor our own."""
    limits = RetryLimits(max_total_s=60)
    hour = error_of(ModelRateLimitedError, retry_after_s=3600)
    assert retry_delay_s(hour, 1, random=low, limits=limits) is None
    error = error_of(ModelUnavailableError)
    assert retry_delay_s(error, 2, random=low, limits=limits, waited_s=59) == 1
    assert retry_delay_s(error, 2, random=low, limits=limits, waited_s=59.5) is None


def test_retry_total_is_bounded_whatever_chance_says() -> None:
    """Over a thousand runs no step waits longer than its total allows."""
    chance, limits = random.Random(3), RetryLimits(max_tries=100, max_total_s=90)
    for _ in range(1000):
        waited_s, tries = 0.0, 1
        while (
            delay_s := retry_delay_s(
                error_of(ModelUnavailableError), tries, random=chance.random, limits=limits, waited_s=waited_s
            )
        ) is not None:
            waited_s, tries = waited_s + delay_s, tries + 1
        assert 45 < waited_s <= 90


def test_retry_of_an_answer_that_people_saw_is_left_to_them() -> None:
    """A stream that broke off after visible text is kept as interrupted and not asked for again in secret (C5)."""
    error = error_of(ModelStreamCutError)
    assert retry_delay_s(error, 1, random=low, has_said=True) is None
    assert retry_delay_s(error, 1, random=low, has_said=False) == 0.5


def test_retry_of_an_unreadable_answer_ends_early() -> None:
    """An endpoint that speaks another language will speak it again, so fewer tries are enough."""
    error = error_of(ModelAnswerError)
    assert [retry_delay_s(error, tries, random=low) for tries in (1, 2, 3)] == [0.5, 1, None]
    few = RetryLimits(max_tries=2)
    assert retry_delay_s(error, 2, random=low, limits=few) is None


def test_retry_knows_what_is_worth_keeping_of_a_reply() -> None:
    """Text and whole calls are; blank text and reasoning alone are not."""
    assert not is_useful(ModelReply((), "p", "m", text=" \n", reasoning="hm"))
    assert is_useful(ModelReply((), "p", "m", text="a"))
    assert is_useful(ModelReply((), "p", "m", tool_calls=({"type": "tool_call"},)))
