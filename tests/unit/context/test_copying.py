"""Copies of messages share nothing that can be changed (B34)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kipu.context.copying import KeptMessages, copy_of

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
    kept = KeptMessages()
    kept.extend(messages)
    copied, again, alone = kept.copies(), kept.copies(), copy_of(messages)
    assert copied == again == alone == messages == before
    assert set(_changeable(copied)).isdisjoint(_changeable(messages))
    assert set(_changeable(again)).isdisjoint([*_changeable(copied), *_changeable(messages)])
    assert set(_changeable(alone)).isdisjoint(_changeable(messages))


@given(_MESSAGES, _MESSAGES, st.data())
def test_what_is_forgotten_is_copied_no_more_and_the_rest_stays_in_order(
    messages: list[dict[str, Any]], more: list[dict[str, Any]], data: st.DataObject
) -> None:
    """A window that jumped is copied as what is left of it, and grows on (B33, B34)."""
    kept = KeptMessages()
    kept.extend(messages)
    start = data.draw(st.integers(0, len(messages)))
    stop = data.draw(st.integers(start, len(messages)))
    kept.forget(start, stop)
    kept.extend(more)
    left = [*messages[:start], *messages[stop:], *more]
    assert len(kept) == len(left)
    assert kept.copies() == left
