"""Lines taken apart, whatever was done to them."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kipu.interop.line_parser import Piece, pieces_of

EVENT = b'{"event_id":"e1","event_type":"note","kind":"k"}'
OTHER = b'{"event_id":"e2","event_type":"note","kind":"k"}'


def taken(data: bytes) -> list[str]:
    """Return the ids of the events in a line, and why its other pieces are none."""
    return [piece.fields["event_id"] if piece.fields else piece.reason for piece in pieces_of(data)]


def starts(reasons: list[str], *wanted: str) -> bool:
    return len(reasons) == len(wanted) and all(map(str.startswith, reasons, wanted))


@pytest.mark.parametrize(
    "data",
    [EVENT, b"\xef\xbb\xbf" + EVENT, EVENT + b"\r", b"\xef\xbb\xbf" + EVENT + b" \t\r", EVENT.replace(b":", b" : ")],
)
def test_whole_lines_are_events_with_bom_or_carriage_return(data: bytes) -> None:
    """A byte order mark before a line and a carriage return behind it are not part of it (situation 10)."""
    assert taken(data) == ["e1"]


@pytest.mark.parametrize("data", [b"", b"   ", b"\r", b"\xef\xbb\xbf", b"\t \r"])
def test_blank_lines_are_no_records(data: bytes) -> None:
    """What has nothing on it is not a record (situation 11)."""
    assert pieces_of(data) == []


def test_fused_events_are_told_apart() -> None:
    """Events on one line are each read; a torn beginning costs only itself (situations 1, 2, 8)."""
    assert taken(EVENT + OTHER) == ["e1", "e2"]
    assert taken(EVENT + b"  " + OTHER + b"\r") == ["e1", "e2"]
    assert starts(taken(EVENT[:20] + OTHER), "it is not JSON", "e2")
    assert starts(taken(EVENT + OTHER[:20]), "e1", "it is not JSON")
    assert starts(taken(bytes(40) + OTHER), "it has NUL bytes", "e2")
    assert starts(taken(OTHER + bytes(40)), "it has NUL bytes")
    assert starts(taken(b"\xff\xfe" + OTHER), "it is not UTF-8", "e2")


def test_an_event_inside_a_broken_event_is_not_taken_out_of_it() -> None:
    """An object within a record that broke later is not an event of the log."""
    quoting = b'{"event_type":"note","data":{"event_id":"inner","event_type":"user_message","content":"x"},"text":"cut'
    assert len(pieces_of(quoting)) == 1
    assert len(pieces_of(b'{"data":' + b'{"event_id":"inner","content":"x"}')) == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{oops", "it is not JSON"),
        (b"[1,2]", "it is JSON, but not an object"),
        (b'"text"', "it is JSON, but not an object"),
        (b"null", "it is JSON, but not an object"),
        (EVENT[:-1] + b',"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "it is nested too deeply"),
        (EVENT[:-1] + b',"n":' + b"9" * 5_000 + b"}", "it has an integer of thousands of digits"),
        (b"\xff\xfe\x00", "it has NUL bytes"),
        (b"\xed\xa0\x80", "it is not UTF-8"),
    ],
)
def test_what_is_no_event_says_why(data: bytes, reason: str) -> None:
    """Every piece that is no object has its reason, and its text where it is text."""
    (piece,) = pieces_of(data)
    assert piece.reason.startswith(reason)
    assert piece.fields is None
    assert (piece.text is not None) == (b"\0" not in data and not data.startswith((b"\xff", b"\xed")))


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (b'"\\ud800"', "\ud800"),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b"-Infinity", float("-inf")),
        (b'"\x1b[2J\t"', "\x1b[2J\t"),
        (b'"\xe2\x80\xa8"', "\u2028"),
        (b"1.5e3", 1500.0),
    ],
)
def test_values_that_json_readers_differ_on_are_kept(given: bytes, value: object) -> None:
    """Lone surrogates, long integers, infinities and raw control characters are read as what they say (B16)."""
    (piece,) = pieces_of(b'{"event_id":"e","event_type":"x","value":' + given + b"}")
    assert piece.fields is not None
    assert piece.fields["value"] == value
    assert type(piece.fields["value"]) is type(value)


@given(st.lists(st.one_of(st.just(EVENT), st.just(OTHER), st.just(EVENT[:25]), st.binary(max_size=12)), max_size=5))
@example([b'{"event_id":"e1","event_type":"note","kind":"k"}', b"\xe2\x80\xa8"])
def test_pieces_cover_the_line(parts: list[bytes]) -> None:
    """Pieces stand in order, do not overlap, and leave out nothing but white space and a byte order mark."""
    data = b"".join(parts).replace(b"\n", b" ")
    pieces: list[Piece] = pieces_of(data)
    end = 0
    for piece in pieces:
        assert piece.offset >= end
        assert piece.length > 0
        assert data[end : piece.offset].replace(b"\xef\xbb\xbf", b"").strip() == b""
        if piece.fields is not None:
            assert json.loads(data[piece.offset : piece.offset + piece.length].decode()) == piece.fields
        end = piece.offset + piece.length
    assert data[end:].replace(b"\xef\xbb\xbf", b"").strip() == b""
