"""What a turn has used, what that costs, and when it has been enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from kipu.errors import ConfigurationError
from kipu.ports.model import ModelUsage

FREE_PROVIDERS = frozenset({"kipu-demo", "gguf"})  # they run in this process
LOCAL_SERVERS = frozenset({"ollama"})  # free where they run on this machine
HELPERS = "helpers"  # in a turn's usage: what its helpers used
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """How much one turn may use; None is no limit. Tokens are those of all its calls, shown and said together."""

    max_steps: int | None = 100
    max_tokens: int | None = None
    max_seconds: float | None = None
    max_cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """What a turn has used so far.

    `cost_usd` is the sum of what has a price, so with `unpriced` models it is a lower bound; `total_cost_usd` is None then.
    """

    steps: int = 0
    usage: ModelUsage = field(default_factory=ModelUsage)
    seconds: float = 0.0
    cost_usd: float = 0.0
    unpriced: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Return the tokens of all calls, shown and said."""
        return self.usage.input_tokens + self.usage.output_tokens

    @property
    def total_cost_usd(self) -> float | None:
        """Return the whole cost, or None where part of it is unknown."""
        return None if self.unpriced else self.cost_usd

    def with_step(self, usage: ModelUsage, *, model: str, cost_usd: float | None) -> Spent:
        """Return what is spent after one more model call; `cost_usd` None is unknown."""
        unpriced = self.unpriced
        if cost_usd is None and model not in unpriced:
            unpriced = (*unpriced, model)
        return Spent(
            steps=self.steps + 1,
            usage=add_usage(self.usage, usage),
            seconds=self.seconds,
            cost_usd=self.cost_usd + (cost_usd or 0.0),
            unpriced=unpriced,
        )

    def __add__(self, other: Spent) -> Spent:
        """Return what both have used together; the time is this one's, in which the other worked."""
        unpriced = (*self.unpriced, *(model for model in other.unpriced if model not in self.unpriced))
        usage = add_usage(self.usage, other.usage)
        return Spent(self.steps + other.steps, usage, self.seconds, self.cost_usd + other.cost_usd, unpriced)

    def with_seconds(self, seconds: float) -> Spent:
        """Return the same with the time that has passed since the turn began."""
        return Spent(self.steps, self.usage, seconds, self.cost_usd, self.unpriced)

    def as_json(self) -> dict[str, Any]:
        """Return it as an event keeps it: counts, and the cost with what has no price."""
        found: dict[str, Any] = {**self.usage.as_json(), "steps": self.steps}
        if not self.usage.measured:
            found["measured"] = False
        if self.unpriced:
            found["unpriced"] = list(self.unpriced)
        if self.cost_usd or not self.unpriced:
            found["cost_usd"] = round(self.cost_usd, 9)
        return found


def spent_from_json(kept: Mapping[str, Any] | None) -> Spent:
    """Return what an event says was used, with what a turn's helpers used; of foreign histories whatever can be read."""
    if not isinstance(kept, Mapping) or not kept:
        return Spent()
    steps, cost, unpriced = kept.get("steps"), kept.get("cost_usd"), kept.get("unpriced")
    own = Spent(
        steps=steps if isinstance(steps, int) and steps > 0 else 0,
        usage=usage_from_json(kept),
        cost_usd=float(cost) if isinstance(cost, int | float) and cost > 0 else 0.0,
        unpriced=tuple(str(name) for name in unpriced) if isinstance(unpriced, list) else (),
    )
    helpers = kept.get(HELPERS)
    return own + spent_from_json(helpers) if isinstance(helpers, Mapping) else own


def checked_limits(kept: Any, *, source: str) -> Mapping[str, Any]:
    """Return the limits that a configuration or a session writes, each by its name.

    Raises: ConfigurationError (an unknown name, or what is no number above 0: a limit that bounds nothing is not meant).
    """
    if not isinstance(kept, Mapping):
        raise ConfigurationError(reason=f"limits in {source} is a table, not {kept!r:.80}")
    known = {each.name for each in fields(TurnLimits)}
    for name, value in kept.items():
        if name not in known:
            raise ConfigurationError(reason=f"limits in {source} has no {name!r}; it has {', '.join(sorted(known))}")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            raise ConfigurationError(reason=f"limits.{name} in {source} is {value!r:.80}, not a number above 0")
    return kept


def narrowed_limits(default: TurnLimits, kept: Any, *, source: str = "the session's metadata") -> TurnLimits:
    """Return the limits, each one the stricter of the default and a session's own (a session only narrows).

    Raises: ConfigurationError.
    """
    if kept is None:
        return default
    own = checked_limits(kept, source=source)
    values: dict[str, Any] = {}
    for name in (each.name for each in fields(TurnLimits)):
        both = [value for value in (getattr(default, name), own.get(name)) if value is not None]
        values[name] = min(both, default=None)
    return TurnLimits(**values)


