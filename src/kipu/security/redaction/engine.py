r"""What finds literals and patterns: RE2 behind an Aho-Corasick automaton where they are installed, else the standard library.

Both work on bytes, where `\s`, `\w` and case mean ASCII and every byte is one character; patterns keep to what both read the
same way: no look-around, no back-reference, no `^`, `$` or `\b`. So the answers are the same, only the time is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol

from kipu.errors import ConfigurationError, MissingExtraError


class Match(Protocol):
    """Where a pattern was found."""

    def span(self, group: int = 0) -> tuple[int, int]:
        """Return start and end of a group; -1 where it took no part."""
        ...


class Pattern(Protocol):
    """A compiled pattern."""

    @property
    def groups(self) -> int:
        """Return how many groups it has."""
        ...

    def match(self, text: bytes, /, *, pos: int = ..., endpos: int = ...) -> Match | None:
        """Return a match that begins at `pos`."""
        ...

    def search(self, text: bytes, /, *, pos: int = ..., endpos: int = ...) -> Match | None:
        """Return the first match from `pos` on."""
        ...

    def finditer(self, text: bytes, /) -> Iterator[Match]:
        """Yield every match, from left to right."""
        ...


class Literals(Protocol):
    """A set of literals to look for."""

    def find(self, text: bytes) -> list[tuple[int, int]]:
        """Return (place, index of the literal) of every occurrence, overlapping ones too, in order."""
        ...


class Engine(Protocol):
    """Makes what finds. `is_linear` where no pattern takes more than a time proportional to the text."""

    name: str
    is_linear: bool

    def pattern(self, text: str) -> Pattern:
        """Return a compiled pattern. Raises: ConfigurationError."""
        ...

    def literals(self, texts: Sequence[bytes]) -> Literals:
        """Return a finder of these literals; none of them is empty."""
        ...


class PlainEngine:
    """The standard library: slower, always there."""

    name = "plain"
    is_linear = False

    def pattern(self, text: str) -> Pattern:
        """Return a compiled pattern. Raises: ConfigurationError."""
        try:
            return re.compile(text.encode())
        except re.error as error:
            raise ConfigurationError(reason=f"{text!r} is not a pattern: {error}") from error

    def literals(self, texts: Sequence[bytes]) -> Literals:
        """Return a finder of these literals."""
        return _PlainLiterals(texts)


class _PlainLiterals:
    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = tuple(enumerate(texts))

    def find(self, text: bytes) -> list[tuple[int, int]]:
        found = []
        for index, literal in self._texts:
            at = text.find(literal)
            while at >= 0:
                found.append((at, index))
                at = text.find(literal, at + 1)
        found.sort()
        return found


class FastEngine:
    """RE2 and Aho-Corasick, of the extra `security`. Raises: MissingExtraError."""

    name = "fast"
    is_linear = True

    def __init__(self) -> None:
        try:
            self._re2: Any = import_module("re2")
            self._aho: Any = import_module("ahocorasick_rs")
        except ImportError as error:
            raise MissingExtraError(feature="fast redaction", package=str(error.name), extra="security") from error

    def pattern(self, text: str) -> Pattern:
        """Return a compiled pattern. Raises: ConfigurationError."""
        options = self._re2.Options()
        options.encoding = self._re2.Options.Encoding.LATIN1
        options.log_errors = False
        try:
            compiled: Pattern = self._re2.compile(text.encode(), options)
        except self._re2.error as error:
            raise ConfigurationError(reason=f"{text!r} is not a pattern: {error}") from error
        return compiled

    def literals(self, texts: Sequence[bytes]) -> Literals:
        """Return a finder of these literals."""
        if not texts:
            return _PlainLiterals(texts)
        # A table of all states: twice as fast as the default, and these literals make a small one.
        return _FastLiterals(self._aho.BytesAhoCorasick(list(texts), implementation=self._aho.Implementation.DFA))


class _FastLiterals:
    def __init__(self, automaton: Any) -> None:
        self._automaton = automaton

    def find(self, text: bytes) -> list[tuple[int, int]]:
        # Overlapping: else a literal within another one hides the rules of one of them.
        hits = self._automaton.find_matches_as_indexes(text, overlapping=True)
        return sorted([(start, index) for index, start, _ in hits])


def best_engine() -> Engine:
    """Return the fast engine where its packages are, else the plain one."""
    try:
        return FastEngine()
    except MissingExtraError:
        return PlainEngine()
