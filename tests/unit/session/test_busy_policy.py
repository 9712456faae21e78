"""Busy policies: chosen field by field, refused with the level that is wrong, and written as they are read (C12)."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.errors import InvalidBusyPolicyError
from kipu.session.busy import MODES, BusyPolicy, PolicyChoice


def test_policy_takes_each_field_from_the_nearest_level() -> None:
    """Message comes before session before channel before default, for each field by itself (C12)."""
    policy = BusyPolicy.resolve(
        message="steer",
        session={"mode": "collect", "cap": 3},
        channel={"cap": 9, "on_full": "drop_oldest", "ttl_ms": 5},
        default={"ttl_ms": 7, "debounce_ms": 11, "mode": "reject"},
    )
    assert policy == BusyPolicy("steer", debounce_ms=11, cap=3, on_full="drop_oldest", ttl_ms=5)


def test_policy_is_followup_where_nothing_is_said() -> None:
    """Without any choice a message waits for a turn of its own, as long and as many as there are (C12)."""
    assert BusyPolicy.resolve() == BusyPolicy("followup", cap=None, ttl_ms=None)


def test_policy_that_is_whole_hides_the_levels_below() -> None:
    """A level that gives a whole policy gives every field (C12)."""
    assert BusyPolicy.resolve(session=BusyPolicy(), channel={"mode": "collect", "cap": 2}) == BusyPolicy()


@pytest.mark.parametrize("mode", MODES)
def test_policy_is_read_as_it_was_written(mode: Any) -> None:
    """The JSON form of a policy holds its mode and what is not default, and gives the policy back (C12, EV-14)."""
    policy = BusyPolicy(mode, debounce_ms=5, max_wait_ms=6, cap=7, on_full="summarize", ttl_ms=8, forced=True)
    assert BusyPolicy.from_json(policy.to_json()) == policy
    assert BusyPolicy(mode).to_json() == {"mode": mode}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("later", "mode"),
        ({"mode": None}, "mode"),
        ({"on_full": "explode"}, "on_full"),
        ({"cap": 0}, "cap"),
        ({"cap": True}, "cap"),
        ({"ttl_ms": -1}, "ttl_ms"),
        ({"debounce_ms": None}, "debounce_ms"),
        ({"max_wait_ms": 1.5}, "max_wait_ms"),
        ({"forced": 1}, "forced"),
        ({"colour": "red"}, "colour"),
        ([("mode", "steer")], "neither a mode nor an object"),
        (7, "neither a mode nor an object"),
    ],
)
def test_policy_that_cannot_be_used_names_level_and_field(choice: PolicyChoice, names: str) -> None:
    """A wrong policy is refused with its level and what is wrong in it, whichever level it is (C12)."""
    for level in ("message", "session", "channel", "default"):
        with pytest.raises(InvalidBusyPolicyError, match=names) as caught:
            BusyPolicy.resolve(**{level: choice})
        assert caught.value.level == level


def test_policy_in_json_must_be_an_object() -> None:
    """What is no object is no policy."""
    with pytest.raises(InvalidBusyPolicyError, match="not an object"):
        BusyPolicy.from_json("steer")
