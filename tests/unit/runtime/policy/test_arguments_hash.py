"""The hash that binds an approval to what was shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.events.normalise import normalise
from kipu.runtime.policy.arguments_hash import arguments_hash

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_hash_is_the_same_for_the_same_arguments_in_any_order_and_after_storing(arguments: dict[str, Any]) -> None:
    """Neither the order of names nor the way through the log changes the hash (C15)."""
    first = arguments_hash("shell", arguments)
    assert first == arguments_hash("shell", dict(reversed(arguments.items())))
    stored, _ = normalise(arguments)
    assert first == arguments_hash("shell", json.loads(json.dumps(stored)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": {"b": 1}}, {"a.b": 1}),
        ({"a": "x "}, {"a": "x"}),
        ({"a": "é"}, {"a": "e\u0301"}),
        ({"a": "rm"}, {"a": "ｒｍ"}),
    ],
)
def test_hash_differs_for_other_arguments(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Whatever changes what a call does changes its hash (C15)."""
    assert arguments_hash("shell", one) != arguments_hash("shell", other)
    assert arguments_hash("shell", one) != arguments_hash("shell2", one)


def test_hash_is_fixed() -> None:
    """The form is stable: approvals of an older Kipu stay valid (C15)."""
    assert arguments_hash("shell", {"command": "ls", "timeout_s": 5}) == (
        "c78322c9eab627271f25857da405f0cf3dcc9781940e7b6f42abdbf6bda9cb78"
    )
