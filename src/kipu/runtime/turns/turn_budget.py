"""What one turn may use, and what it has used so far, crashes and helpers included: the log says both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from kipu.errors import TurnLimitError
from kipu.ports.model import ModelClient, ModelUsage
from kipu.runtime.turns.spending import (
    HELPERS,
    Spent,
    TurnLimits,
    add_usage,
    exceeded,
    price_usd,
    remaining_s,
    spent_from_json,
    usage_from_json,
)
from kipu.runtime.turns.turn_run import TurnRun
from kipu.session.turn_story import TurnStory

MOST_VAIN_TRIES = 9  # a turn that kills its process each time is not taken up for ever
Budget: TypeAlias = tuple[Spent, TurnLimits]


class TurnBudget:
    """Add up a turn's model calls and those of its helpers, and say when it has been enough.

    `above` gives the budgets of the turns that this one works for, as they stand now: a helper spends theirs too.
    """

    def __init__(
        self,
        model: ModelClient,
        limits: TurnLimits,
        *,
        monotonic_s: Callable[[], float],
        above: Callable[[], Awaitable[Sequence[Budget]]] | None = None,
    ) -> None:
        described = model.describe()
        self._provider, self._model, self._endpoint = described.provider, described.model, described.endpoint
        self._limits = limits
        self._monotonic_s = monotonic_s
        self._began_s = monotonic_s()
        self._worked_s = 0.0  # before this process took the turn up
        self._above = above
        self._seen_above: Sequence[Budget] = ()
        self._sum = SpentSum(self._endpoint)

    def spent(self, run: TurnRun) -> Spent:
        """Return what the turn has used, its helpers included."""
        self._worked_s = run.story.worked_s
        own, helpers = self._sum.of(run.story)
        return (own + helpers).with_seconds(self._seconds())

    def usage(self, run: TurnRun) -> dict[str, Any]:
        """Return what the turn has used as its end keeps it: its own, and that of its helpers apart."""
        own, helpers = self._sum.of(run.story)
        return {**own.as_json(), **({HELPERS: helpers.as_json()} if helpers.steps else {})}

    def remaining_s(self) -> float | None:
        """Return how long a call may take that has no time of its own; None where nothing bounds it."""
        return remaining_s(Spent(seconds=self._seconds()), self._limits)

    async def check(self, run: TurnRun) -> None:
        """Raise TurnStoppedError or TurnLimitError when the turn is to end."""
        run.control.check()
        if run.story.resumed_without_step > MOST_VAIN_TRIES:
            raise TurnLimitError(
                reason=f"the turn was taken up {run.story.resumed_without_step} times and never got anywhere; it is given up"
            )
        if self._above is not None:
            self._seen_above = await self._above()
        self._raise_reached(self.spent(run))

    def check_answer(self, run: TurnRun, said_tokens: int) -> None:
        """Raise TurnLimitError when an answer that still comes has gone beyond what is left; its tokens are estimated."""
        usage, cost_usd = ModelUsage(output_tokens=said_tokens), 0.0
        if any(limits.max_cost_usd is not None for limits in (self._limits, *(above for _, above in self._seen_above))):
            cost_usd = price_usd(usage, provider=self._provider, model=self._model, endpoint=self._endpoint) or 0.0
        self._raise_reached(self.spent(run), more=usage, more_usd=cost_usd)

    def _raise_reached(self, spent: Spent, *, more: ModelUsage | None = None, more_usd: float = 0.0) -> None:
        for number, (before, limits) in enumerate(((spent, self._limits), *self._seen_above)):
            used = before
            if more is not None:  # a step that has begun is not held against the limit of steps
                used = replace(
                    before, steps=0, usage=add_usage(before.usage, more), cost_usd=before.cost_usd + more_usd
                )
            reached = exceeded(used, limits)
            if reached is not None:
                raise TurnLimitError(reason=f"{reached} (of the turn that it works for)" if number else reached)

    def _seconds(self) -> float:
        return self._worked_s + self._monotonic_s() - self._began_s


class SpentSum:
    """The sum over one turn's story, each answer and result counted once."""

    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = endpoint
        self._own, self._helpers = Spent(), Spent()
        self._answers = self._calls = 0
        self._unpriced: set[tuple[str, str]] = set()  # models that the tables do not know: looked up once

    def of(self, story: TurnStory) -> tuple[Spent, Spent]:
        """Return what the turn itself has used, and what its calls have."""
        for answer in story.answered[self._answers :]:
            usage = usage_from_json(answer.usage)
            cost_usd = self._price(usage, provider=answer.provider, model=answer.model)
            self._own = self._own.with_step(usage, model=answer.model, cost_usd=cost_usd)
        for used in story.spent_by_calls[self._calls :]:
            self._helpers += spent_from_json(used)
        self._answers, self._calls = len(story.answered), len(story.spent_by_calls)
        return self._own, self._helpers

    def _price(self, usage: ModelUsage, *, provider: str, model: str) -> float | None:
        if (provider, model) in self._unpriced:
            return None
        cost_usd = price_usd(usage, provider=provider, model=model, endpoint=self._endpoint)
        if cost_usd is None and usage.measured:
            self._unpriced.add((provider, model))
        return cost_usd
