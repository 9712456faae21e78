"""A chain's links: a number and a keyed tag over an event and the link before it, as events and heads carry them (EN-20)."""

from __future__ import annotations

import base64
import hmac
from typing import Any, NamedTuple

import orjson

from kipu.ports.cipher import SessionCipher
from kipu.ports.store import Record, StoredEvent

CHAIN = "$chain"
TAG_BYTES = 16
TIP, GONE = b"tip ", b"gone "  # what a link under the key says: the last of the log, the last of what is in an archive
START, MIDDLE, END = b'{"$link":"', b'","$body":', b"}"


class Link(NamedTuple):
    """What an event carries: its number in the chain and its tag. `start` is the first number that was chained."""

    start: int
    number: int
    tag: bytes

    def text(self) -> str:
        """Return the link as text."""
        return f"{self.start}.{self.number}.{base64.b64encode(self.tag).decode()}"


class ChainBreak(NamedTuple):
    """The first place where a session's chain does not hold. `kind`: altered, dropped, reordered, cut, head, archive."""

    session_id: str
    seq: int
    kind: str


def read_link(text: Any) -> Link | None:
    """Return the link that a text is, None where it is none."""
    try:
        start, number, tag = str(text).split(".")
        return Link(int(start), int(number), base64.b64decode(tag, validate=True))
    except ValueError:
        return None


def split(body: bytes) -> tuple[Link | None, bytes]:
    """Return the link of a kept body, None where it has none, and the body inside."""
    if not body.startswith(START) or not body.endswith(END):
        return None, body
    at = body.find(MIDDLE, len(START))
    link = read_link(body[len(START) : at].decode("ascii", "replace")) if at > 0 else None
    return (link, body[at + len(MIDDLE) : -len(END)]) if link is not None else (None, body)


def sealed_text(cipher: SessionCipher, link: Link, *, role: bytes) -> str:
    """Return the link as the head has it: with a tag of its own, which no event shows, so that no tail can be cut to fit it."""
    text = link.text()
    return f"{text}.{base64.b64encode(cipher.tag(role + text.encode())[:TAG_BYTES]).decode()}"


def open_sealed(cipher: SessionCipher, text: Any, *, role: bytes) -> Link | None:
    """Return the link in such a text, None where it was not made with the key."""
    link = read_link(str(text).rpartition(".")[0])
    return link if link is not None and hmac.compare_digest(sealed_text(cipher, link, role=role), str(text)) else None


def link_of(event: StoredEvent) -> Link | None:
    """Return the link of an event as it is kept, None where it has none."""
    return split(event.record.body)[0]


def begin(cipher: SessionCipher, start: int) -> bytes:
    """Return the tag that stands before the first link."""
    return cipher.tag(b"begin %d" % start)[:TAG_BYTES]


def tag_of(cipher: SessionCipher, before: bytes, *, number: int, record: Record) -> bytes:
    """Return the tag of a record with its body as it is inside the link."""
    envelope = orjson.dumps((number, *record[:3], *record[4:9]))
    return cipher.tag(b"".join((before, envelope, record.body)))[:TAG_BYTES]
