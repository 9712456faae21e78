"""One event as one line of bytes: written so that checksum, body and envelope are found without parsing the body."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from kipu.errors import InvalidEventError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Record, StoredEvent

START = b'{"seq":'
BOM = b"\xef\xbb\xbf"
# `,"c":"9f3a0b1c"}` stands at the end of every line, always this long.
CHECK_MARK = b',"c":"'
CHECK_SIZE = len(CHECK_MARK) + 8 + len(b'"}')

# Legal inside JSON strings, but line ends to readers that split text: escaped on disk (situation 9).
_SEPARATORS = {b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029", b"\xc2\x85": b"\\u0085"}
_RAW = {escape: raw for raw, escape in _SEPARATORS.items()}
_RAW_LINE_END = re.compile(rb"\xe2\x80[\xa8\xa9]|\xc2\x85")
_LINE_END = re.compile(rb"\xe2\x80[\xa8\xa9]|\xc2\x85|\\u2028|\\u2029|\\u0085")


class Bound(NamedTuple):
    """A binding as it stands in a line: the key, where it led before, and how often it was bound."""

    key: str
    expected: str | None
    generation: int


class Line(NamedTuple):
    """A line that holds: its place, its envelope and the bytes of its body."""

    seq: int
    meta: dict[str, Any]
    body: bytes

    def event(self, session_id: str) -> StoredEvent:
        """Return the event as it was appended."""
        meta = self.meta
        record = Record(
            meta["event_id"],
            meta["event_type"],
            meta["timestamp"],
            self.body,
            meta.get("n", 0),
            meta.get("turn_id"),
            meta.get("trace_id"),
            meta.get("principal"),
            meta.get("v", 1),
        )
        return StoredEvent(self.seq, session_id, record)

    @property
    def place(self) -> tuple[int, int]:
        """Return where in its batch it stands, counted from one, and the batch's size."""
        index, size = self.meta.get("batch", (1, 1))
        return index, size


def encode_batch(
    session_id: str,
    records: Sequence[Record],
    *,
    first_seq: int,
    head: HeadPatch,
    key: str | None,
    bound: Bound | None,
) -> list[bytes]:
    """Return the lines of a batch, ends included; patch, key and binding stand on the last.

    Raises:
        InvalidEventError: a body is not one JSON object on one line.
    """
    size = len(records)
    lines = [
        _encode(session_id, record, first_seq + index, place=(index + 1, size), extra={})
        for index, record in enumerate(records[:-1])
    ]
    extra: dict[str, Any] = {}
    patch = head.to_json()
    if patch:
        extra["head"] = patch
    if key is not None:
        extra["retry"] = key
    if bound is not None:
        extra["bind"] = tuple(bound)
    lines.append(_encode(session_id, records[-1], first_seq + size - 1, place=(size, size), extra=extra))
    return lines


def _encode(session_id: str, record: Record, seq: int, *, place: tuple[int, int], extra: dict[str, Any]) -> bytes:
    event_id, event_type, timestamp, body, tokens, turn_id, trace_id, principal, v, _ = record
    if body[:1] != b"{" or body[-1:] != b"}" or b"\n" in body or b"\0" in body:
        raise InvalidEventError(event_type=event_type, reason="its body is not one JSON object on one line")
    body, escaped = _escape_body(body[1:-1])
    meta: dict[str, Any] = {
        "seq": seq,
        "b": len(body),
        "event_id": event_id,
        "event_type": event_type,
        "timestamp": timestamp,
        "session_id": session_id,
    }
    if turn_id is not None:
        meta["turn_id"] = turn_id
    if trace_id is not None:
        meta["trace_id"] = trace_id
    if principal is not None:
        meta["principal"] = principal
    meta["v"], meta["n"] = v, tokens
    if place[1] > 1:
        meta["batch"] = place
    if escaped:
        meta["esc"] = escaped
    meta.update(extra)
    prefix = _escape(orjson.dumps(meta, default=list)[:-1])
    # A body of blanks alone has no fields to be separated from.
    checked = prefix + (b"," + body if body and not body.isspace() else body)
    return b'%s,"c":"%08x"}\n' % (checked, zlib.crc32(checked))