def add_usage(first: ModelUsage, second: ModelUsage) -> ModelUsage:
    """Return the sum; it is measured only where both are."""
    return ModelUsage(
        input_tokens=first.input_tokens + second.input_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
        cached_input_tokens=first.cached_input_tokens + second.cached_input_tokens,
        cache_write_tokens=first.cache_write_tokens + second.cache_write_tokens,
        reasoning_tokens=first.reasoning_tokens + second.reasoning_tokens,
        measured=first.measured and second.measured,
    )


def usage_from_json(kept: Mapping[str, Any] | None) -> ModelUsage:
    """Return the usage that an event keeps; of foreign histories whatever is a count."""

    def count(name: str) -> int:
        value = (kept or {}).get(name)
        return value if isinstance(value, int) and value > 0 else 0

    return ModelUsage(
        input_tokens=count("input_tokens"),
        output_tokens=count("output_tokens"),
        cached_input_tokens=count("cached_input_tokens"),
        cache_write_tokens=count("cache_write_tokens"),
        reasoning_tokens=count("reasoning_tokens"),
        # Whoever counted nothing did not measure: a call has a window at least.
        measured=bool(count("input_tokens") or count("output_tokens")) and (kept or {}).get("measured") is not False,
    )


def exceeded(spent: Spent, limits: TurnLimits) -> str | None:
    """Return which limit is reached, as a sentence for people and the log, or None while the turn may go on.

    Asked before a step: a turn at its limit takes no further one. Costs that nobody knows count as nothing here;
    `cost_notice` says so.
    """
    if limits.max_steps is not None and spent.steps >= limits.max_steps:
        return f"the turn took {spent.steps} steps, its limit is {limits.max_steps}"
    if limits.max_tokens is not None and spent.tokens >= limits.max_tokens:
        return f"the turn used {spent.tokens} tokens, its limit is {limits.max_tokens}"
    if limits.max_seconds is not None and spent.seconds >= limits.max_seconds:
        return f"the turn took {spent.seconds:.0f} s, its limit is {limits.max_seconds:g} s"
    if limits.max_cost_usd is not None and spent.cost_usd >= limits.max_cost_usd:
        return f"the turn cost ${spent.cost_usd:.4f}, its limit is ${limits.max_cost_usd:g}"
    return None


def remaining_s(spent: Spent, limits: TurnLimits) -> float | None:
    """Return how long the turn's next call may take, or None where nothing bounds it."""
    return None if limits.max_seconds is None else max(0.0, limits.max_seconds - spent.seconds)


def cost_notice(spent: Spent, limits: TurnLimits) -> str | None:
    """Return a warning where a limit on money cannot be kept, because a model's price is unknown."""
    if limits.max_cost_usd is None or not spent.unpriced:
        return None
    return f"no price is known for {', '.join(spent.unpriced)}: the limit of ${limits.max_cost_usd:g} cannot count it"


def cost_text(spent: Spent) -> str:
    """Return the cost in words: exact, at least, or unknown."""
    if not spent.unpriced:
        return f"${spent.cost_usd:.4f}"
    named = f"no price for {', '.join(spent.unpriced)}"
    return f"at least ${spent.cost_usd:.4f} ({named})" if spent.cost_usd else f"unknown ({named})"


def load_prices() -> bool:
    """Load the installed tables, which takes a quarter of a second; return whether there are any. For a thread, before turns."""
    try:
        import genai_prices
    except ImportError:
        return False
    return bool(genai_prices.__version__)


def price_usd(
    usage: ModelUsage, *, provider: str, model: str, endpoint: str | None = None, at_us: int | None = None
) -> float | None:
    """Return what a call cost in US dollars, by the tables that are installed; None where they do not know.

    Nothing is fetched. Models on the user's own machine cost nothing; of an endpoint that is none of the known providers'
    own, nobody knows the prices, whatever its models are called. `at_us` is the time of the call: prices change.
    """
    is_here = endpoint is not None and urlsplit(endpoint).hostname in LOOPBACK
    if provider in FREE_PROVIDERS or (provider in LOCAL_SERVERS and is_here):
        return 0.0
    if not usage.measured:
        return None
    try:
        import genai_prices
    except ImportError:
        return None
    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    time = _EPOCH + timedelta(microseconds=at_us) if at_us is not None else None
    try:
        if endpoint is None:
            found = genai_prices.calc_price(counted, model, provider_id=provider, genai_request_timestamp=time)
        else:
            found = genai_prices.calc_price(counted, model, provider_api_url=endpoint, genai_request_timestamp=time)
    except (LookupError, ValueError):
        return None
    cost_usd = float(found.total_price)
    return cost_usd if math.isfinite(cost_usd) else None
