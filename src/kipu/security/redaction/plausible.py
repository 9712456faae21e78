"""Whether a text can be a secret: what people write in its place, and how much chance there is in it."""

from __future__ import annotations

import math
import re
from collections import Counter
from operator import ne

_STAND_INS = (
    b"example", b"changeme", b"change-me", b"change_me", b"placeholder", b"replace", b"insert", b"your", b"xxxx", b"dummy", b"mock",
    b"redacted", b"foobar", b"todo", b"lorem", b"sample", b"0123456789", b"1234567890", b"abcdefgh", b"deadbeef", b"aaaaaa",
    b"000000", b"....", b"****", b"____", b"----",
)  # fmt: skip
_IDENTIFIER = re.compile(rb"[A-Za-z_][A-Za-z_.:-]*[0-9]?(?:\(.*)?", re.DOTALL)
_CLASSES = (re.compile(rb"[a-z]"), re.compile(rb"[A-Z]"), re.compile(rb"[0-9]"), re.compile(rb"[^A-Za-z0-9]"))
_DOTTED = re.compile(rb"[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)+")
_SNAKE = re.compile(
    rb"(?:[a-z]{0,24}[0-9]{0,5}|[A-Z]{0,24}[0-9]{0,5})(?:[_.:-]+(?:[a-z]{2,24}[0-9]{0,4}|[A-Z]{2,24}[0-9]{0,4}|[0-9]{1,4}[a-z]?|[a-z]{1,2}[0-9]{1,4}|[A-Z][0-9]{1,4}|[A-Z][a-z]+(?:[A-Z][a-z]+)*))+"
)
_ID = re.compile(rb"[a-z]{2,10}_0[0-9][0-9a-hjkmnp-tv-z]{24}")
_WORDS = re.compile(rb"[A-Z]?[a-z]{2,}")
_KINDS = bytes(
    97 if 97 <= byte <= 122 else 65 if 65 <= byte <= 90 else 48 if 48 <= byte <= 57 else 45 for byte in range(256)
)
_MEMBER = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+")
_REFERENCE = re.compile(
    rb"\$[A-Za-z_({]|\{\{?|<[^>]*>?\Z|%[(sdrA-Za-z]|~?\.{0,2}/|&[a-zA-Z]+;|\*+\Z|[A-Za-z]:\\|#\{|@[A-Za-z_]+\Z|\[[^]]*\]?\Z|\(|:[a-z_]+\Z|\.[a-z_.]+\Z"
)
_CAMEL = re.compile(rb"[A-Za-z]{1,30}[0-9]{1,4}(?:[A-Z][a-z]{2,20})+")
_NUMBER = re.compile(rb"[0-9.,:+-]+")
_HEX = re.compile(rb"(?:0x)?[0-9a-fA-F-]+")


def entropy_bits(text: bytes) -> float:
    """Return Shannon's entropy of the bytes, in bits each."""
    count = len(text)
    return -sum(n / count * math.log2(n / count) for n in Counter(text).values()) if count else 0.0


def is_stand_in(text: bytes) -> bool:
    """Return True for what is written where a secret would be: `your-key-here`, `xxxx`, `<token>`, `${TOKEN}`."""
    low = text.lower()
    return any(word in low for word in _STAND_INS) or len(set(low)) < 4


def classes_in(text: bytes) -> int:
    """Return how many of small letters, capitals, digits and others there are in it."""
    return sum(1 for kind in _CLASSES if kind.search(text))


def is_plausible(text: bytes) -> bool:
    """Return True for what has a secret's format and is no stand-in."""
    return entropy_bits(text) >= 2.8 and not is_stand_in(text)


def is_random(text: bytes) -> bool:
    """Return True for what no person writes: letters and digits mixed as chance does."""
    if len(text) < 12 or not _CLASSES[2].search(text) or not is_plausible(text):
        return False
    if classes_in(text) >= 3 and changes_of(text) >= 0.45:  # so short a text may say a letter twice
        return True
    return entropy_bits(text) >= (3.0 if _HEX.fullmatch(text) else 3.3 if len(text) >= 16 else 3.1)


def is_password(text: bytes) -> bool:
    """Return True for what may be a password and is no name, path, call or variable of a program."""
    if len(text) < 6 or is_stand_in(text) or is_reference(text):
        return False
    if text[:1] in b"$<{(%*/~&[@:.,;\\|`#" and (len(text) < 8 or classes_in(text) < 4 or b" " in text or b"/" in text):
        return False
    if text[-1:] in b"({[,:" or b"(" in text:
        return False
    if _NUMBER.fullmatch(text) or _DOTTED.fullmatch(text):
        return False
    if is_identifier(text):
        return text.count(b"-") >= 2 and len(text) >= 16
    return classes_in(text) >= 2 and entropy_bits(text) >= 2.2


def is_reference(text: bytes) -> bool:
    """Return True for what stands for a value that is elsewhere: `$NAME`, `${…}`, `{{…}}`, `%(name)s`, `<name>`, a path, a URL."""
    return _REFERENCE.match(text) is not None or b"${" in text or b"{{" in text or b"://" in text


def is_identifier(text: bytes) -> bool:
    """Return True for names as programs have them: letters with dots, dashes and underscores between, at most a digit behind."""
    short = text[:200]
    if _IDENTIFIER.fullmatch(short) or _SNAKE.fullmatch(short) or _CAMEL.fullmatch(short) or _ID.fullmatch(short):
        return True
    return _MEMBER.fullmatch(short) is not None and changes_of(short) < 0.36


def changes_of(text: bytes) -> float:
    """Return how often small letters, capitals and digits follow one of another kind: 0.62 by chance, below 0.3 in names."""
    kinds = text.translate(_KINDS)
    changes: int = sum(map(ne, kinds, kinds[1:]))
    return changes / max(1, len(text) - 1)


def is_worded(text: bytes) -> bool:
    """Return True where most of a text of both cases is words: by chance a third is, and hardly ever two thirds."""
    return sum(map(len, _WORDS.findall(text))) * 10 >= len(text) * 7 and not text.islower()
