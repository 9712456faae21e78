"""What one turn may use, and what it has used so far, crashes included: the log says both."""

from __future__ import annotations

from collections.abc import Callable

from kipu.errors import TurnLimitError
from kipu.ports.model import ModelClient
from kipu.runtime.turns.spending import Spent, TurnLimits, exceeded, price_usd, remaining_s, usage_from_json
from kipu.runtime.turns.turn_run import TurnRun

MOST_VAIN_TRIES = 9  # a turn that kills its process each time is not taken up for ever


class TurnBudget:
    """Add up a turn's model calls and say when it has been enough."""

    def __init__(self, model: ModelClient, limits: TurnLimits, *, monotonic_s: Callable[[], float]) -> None:
        self._endpoint = model.describe().endpoint
        self._limits = limits
        self._monotonic_s = monotonic_s
        self._began_s = monotonic_s()
        self._counted = 0
        self._spent = Spent()

    def spent(self, run: TurnRun) -> Spent:
        """Return what the turn has used."""
        for answer in run.story.answered[self._counted :]:
            usage = usage_from_json(answer.usage)
            cost_usd = price_usd(usage, provider=answer.provider, model=answer.model, endpoint=self._endpoint)
            self._spent = self._spent.with_step(usage, model=answer.model, cost_usd=cost_usd)
            self._counted += 1
        return self._spent.with_seconds(self._monotonic_s() - self._began_s)

    def remaining_s(self) -> float | None:
        """Return how long a call may take that has no time of its own; None where nothing bounds it."""
        return remaining_s(Spent(seconds=self._monotonic_s() - self._began_s), self._limits)

    def check(self, run: TurnRun) -> None:
        """Raise TurnStoppedError or TurnLimitError when the turn is to end."""
        run.control.check()
        if run.story.resumed_in_vain > MOST_VAIN_TRIES:
            raise TurnLimitError(
                reason=f"the turn was taken up {run.story.resumed_in_vain} times and never got anywhere; it is given up"
            )
        reached = exceeded(self.spent(run), self._limits)
        if reached is not None:
            raise TurnLimitError(reason=reached)
