"""Where in a text the secrets are: literals lead to rules, rules to spans, spans that meet become one."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from kipu.security.redaction.context import goes_on_otherwise
from kipu.security.redaction.engine import Engine, Match, Pattern
from kipu.security.redaction.families import unlisted
from kipu.security.redaction.manifest import ANCHOR as MANIFEST_ANCHOR
from kipu.security.redaction.manifest import manifest_spans
from kipu.security.redaction.rule import REACH, Rule, Tier

KNOWN_RULE = "known-secret"
MANIFEST = "secret-manifest"
UNNAMED = frozenset((unlisted.NAME, MANIFEST))  # rules that are no patterns and may be left out too
_MANIFEST_STEP = (
    1_024  # one look covers what is around it, so a text that says it on every line is not looked at for each
)
_LONG_RUN = 256
_LONGEST_VALUE = 4_096  # what a name is given that is longer is a file, not a secret
_GATE_REACH = 160  # so much is the most that a gate looks at
_SPACE = re.compile(rb"\s")
_LEAD_REACH = 1_024  # how far is looked for what begins before its literal
_ESCAPED = re.compile(rb"(?:\\[nrtbf]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9a-fA-F]{2}|\x1b\[[0-9;]*m)\Z")
_ESCAPE = re.compile(rb"\\(?:[nrtbf\"\\\\/]|u[0-9a-fA-F]{4})")
_ESCAPE_CUT = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_BACKSLASH = 0x5C
_JOINED = frozenset((b"/", b"+", b"%"))
_GOES_ON = _JOINED | {b"_", b"-"}
_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")


class Span(NamedTuple):
    """A secret in a text: from start to before end, found by this rule."""

    start: int
    end: int
    rule: str
    tier: Tier


class Finder:
    """Find what is to be replaced. Pure: the same text has the same spans, whichever engine looks."""

    def __init__(
        self,
        engine: Engine,
        *,
        rules: Sequence[Rule],
        custom: Sequence[tuple[str, str]],
        known: Sequence[bytes],
        excluded: Container[str] = (),
    ) -> None:
        self._exact = _Anchors(engine, [rule for rule in rules if not rule.folded])
        self._folded = _Anchors(engine, [rule for rule in rules if rule.folded])
        self._runs = None if unlisted.NAME in excluded else engine.pattern(unlisted.RUN)
        self._has_manifests = MANIFEST not in excluded
        self._custom = [(name, engine.pattern(text)) for name, text in custom]
        self._known = engine.literals(known)
        self._known_lengths = [len(form) for form in known]
        literals = {a.encode() for rule in rules for a in rule.anchors if not rule.folded}
        self._beginnings = _Beginnings([*known, *literals])
        self._folded_beginnings = _Beginnings([a.encode() for rule in rules for a in rule.anchors if rule.folded])
        names = {
            KNOWN_RULE,
            unlisted.NAME,
            MANIFEST,
            *(rule.name for rule in rules),
            *(name for name, _ in custom),
        }
        self._marker = marker_pattern(names | {"password", "token"})

    def find(self, data: bytes) -> list[Span]:
        """Return the secrets in UTF-8 text, in order; none of them meets another one or what was replaced already."""
        spans = [
            Span(at, at + self._known_lengths[index], KNOWN_RULE, Tier.KNOWN) for at, index in self._known.find(data)
        ]
        spans += self._exact.spans(data, data)
        spans += self._folded.spans(data, data.lower())
        spans += self._tokens(data)
        at = data.find(MANIFEST_ANCHOR) if self._has_manifests else -1
        while at >= 0:
            spans += [Span(start, end, MANIFEST, Tier.CONTEXT) for start, end in manifest_spans(data, at)]
            at = data.find(
                MANIFEST_ANCHOR, at + (_MANIFEST_STEP if b"\n---" not in data[at : at + _MANIFEST_STEP] else 1)
            )
        for name, pattern in self._custom:
            spans += [
                Span(*match.span(), name, Tier.PLACE)
                for match in pattern.finditer(data)
                if match.span()[0] < match.span()[1]
            ]
        if not spans:
            return []
        found = merged(_outside(spans, [each.span() for each in self._marker.finditer(data)]))
        return [whole for span in found if (whole := _without_half_escapes(data, span)) is not None]

    def _tokens(self, data: bytes) -> list[Span]:
        """Return what looks like a token of a maker that no rule knows."""
        spans = []
        for match in self._runs.finditer(data) if self._runs is not None else ():
            start, end = match.span()
            if data[start - 1 : start] in _GOES_ON or data[end : end + 1] in _JOINED:
                continue
            if (start and data[start - 1] in _WORD) or (
                end < len(data) and data[end] in _WORD
            ):  # a piece of a longer one
                continue
            found = unlisted.token_span(data, (start, end))
            if found is not None:
                spans.append(Span(*found, unlisted.NAME, Tier.FORMAT))
        return spans

    def may_begin_at(self, data: bytes) -> int:
        """Return from where on the end of a text may be the beginning of a literal that is looked for; its length where nothing is."""
        return min(self._beginnings.first(data), self._folded_beginnings.first(data.lower()))

    def leads(self, data: bytes) -> list[int]:
        """Return where literals stand that may lead to a secret when the text goes on, in order."""
        known = [at for at, index in self._known.find(data) if at + self._known_lengths[index] == len(data)]
        return sorted([*known, *self._exact.open_leads(data, data), *self._folded.open_leads(data, data.lower())])


class _Beginnings:
    """Literals by how they begin."""

    def __init__(self, literals: Sequence[bytes]) -> None:
        self._sorted = sorted(literals)
        self._first = frozenset(literal[0] for literal in literals)
        self._longest = max(map(len, literals), default=0)

    def first(self, data: bytes) -> int:
        """Return the first place from which the rest of the text is the beginning of a literal."""
        for at in range(max(0, len(data) - self._longest), len(data)):
            if data[at] in self._first:
                rest = data[at:]
                place = bisect_left(self._sorted, rest)
                if place < len(self._sorted) and self._sorted[place].startswith(rest):
                    return at
        return len(data)


class _Anchors:
    """Rules by the literals that lead to them. A pattern is compiled when its literal is first seen: most never are."""

    def __init__(self, engine: Engine, rules: Sequence[Rule]) -> None:
        by_anchor: dict[bytes, list[tuple[int, Rule]]] = defaultdict(list)
        for number, rule in enumerate(rules):
            for anchor in rule.anchors:
                by_anchor[anchor.encode()].append((number, rule))
        self._engine = engine
        self._rules = list(by_anchor.values())
        self._patterns: dict[int, Pattern] = {}
        self.literals = engine.literals(list(by_anchor))

    def _pattern(self, number: int, rule: Rule) -> Pattern:
        if number not in self._patterns:
            self._patterns[number] = self._engine.pattern(rule.pattern)
        return self._patterns[number]

    def open_leads(self, data: bytes, looked_at: bytes) -> list[int]:
        """Return where a literal stands whose rules are not settled yet by what follows it."""
        return [
            at
            for at, index in self.literals.find(looked_at)
            if any(not self._is_settled(number, rule, data=data, at=at) for number, rule in self._rules[index])
        ]

    def _is_settled(self, number: int, rule: Rule, *, data: bytes, at: int) -> bool:
        """Return True where nothing that may follow makes a rule find something at a literal.

        A token without spaces has ended; a gate is shut; or what would be named has begun long ago, not in quotes, and is none.
        """
        if rule.tier is Tier.FORMAT and rule.apart and not rule.folded:
            return _SPACE.search(data, at) is not None
        if len(data) - at < _GATE_REACH:
            return False
        if rule.gate is not None and rule.gate.match(data, at) is None:
            return True
        is_quoted = any(data.count(quote, at) % 2 for quote in (b'"', b"'", b"`"))
        return (
            rule.lead == 0
            and not is_quoted
            and self._pattern(number, rule).match(data, pos=at, endpos=len(data)) is None
        )

    def spans(self, data: bytes, looked_at: bytes) -> list[Span]:
        """Return what the rules find in `data` where their literals are in `looked_at`."""
        spans = []
        done: dict[int, int] = {}
        for at, index in self.literals.find(looked_at):
            for number, rule in self._rules[index]:
                if at < done.get(number, 0) or (rule.gate is not None and rule.gate.match(data, at) is None):
                    continue
                span, looked_to = _secret_at(data, at, rule=rule, pattern=self._pattern(number, rule))
                if span is not None:
                    spans.append(Span(*span, rule.name, rule.tier))
                # A long run that is no secret is not looked at again from every place within it.
                if span is not None or looked_to - at > _LONG_RUN:
                    done[number] = looked_to if span is None else span[1]
        return spans


def marker_pattern(names: Iterable[str]) -> re.Pattern[bytes]:
    """Return what finds the texts that stand for secrets: a secret in such brackets under no rule's name is none."""
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.compile(rf"\[redacted:(?:{known})(?::[0-9a-f]{{12}})?\]".encode())


