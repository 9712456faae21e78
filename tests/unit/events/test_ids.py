"""Identifiers."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.errors import InvalidSessionIdError
from kipu.events import ids
from kipu.events.event import TimeTexts, utc_text, utc_text_us


def test_event_ids_are_uuid7_and_carry_their_time() -> None:
    """An event id is a UUID of version 7 whose first 48 bits are its milliseconds (B10, EV-3)."""
    made = uuid.UUID(ids.event_id(1_764_000_000_123, bytes(range(10))))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_764_000_000_123


@given(st.integers(0, (1 << 48) - 1), st.binary(min_size=10, max_size=16))
def test_event_ids_are_the_text_of_their_uuid(unix_ms: int, chance: bytes) -> None:
    """The text that is put together for each event is the usual text of the UUIDv7 of its time and chance (B10, EV-3)."""
    assert ids.event_id(unix_ms, chance) == str(uuid.UUID(int=ids.uuid7_int(unix_ms, chance)))


@given(st.lists(st.integers(0, 4_000_000_000_000_000), max_size=5), st.sampled_from([0, 1, 999_999, 1_000_000]))
def test_times_of_one_writer_have_the_text_that_each_alone_has(moments: list[int], later_us: int) -> None:
    """Whatever came before, also within the same second, a time has its own UTC text with microseconds (B18)."""
    times = TimeTexts()
    for unix_us in [moment + more for moment in moments for more in (0, later_us)]:
        moment, text = times.at(unix_us)
        assert text == utc_text(moment) == utc_text_us(unix_us)


def test_session_ids_sort_by_creation_time_and_differ() -> None:
    """Session ids are sess_ and 26 Crockford characters; later ones sort later, and chance tells the rest apart (B20)."""
    made = [ids.session_id(ms, bytes([n]) * 10) for ms in (1, 2, 1_764_000_000_000) for n in (0, 255)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"sess_[0-9a-hjkmnp-tv-z]{26}", one) for one in made)
    assert all(ids.check_session_id(one) == one for one in made)


@pytest.mark.parametrize(
    "bad",
    [
        "", ".", "..", "../x", "a/b", "a\\b", "a:b", "A", "ß", "日本", "e\u0301", "é", "con", "nul", "lpt1", "com9",
        "x" * 65, "x" * 300, "a b", "a\0", "a\n", None, 7, "sess_ABC", "ａ",
    ],
)  # fmt: skip
def test_bad_session_ids_are_refused(bad: object) -> None:
    """Ids that could escape a folder, collide on some file system or name a device are refused (A21, B20)."""
    with pytest.raises(InvalidSessionIdError) as caught:
        ids.check_session_id(bad)
    assert caught.value.code == "session_id_invalid"