def _escape(text: bytes) -> bytes:
    # Three plain looks cost less than the expression does, and find nothing nearly always.
    if text.isascii() or (b"\xe2\x80" not in text and b"\xc2\x85" not in text):
        return text
    return _RAW_LINE_END.sub(lambda found: _SEPARATORS[found[0]], text)


def _escape_body(body: bytes) -> tuple[bytes, list[int]]:
    """Return the body without raw separators, and which of those it then shows as escapes were raw before."""
    escaped = _escape(body)
    if escaped is body or escaped == body:
        return body, []
    raw = [number for number, found in enumerate(_LINE_END.finditer(body)) if found[0] in _SEPARATORS]
    return escaped, raw


def _unescape_body(body: bytes, raw: Sequence[int]) -> bytes:
    wanted, count = set(raw), itertools.count()
    return _LINE_END.sub(lambda found: _RAW[found[0]] if next(count) in wanted else found[0], body)


def holds(raw: bytes) -> bool:
    """Return True when `raw`, a line without its end, is whole: it begins as one, and its checksum is right."""
    if raw[-1:] == b"\r":  # a tool for text has been at the file; no line of ours ends so
        raw = raw[:-1]
    if raw[: len(START)] != START or raw[-CHECK_SIZE : 6 - CHECK_SIZE] != CHECK_MARK or raw[-2:] != b'"}':
        return False
    return b"%08x" % zlib.crc32(raw[:-CHECK_SIZE]) == raw[-10:-2]


def seq_of(raw: bytes) -> int:
    """Return the place of a line that `holds`, or 0 when it does not say."""
    digits = raw[len(START) : raw.find(b",", len(START), len(START) + 24)]
    return int(digits) if digits.isdigit() else 0


def parse(raw: bytes) -> Line | None:
    """Return what a line without its end says, or None when it does not hold (whatever bytes it is made of)."""
    if not holds(raw):
        return None
    if raw[-1:] == b"\r":
        raw = raw[:-1]
    try:
        begin = raw.index(b',"b":', len(START)) + 5
        body_size = int(raw[begin : raw.index(b",", begin)])
        end = len(raw) - CHECK_SIZE
        if not 0 <= body_size < end:
            return None
        body = raw[end - body_size : end]
        prefix = raw[: end - body_size]
        meta = orjson.loads((prefix[:-1] if prefix[-1:] == b"," else prefix) + b"}")
        index, size = meta.get("batch", (1, 1))
        well = isinstance(meta["event_id"], str) and isinstance(meta["event_type"], str)
        if not (well and isinstance(meta["timestamp"], str) and 1 <= index <= size and meta["seq"] > 0):
            return None
        if meta.get("esc"):
            body = _unescape_body(body, meta["esc"])
    except (ValueError, KeyError, TypeError):
        return None
    return Line(meta["seq"], meta, b"{" + body + b"}")


class Piece(NamedTuple):
    """A stretch of one physical line: a line that holds, or bytes that are none."""

    start: int
    raw: bytes
    line: Line | None


def pieces(raw: bytes) -> list[Piece]:
    """Return what a physical line holds: usually itself; behind a torn beginning, the whole record that was fused to it."""
    whole = parse(raw)
    if whole is not None:
        return [Piece(0, raw, whole)]
    start = len(BOM) if raw.startswith(BOM) else 0
    found = start if start and raw.startswith(START, start) else raw.find(START, 1)
    while found > 0:
        behind = parse(raw[found:])
        if behind is not None:
            torn = [] if raw[:found] == BOM else [Piece(0, raw[:found], None)]
            return [*torn, Piece(found, raw[found:], behind)]
        found = raw.find(START, found + 1)
    return [Piece(0, raw, None)]