def _secret_at(data: bytes, at: int, *, rule: Rule, pattern: Pattern) -> tuple[tuple[int, int] | None, int]:
    """Return the secret that a literal leads to, if any, and up to where was looked."""
    end = min(len(data), at + (_LEAD_REACH if rule.lead else REACH))
    if rule.lead:
        match = pattern.search(data, pos=max(0, at - rule.lead), endpos=end)
        if match is not None and not match.span()[0] <= at < match.span()[1]:
            return None, at
    else:
        if rule.apart and not _begins_apart(data, at):
            return None, at
        match = pattern.match(data, pos=at, endpos=end)
    if match is None:
        return None, at
    whole, (first, last) = match.span(), _secret(match, pattern.groups)
    if first >= last or (rule.apart and rule.tier is not Tier.CONTEXT and not _is_apart(data, whole[0], last)):
        return None, whole[1]
    if rule.tier is Tier.CONTEXT and last - first > _LONGEST_VALUE:
        return None, whole[1]
    if rule.tier is Tier.CONTEXT and goes_on_otherwise(rule, data, at=at, span=match.span(1), end=whole[1]):
        return None, whole[1]
    return ((first, last) if rule.check(data[first:last]) else None), whole[1]


def _secret(match: Match, groups: int) -> tuple[int, int]:
    """Return the last group that took part, or the whole."""
    for group in range(groups, 0, -1):
        span = match.span(group)
        if span[0] >= 0:
            return span
    return match.span()


