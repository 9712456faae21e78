"""Whatever happened, the window is one that every provider accepts (A2, C7, C8)."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kipu.context.boundary import WINDOW_NOTE
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.render import build_window, fit
from kipu.context.rendering import SHAPES, Rendering
from kipu.context.window import Window
from kipu.events.boundary import CompactionEvent, NoteEvent
from kipu.events.conversation import InstructionEvent
from kipu.testing.validators import validate
from tests.properties.window_logs import BLOBS, logs, policies

TARGETS = sorted(SHAPES)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def _complaints(rendering: Rendering, policy: WindowPolicy) -> list[Any]:
    if all(message.get("role") == "system" for message in rendering.messages):
        return []  # nothing was said yet
    return validate(rendering.target, rendering.payload, may_end_with_model=policy.ladder == "normal")


def _render(items: list[Item], *, policy: WindowPolicy, start_seq: int, target: str) -> Rendering:
    return build_window(items, policy=policy, start_seq=start_seq, target=target, provider="p", model="m", media=BLOBS)


def _check_all(items: list[Item], policy: WindowPolicy, start_seq: int) -> None:
    before = copy.deepcopy(items)
    for target in TARGETS:
        rendering = _render(items, policy=policy, start_seq=start_seq, target=target)
        assert _complaints(rendering, policy) == [], rendering.payload
        assert _render(items, policy=policy, start_seq=start_seq, target=target) == rendering
    assert items == before


@given(items=logs, policy=policies, start_seq=st.sampled_from([0, 0, 5, 20]))
@settings(max_examples=250, deadline=None, suppress_health_check=SLOW)
def test_windows_of_any_log_are_accepted_by_every_target(
    items: list[Item], policy: WindowPolicy, start_seq: int
) -> None:
    """Any events under any budget make windows that the validators accept, the same each time, the log untouched (C7, C8)."""
    _check_all(items, policy, start_seq)


@pytest.mark.long
@given(items=logs, policy=policies, start_seq=st.sampled_from([0, 0, 5, 20]))
@settings(max_examples=100_000, deadline=None, suppress_health_check=SLOW)
def test_windows_of_a_hundred_thousand_logs_are_accepted(
    items: list[Item], policy: WindowPolicy, start_seq: int
) -> None:
    """A hundred thousand random logs, cuts, budgets and targets make no window that a validator refuses (C7)."""
    _check_all(items, policy, start_seq)


@given(items=logs, policy=policies, cuts=st.lists(st.integers(0, 40), max_size=4), target=st.sampled_from(TARGETS))
@settings(max_examples=250, deadline=None, suppress_health_check=SLOW)
def test_windows_grown_in_pieces_equal_those_built_at_once(
    items: list[Item], policy: WindowPolicy, cuts: list[int], target: str
) -> None:
    """A window does not depend on how its events were divided among calls, nor on having been read before (B33, C6)."""
    window = Window(policy)
    bounds = [0, *sorted(min(cut, len(items)) for cut in cuts), len(items)]
    for low, high in pairwise(bounds):
        window.extend(items[low:high])
        window.messages(target, provider="p", model="m")
    assume(window.reload_from is None)  # a rewind to before a jump: whoever holds the window builds it anew
    fit(window)
    grown = window.messages(target, provider="p", model="m")
    assert grown == build_window(items, policy=policy, target=target, provider="p", model="m")


@given(items=logs, order=st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
def test_windows_do_not_depend_on_the_order_of_delivery(items: list[Item], order: Any) -> None:
    """Events that are handed over out of order make the same window, as long as no jump was recorded among them (B33)."""
    items = [item for item in items if item.event.event_type not in {"note", "model_call"}]
    shuffled = list(items)
    order.shuffle(shuffled)
    window = Window(WindowPolicy())
    for item in shuffled:
        window.extend([item])
    assert window.messages() == build_window_without_fit(items)


def build_window_without_fit(items: list[Item]) -> Rendering:
    window = Window(WindowPolicy())
    window.extend(items)
    return window.messages()


@given(items=logs, policy=policies)
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
def test_windows_start_again_as_they_were(items: list[Item], policy: WindowPolicy) -> None:
    """A window opened at the recorded start, with what it says is missing, equals the one that jumped there (B33)."""
    items = [item for item in items if item.event.event_type not in {"note", "rewind", "event_pinned"}]
    items = [item for item in items if not getattr(item.event, "pinned", False)]
    live = Window(policy)
    live.extend(items)
    fit(live)
    note = NoteEvent(kind=WINDOW_NOTE, data=live.jump_record(live.start_seq))
    items.append(Item(live.last_seq + 1, note, 0))
    live.extend(items[-1:])
    newest = {
        kind: [item for item in items if type(item.event) is kind] for kind in (InstructionEvent, CompactionEvent)
    }
    summaries = [item for item in newest[CompactionEvent] if getattr(item.event, "summary", "").strip()]
    again = Window(
        policy,
        start_seq=live.start_seq,
        instruction=next(iter(newest[InstructionEvent][-1:]), None),
        summary=next(iter(summaries[-1:]), None),
    )
    again.extend(item for item in items if item.seq >= live.start_seq)
    again.extend([item for item in items if item.seq in again.missing])
    assert again.messages().messages == live.messages().messages
