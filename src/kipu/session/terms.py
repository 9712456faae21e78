"""Search terms: words, and overlapping pairs for scripts that do not put spaces between words (facts.md, "JSON and text").

Pure, so that an index can be dropped and built anew, and so that terms can be hashed where the store must not read them.
A CJK run of n characters becomes its n-1 pairs and its last character; whoever searches two characters or more gets pairs,
and a single character is the start of a pair or that last character. So every substring of a run is found, and the reversed
word is not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from operator import add
from typing import Any

from kipu.events.boundary import CompactionEvent, MetadataChangedEvent, SessionInitEvent
from kipu.events.content import text_of
from kipu.events.conversation import (
    AgentMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent
from kipu.ports.store import Phrase

MAX_TERM_CHARACTERS = 64
MAX_TERMS = 50_000
# Han, kana, hangul, bopomofo and the CJK extensions: scripts whose words have no spaces between them.
_PAIRED = (
    (0x1100, 0x11FF),
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3038, 0x303B),
    (0x3041, 0x30FF),
    (0x3100, 0x312F),
    (0x3131, 0x318E),
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7FF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)

_PAIRED_CLASS = "".join(f"{chr(low)}-{chr(high)}" for low, high in _PAIRED)
_RUN = re.compile(f"([{_PAIRED_CLASS}]+)|([^\\W_{_PAIRED_CLASS}]+)")
# Letters and digits in lower case, everything else a space.
_ASCII = bytes(ord(chr(code).lower()) if chr(code).isalnum() and code < 128 else 32 for code in range(256))


def event_text(event: SessionEvent) -> str:
    """Return what of an event can be searched for."""
    if isinstance(event, UserMessageEvent | AgentMessageEvent):
        return text_of(event.content)
    if isinstance(event, ToolCallEvent):
        return f"{event.tool_name} {event.raw or _flat(event.tool_input)}"
    if isinstance(event, ToolResultEvent):
        return f"{_flat(event.result)} {event.error_info or ''}"
    if isinstance(event, CompactionEvent):
        return event.summary
    if isinstance(event, SessionInitEvent):
        return event.title or ""
    if isinstance(event, MetadataChangedEvent):
        return _flat({name: event.set[name] for name in ("title", "tags", "topic") if name in event.set})
    return ""


def _flat(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(f"{key} {_flat(item)}" for key, item in value.items())
    if isinstance(value, list):
        return " ".join(_flat(item) for item in value)
    return "" if value is None else str(value)


def terms_of(text: str) -> tuple[str, ...]:
    """Return the terms of a text to be indexed, in order."""
    if text.isascii():
        terms = _ascii_words(text)
        if _has_long_word(text):
            terms = [term[:MAX_TERM_CHARACTERS] for term in terms]
        return tuple(terms[:MAX_TERMS])
    terms = []
    for run, paired in _runs(text):
        if paired:
            terms += map(add, run, run[1:])
            terms.append(run[-1])
        else:
            terms.append(run[:MAX_TERM_CHARACTERS])
    return tuple(terms[:MAX_TERMS])


def phrases_of(query: str) -> tuple[Phrase, ...]:
    """Return what a query asks for: every word separated by white space, any punctuation in it being a separator only.

    `word*` finds longer words too. A query without a letter or digit asks for nothing.
    """
    found = (_phrase(word) for word in query.split())
    return tuple(phrase for phrase in found if phrase.terms)


def _phrase(word: str) -> Phrase:
    runs = list(_runs(word))
    terms: list[str] = []
    prefix = word.endswith("*")
    for index, (run, paired) in enumerate(runs):
        last = index == len(runs) - 1
        if not paired:
            terms.append(run[:MAX_TERM_CHARACTERS])
            continue
        prefix = prefix or (last and len(run) == 1)
        terms.extend(run[start : start + 2] for start in range(len(run) - 1))
        if len(run) == 1 or not last:
            terms.append(run[-1])
    return Phrase(tuple(terms), prefix)


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the stretches of letters and digits, folded, each with whether its script is written without spaces."""
    if text.isascii():
        for word in _ascii_words(text):
            yield word, False
        return
    for paired, word in _RUN.findall(unicodedata.normalize("NFKC", text).casefold()):
        yield paired or word, bool(paired)


def _has_long_word(text: str) -> bool:
    """Return True where so many characters may stand together without a space: a look at one in sixty tells."""
    start = 0
    while start + MAX_TERM_CHARACTERS < len(text):
        space = text.rfind(" ", start, start + MAX_TERM_CHARACTERS + 1)
        if space < 0:
            return True
        start = space + 1
    return False


def _ascii_words(text: str) -> list[str]:
    """Return the words of a text without other letters, folded: what a tool prints is nearly always one, and long."""
    return text.encode("ascii").translate(_ASCII).decode("ascii").split()
