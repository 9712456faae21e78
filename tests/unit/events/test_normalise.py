"""What normalisation changes, and what it leaves alone."""

from __future__ import annotations

import dataclasses
import enum
import math
from datetime import UTC, date, datetime, time
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from kipu.events.normalise import MAX_DEPTH, normalise


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: Any


class Answer(BaseModel):
    right: bool
    why: str | None = None


class Text(str):
    __slots__ = ()


class Half(float):
    __slots__ = ()


class Rude:
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


@pytest.mark.parametrize(
    ("value", "plain", "kinds"),
    [
        ("a\ud83db", "a\ufffdb", ["surrogate"]),
        ("\ud83d\ude00", "😀", ["surrogate"]),
        ("a\0b", "a␀b", ["nul"]),
        ("é\0", "é␀", ["nul"]),
        (Text("told"), "told", []),
        (Half(0.5), 0.5, []),
        (MappingProxyType({"a": {1}}), {"a": [1]}, []),
        (Answer(right=True), {"right": True}, []),
        (date(2026, 1, 2), "2026-01-02", []),
        (time(1, 2), "01:02:00", []),
        (Colour, "<enum 'Colour'>", ["object"]),
        (Point, f"<class '{Point.__module__}.Point'>", ["object"]),
        (math.nan, "nan", ["number"]),
        (-math.inf, "-inf", ["number"]),
        (2**63 - 1, 2**63 - 1, []),
        (2**63, "0x8000000000000000", ["integer"]),
        ({1: "x", None: "y"}, {"1": "x", "None": "y"}, ["key", "key"]),
        ((1, 2), [1, 2], []),
        ({3, 1, 2}, [1, 2, 3], []),
        (b"\x00\xff", {"base64": "AP8="}, []),
        (Colour.RED, "red", []),
        (Point(1, {2}), {"x": 1, "y": [2]}, []),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00", []),
        (PurePosixPath("/a/b"), "/a/b", ["object"]),
        (ValueError("bad"), "bad", ["object"]),
    ],
)
def test_normalise_makes_plain_json_and_says_what_it_changed(value: Any, plain: Any, kinds: list[str]) -> None:
    """Every kind of value becomes JSON that all stores keep alike, with lossy changes listed (B16, EV-10, EV-11)."""
    result, changes = normalise({"v": value})
    assert result == {"v": plain}
    assert [change.kind for change in changes] == kinds
    assert all(change.path.startswith("/v") for change in changes)


def test_normalise_survives_objects_that_refuse_to_be_shown() -> None:
    """Even an object whose text raises is stored as something (B16)."""
    result, changes = normalise([Rude()])
    assert "Rude" in result[0]
    assert changes[0].kind == "object"


def test_normalise_cuts_endless_nesting() -> None:
    """A structure that contains itself ends at the depth limit, and that is said (B16, EV-10)."""
    loop: list[Any] = []
    loop.append(loop)
    result, changes = normalise(loop)
    assert orjson.dumps(result)
    assert [change.kind for change in changes] == ["depth"]
    deep: Any = "end"
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    assert normalise(deep) == (deep, [])


def test_normalise_keeps_names_that_would_collide() -> None:
    """Two names that become the same text both stay (B16)."""
    result, _ = normalise({1: "number", "1": "text"})
    assert sorted(result.values()) == ["number", "text"]


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab\u00e9\u4e2d"), inner, max_size=4),
    max_leaves=20,
)


@given(PLAIN)
def test_normalise_leaves_json_alone(value: Any) -> None:
    """Plain JSON comes back as the same object, unchanged and unremarked (A26, EV-10)."""
    result, changes = normalise(value)
    assert result is value
    assert changes == []


ANYTHING = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(st.characters(), max_size=4) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(ANYTHING)
def test_normalised_values_always_encode_and_stay(value: Any) -> None:
    """Whatever goes in, what comes out encodes as UTF-8 JSON, reads back equal, and needs no further change (B16, EV-10)."""
    result, _ = normalise(value)
    assert orjson.loads(orjson.dumps(result)) == result
    assert normalise(result) == (result, [])


def test_what_stands_beside_an_odd_value_stays_as_it_is() -> None:
    """One value that cannot be stored changes no other: nothing, truth, numbers and text around it are what they were (B16)."""
    value = {
        "none": None,
        "true": True,
        "number": 7,
        "half": 0.5,
        "text": "é",
        "list": [None, False, 1.5],
        "odd": float("nan"),
    }
    plain, changes = normalise(value)
    assert plain == {**value, "odd": "nan"}
    assert [type(item) for item in plain.values()] == [type(None), bool, int, float, str, list, str]
    assert plain["list"] == [None, False, 1.5]
    assert [(change.path, change.kind) for change in changes] == [("/odd", "number")]


@pytest.mark.parametrize(("name", "stored", "kind"), [("a\0b", "a␀b", "nul"), ("a\ud800", "a�", "surrogate")])
def test_a_name_that_cannot_be_stored_is_changed_though_its_value_can(name: str, stored: str, kind: str) -> None:
    """The name of a field is a value too: no store ever meets one that it cannot keep (B16)."""
    plain, changes = normalise({"outer": {name: "fine"}})
    assert plain == {"outer": {stored: "fine"}}
    assert [change.kind for change in changes] == [kind]
