"""Usage, cost and limits of a turn."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kipu.ports.model import ModelUsage
from kipu.runtime.turns.spending import (
    Spent,
    TurnLimits,
    add_usage,
    cost_notice,
    cost_text,
    exceeded,
    load_prices,
    price_usd,
    remaining_s,
    usage_from_json,
)

YEAR_2026_US = 1_767_225_600_000_000


def test_spending_adds_up_all_counts_of_all_calls() -> None:
    """The sum has every kind of token, and is measured only where each part is."""
    first, second = ModelUsage(10, 5, 3, 2, 1), ModelUsage(1, 2, 3, 4, 5, measured=False)
    assert add_usage(first, second) == ModelUsage(11, 7, 6, 6, 6, measured=False)
    assert usage_from_json(add_usage(first, first).as_json()) == ModelUsage(20, 10, 6, 4, 2)
    assert usage_from_json({"input_tokens": "x", "output_tokens": -1}) == ModelUsage(measured=False)
    assert usage_from_json(ModelUsage().as_json()) == ModelUsage(measured=False)
    assert not usage_from_json(None).measured


def test_spending_cost_is_known_unknown_or_at_least() -> None:
    """A model without a price makes the total unknown, and what is known stays said."""
    spent = Spent().with_step(ModelUsage(10, 5), model="a", cost_usd=0.25)
    assert (spent.total_cost_usd, cost_text(spent)) == (0.25, "$0.2500")
    spent = spent.with_step(ModelUsage(1, 1), model="b", cost_usd=None).with_step(
        ModelUsage(1, 1), model="b", cost_usd=None
    )
    assert spent.total_cost_usd is None
    assert cost_text(spent) == "at least $0.2500 (no price for b)"
    assert cost_text(Spent().with_step(ModelUsage(1, 1), model="b", cost_usd=None)) == "unknown (no price for b)"
    assert spent.as_json() == {
        "input_tokens": 12,
        "output_tokens": 7,
        "steps": 3,
        "unpriced": ["b"],
        "cost_usd": 0.25,
    }
    assert Spent().with_step(ModelUsage(2, 1), model="a", cost_usd=0.0).as_json()["cost_usd"] == 0


@pytest.mark.parametrize(
    ("limits", "reached", "below"),
    [
        (TurnLimits(max_steps=2), Spent(steps=2), Spent(steps=1)),
        (TurnLimits(max_tokens=10), Spent(usage=ModelUsage(6, 4)), Spent(usage=ModelUsage(6, 3))),
        (TurnLimits(max_seconds=1.5), Spent(seconds=1.5), Spent(seconds=1.4)),
        (TurnLimits(max_cost_usd=0.5), Spent(cost_usd=0.5, unpriced=("x",)), Spent(cost_usd=0.49)),
    ],
)
def test_spending_limit_is_reached_at_its_number(limits: TurnLimits, reached: Spent, below: Spent) -> None:
    """Each limit ends a turn at its number and not before, and is named (A72)."""
    told = exceeded(reached, limits)
    assert told is not None
    assert "limit is" in told
    assert exceeded(below, limits) is None
    everything = Spent(10**9, ModelUsage(10**9, 10**9), 1e9, 1e9)
    assert exceeded(everything, TurnLimits(max_steps=None)) is None


def test_spending_says_where_a_money_limit_cannot_be_kept() -> None:
    """A limit in dollars on a model without a price is told, never silently no limit."""
    spent = Spent().with_step(ModelUsage(1, 1), model="own:model", cost_usd=None)
    assert "own:model" in (cost_notice(spent, TurnLimits(max_cost_usd=1)) or "")
    assert cost_notice(spent, TurnLimits()) is None
    assert cost_notice(Spent(), TurnLimits(max_cost_usd=1)) is None


def test_spending_knows_the_time_that_is_left() -> None:
    """The next call gets what is left of the turn's time, and never less than nothing."""
    limits = TurnLimits(max_seconds=10)
    assert remaining_s(Spent().with_seconds(4), limits) == 6
    assert remaining_s(Spent(seconds=12), limits) == 0
    assert remaining_s(Spent(seconds=12), TurnLimits()) is None


def test_price_counts_cached_tokens_as_part_of_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known models are priced by the installed tables, without the network; cached tokens are cheaper, not extra."""

    def no_network(*_args: Any, **_more: Any) -> None:
        raise AssertionError("prices were fetched")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    assert load_prices()
    plain = price_usd(ModelUsage(1000, 10), provider="openai", model="gpt-4o", at_us=YEAR_2026_US)
    cached = price_usd(ModelUsage(1000, 10, 500), provider="openai", model="gpt-4o", at_us=YEAR_2026_US)
    assert plain == pytest.approx(1000 * 2.5e-6 + 10 * 10e-6)
    assert cached == pytest.approx(500 * 2.5e-6 + 500 * 1.25e-6 + 10 * 10e-6)
    own = price_usd(ModelUsage(1000, 10), provider="openai", model="gpt-4o", endpoint="https://api.openai.com/v1/")
    assert own == plain


@pytest.mark.parametrize(
    ("provider", "model", "endpoint"),
    [
        ("openai", "a-model-that-nobody-sells", None),
        ("a-provider-that-nobody-knows", "gpt-4o", None),
        ("openai", "gpt-4o", "http://127.0.0.1:8000/v1"),
        ("openai", "gpt-4o", "https://models.example.com/v1"),
        ("ollama", "llama3.2", "https://ollama.com/v1"),
    ],
)
def test_price_is_unknown_where_nobody_knows_it(provider: str, model: str, endpoint: str | None) -> None:
    """An unknown model, provider or endpoint has no price rather than a made-up one."""
    assert price_usd(ModelUsage(10, 10), provider=provider, model=model, endpoint=endpoint) is None


def test_price_of_what_was_not_measured_is_unknown() -> None:
    """A cut call's tokens are a lower bound, and nothing is computed from them."""
    assert price_usd(ModelUsage(10, 10, measured=False), provider="openai", model="gpt-4o") is None


def test_price_of_the_own_machine_is_nothing() -> None:
    """What runs here costs nothing."""
    unmeasured = ModelUsage(10, 10, measured=False)
    assert price_usd(unmeasured, provider="kipu-demo", model="rules-1") == 0
    assert price_usd(unmeasured, provider="gguf", model="x") == 0
    assert price_usd(unmeasured, provider="ollama", model="llama3.2", endpoint="http://127.0.0.1:11434/v1") == 0
