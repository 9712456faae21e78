"""Copies of messages share nothing that can be changed (B34)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kipu.context.copying import copies, nested_in

_ATOMS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3))
_JSON = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), inner, max_size=4)
    ),
    max_leaves=12,
)
_MESSAGES = st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), _JSON), max_size=4)


def _changeable(value: Any) -> Iterator[int]:
    if isinstance(value, dict | list):
        yield id(value)
        for item in value.values() if isinstance(value, dict) else value:
            yield from _changeable(item)


@given(_MESSAGES)
def test_copies_of_any_message_are_equal_and_share_nothing(messages: list[dict[str, Any]]) -> None:
    """However a message is nested, its copy is equal, shares no object or list with it, and leaves it as it was (B34)."""
    before = copy.deepcopy(messages)
    nested = [entry for index, message in enumerate(messages) for entry in nested_in(message, index)]
    copied = copies(messages, nested)
    assert copied == messages == before
    assert set(_changeable(copied)).isdisjoint(_changeable(messages))
    assert set(_changeable(copies(messages, nested))).isdisjoint(_changeable(copied))
