"""Messages that are shared with a window: the same as copies, and never changed by what comes after."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings

from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.render import fit
from kipu.context.rendering import SHAPES
from kipu.context.window import Window
from tests.properties.window_logs import logs, policies


@pytest.mark.parametrize("target", SHAPES)
@settings(max_examples=60, deadline=None)
@given(log=logs, policy=policies)
def test_shared_messages_equal_copies_and_never_change(target: str, log: list[Item], policy: WindowPolicy) -> None:
    """What a model step was shown stays as it was while the window grows, event by event (B34, C6, C9)."""
    window = Window(policy)
    shown: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = []
    for item in log:
        window.extend([item])
        fit(window)
        shared = window.messages(target, shared=True).messages
        assert shared == window.messages(target).messages
        shown.append((shared, copy.deepcopy(shared)))
    for shared, then in shown:
        assert shared == then
