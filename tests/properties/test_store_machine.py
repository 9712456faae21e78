"""Any order of calls: each store against an independent model of plain lists."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from kipu.testing.conformance.runner import places_like
from kipu.testing.stateful import machine_for

STORES = ["memory://", "sqlite:///x", "jsonl:///x", "jsonl:///x?segment_bytes=4096"]


def run_machine(url: str, *, examples: int, steps: int) -> None:
    """Run the state machine over fresh places of the URL's kind."""
    calm = list(HealthCheck)
    run_state_machine_as_test(
        machine_for(places_like(url)),
        settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=calm),
    )


@pytest.mark.parametrize("url", STORES)
def test_store_agrees_with_the_model(url: str) -> None:
    """Whatever calls are made in whatever order, a store answers as the plain model does (C1-C3, A26, A50, B21, C25)."""
    run_machine(url, examples=12, steps=25)


@pytest.mark.long
@pytest.mark.parametrize("url", STORES)
def test_store_agrees_with_the_model_in_long_runs(url: str) -> None:
    """The same over many more and longer orders of calls (C1-C3, A26, A50, C25)."""
    run_machine(url, examples=400, steps=80)