def _begins_apart(data: bytes, start: int) -> bool:
    if start == 0 or data[start] not in _WORD or data[start - 1] not in _WORD:
        return True
    return _ESCAPED.search(data, max(0, start - 12), start) is not None


def _is_apart(data: bytes, start: int, end: int) -> bool:
    return _begins_apart(data, start) and (end >= len(data) or data[end] not in _WORD)


def _outside(spans: list[Span], markers: list[tuple[int, int]]) -> list[Span]:
    """Return the spans without what was replaced already; of one that a marker cuts, what is left on both sides."""
    for start, end in markers:
        cut: list[Span] = []
        for span in spans:
            if span.end <= start or span.start >= end:
                cut.append(span)
                continue
            parts = (span._replace(end=start), span._replace(start=end))
            cut += [part for part in parts if part.start < part.end and span.tier is Tier.KNOWN]
        spans = cut
    return spans


def _without_half_escapes(data: bytes, span: Span) -> Span | None:
    """Return the span without the part of a JSON escape that it begins or ends in: text within JSON stays JSON.

    Backslashes are not counted: in JSON within JSON two of them begin an escape too.
    """
    start, end = span.start, span.end
    escape = _ESCAPE_CUT.search(data, max(0, start - 6), start)
    if escape is not None:
        whole = _ESCAPE.match(data, escape.start())
        start = max(start, whole.end()) if whole is not None else start
    while end > start and data[end - 1] == _BACKSLASH:
        end -= 1
    return span._replace(start=start, end=end) if start < end else None


def merged(spans: list[Span]) -> list[Span]:
    """Return spans in order with those that meet as one, under the rule that is surer."""
    whole: list[Span] = []
    for span in sorted(spans):
        if not whole or span.start >= whole[-1].end:
            whole.append(span)
            continue
        last = whole[-1]
        surer = min(last, span, key=lambda each: (each.tier, each.rule == unlisted.NAME, each.start - each.end))
        whole[-1] = Span(last.start, max(last.end, span.end), surer.rule, surer.tier)
    return whole
