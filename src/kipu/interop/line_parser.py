"""From the bytes of a line to the records in it, whatever was done to them (situations 1-12)."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import orjson

from kipu.stores.jsonl.line import START
from kipu.stores.jsonl.line import parse as parse_stored

_BOM = b"\xef\xbb\xbf"
_LONG_NUMBER = re.compile(rb"\d{19}")
_MAX_DIGITS = 4_000
_RECORD_START = re.compile(rb'\{\s*"(?:event_id|seq|event_type|timestamp|session_id)"\s*:')
_MOST_STARTS = 64
_STORE_FIELDS = frozenset({"b", "n", "batch", "esc", "head", "retry", "bind", "c"})


class Piece(NamedTuple):
    """One record of a line: its fields, or why it has none, with the text where it is text."""

    offset: int  # within the line
    length: int
    fields: dict[str, Any] | None
    text: str | None = None
    reason: str = ""


def pieces_of(data: bytes) -> list[Piece]:
    """Return the records of a line without its end: usually one, more where lines were fused, none for white space."""
    start = len(_BOM) if data.startswith(_BOM) else 0
    end = start + len(data[start:].rstrip(b" \t\r"))
    if start >= end:
        return []
    whole = _piece(data, start, end)
    if whole.fields is not None:
        return [whole]
    found, place = _sequence(data, start, end)
    return found if place >= end else [*found, *_torn(data, place, end)]


def _piece(data: bytes, start: int, end: int) -> Piece:
    raw = data[start:end]
    fields, reason = _object(raw)
    return Piece(start, end - start, fields, _text(raw), reason)


def _sequence(data: bytes, start: int, end: int) -> tuple[list[Piece], int]:
    """Return the whole objects that stand one after another from `start`, and where they end."""
    found: list[Piece] = []
    text = _text(data[start:end])
    if text is None:
        return found, start
    decoder = json.JSONDecoder(parse_int=_integer, strict=False)
    place, at = start, 0
    while at < len(text) and text[at] == "{":
        try:
            _, stop = decoder.raw_decode(text, at)
        except (ValueError, OverflowError, RecursionError):
            break
        length = len(text[at:stop].encode())
        found.append(_piece(data, place, place + length))
        gap = len(text[stop:]) - len(text[stop:].lstrip(" \t\r\n"))  # other white space has more bytes than characters
        place, at = place + length + gap, stop + gap
    return found, place


def _torn(data: bytes, start: int, end: int) -> list[Piece]:
    """Return what is left of a line: a whole event behind a torn beginning, or one unreadable piece."""
    for number, match in enumerate(_RECORD_START.finditer(data, start + 1, end)):
        if number >= _MOST_STARTS:
            break
        behind = _piece(data, match.start(), end)
        if behind.fields is not None and isinstance(behind.fields.get("event_type"), str):
            return [_piece(data, start, match.start()), behind]
    return [_piece(data, start, end)]


def _object(raw: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the object that `raw` is, or why it is none."""
    if raw.startswith(START):
        stored = parse_stored(raw)
        if stored is not None:
            envelope = {name: value for name, value in stored.meta.items() if name not in _STORE_FIELDS}
            return {**_loads(stored.body), **envelope}, ""
    if b"\0" in raw:
        return None, "it has NUL bytes"
    try:
        fields = _loads(raw)
    except UnicodeDecodeError:
        return None, "it is not UTF-8"
    except RecursionError:
        return None, "it is nested too deeply"
    except OverflowError:
        return None, "it has an integer of thousands of digits"
    except ValueError as error:
        return None, f"it is not JSON: {error}"
    if not isinstance(fields, dict):
        return None, "it is JSON, but not an object"
    if raw.startswith(START) and isinstance(fields.get("b"), int) and isinstance(fields.get("c"), str):
        return None, "its checksum is wrong"
    return fields, ""


def _loads(raw: bytes) -> Any:
    if not _LONG_NUMBER.search(raw):
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass  # the standard library takes lone surrogates, NaN and raw control characters, which are kept as what they are
    return json.loads(raw.decode("utf-8"), parse_int=_integer, strict=False)


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise OverflowError(digits[:20])
    return int(digits)


def _text(raw: bytes) -> str | None:
    try:
        return None if b"\0" in raw else raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
