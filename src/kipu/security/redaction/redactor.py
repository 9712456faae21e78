"""`Redactor`: JSON values without secrets."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kipu.errors import ConfigurationError, MissingExtraError
from kipu.security.redaction import context
from kipu.security.redaction.boundary import Piece, pieces_across
from kipu.security.redaction.disguise import undisguised
from kipu.security.redaction.engine import Engine, best_engine
from kipu.security.redaction.entropy import flags_in
from kipu.security.redaction.finder import Finder, Span, merged
from kipu.security.redaction.finding import Finding, Redacted
from kipu.security.redaction.known import forms_of
from kipu.security.redaction.policy import RedactionPolicy
from kipu.security.redaction.rule import Tier

SHORTEST = 6
LEAST_NAME = 12  # of an object's key that may hold a secret
_MOST_PASSES = 64
_AGAIN = 512  # bytes on both sides of what was replaced that are looked at again
_TEXT_MEDIA = (
    "text/",
    "application/json",
    "application/yaml",
    "application/xml",
    "application/x-sh",
    "application/toml",
)


class Replaced(NamedTuple):
    """What was taken out of a text, where and under which rule."""

    at: int
    length: int  # of what stands there now
    rule: str
    secret: str


class Redactor:
    """Replace secrets in every text of a JSON value by `[redacted:<rule>]`. Pure: nothing is kept of what it saw.

    `known` are secrets of this installation, found in every usual encoding. With `hash_key` the replacement also tells one secret
    from another: `[redacted:<rule>:<keyed hash>]`. With `seal` (a vault's encryption) the findings hold what was replaced.
    Structure, numbers and what holds no secret stay the same objects, and so do keys that are no secrets themselves; redacting
    twice changes nothing more.
    """

    def __init__(
        self,
        *,
        policy: RedactionPolicy | None = None,
        known: Iterable[str] = (),
        engine: Engine | None = None,
        hash_key: bytes | None = None,
        seal: Callable[[str], str] | None = None,
    ) -> None:
        self.policy = policy or RedactionPolicy()
        for name, _ in self.policy.custom:
            if not name.replace("-", "").isalnum() or not name.isascii() or name != name.lower():
                raise ConfigurationError(reason=f"a rule is named by small letters, digits and dashes, not {name!r}")
        engine = engine or best_engine()
        if self.policy.custom and not engine.is_linear:
            raise MissingExtraError(feature="patterns of your own", package="google-re2", extra="security")
        self.engine_name = engine.name
        forms = forms_of(known)
        self._finder = Finder(
            engine,
            rules=self.policy.rules(places=False),
            custom=self.policy.custom,
            known=forms,
            excluded=self.policy.excluded,
        )
        self._with_places = Finder(
            engine,
            rules=self.policy.rules(places=True),
            custom=self.policy.custom,
            known=forms,
            excluded=self.policy.excluded,
        )
        self._hash_key = hash_key
        self._seal = seal

    # ---- values ----------------------------------------------------------------------------------------------------

    def redact(self, value: Any, *, path: str = "", places: bool = True) -> Redacted:
        """Return the value without its secrets; `places` says whether the rules for places are used too."""
        findings: list[Finding] = []
        result = self._value(value, path, findings=findings, places=places)
        return Redacted(result, tuple(findings))

    def flags(self, value: Any, *, path: str = "") -> list[Finding]:
        """Return where texts stand that look like chance and match no rule: told, never replaced."""
        if isinstance(value, str):
            count = flags_in(value)
            return [Finding(path, "entropy", count)] if count else []
        if isinstance(value, dict):
            return [flag for name, item in value.items() for flag in self.flags(item, path=f"{path}/{name}")]
        if isinstance(value, list):
            return [flag for index, item in enumerate(value) for flag in self.flags(item, path=f"{path}/{index}")]
        return []

    def _value(self, value: Any, path: str, *, findings: list[Finding], places: bool) -> Any:
        if isinstance(value, str):
            return self._text(value, path, findings=findings, places=places)
        if isinstance(value, dict):
            return self._object(value, path, findings=findings, places=places)
        if isinstance(value, list):
            return self._array(value, path, findings=findings, places=places)
        return value

    def _object(self, value: dict[str, Any], path: str, *, findings: list[Finding], places: bool) -> dict[str, Any]:
        manifest = context.is_secret_manifest(value)
        named = _secret_of_pair(value)
        result: dict[str, Any] = {}
        for name, item in value.items():
            kept = self._name(name, path, findings=findings, taken=result) if len(name) >= LEAST_NAME else name
            below = f"{path}/{kept}"
            if manifest and name in ("data", "stringData"):
                new = self._whole(item, below, findings=findings, rule="secret-manifest")
            elif isinstance(item, str) and name == "data" and value.get("type") == "media":
                new = self._media(value, item, below, findings=findings, places=places)
            elif isinstance(item, str):
                kind = named if name == "value" and named else context.is_secret_key(name)
                new = self._field(item, below, findings=findings, places=places, kind=kind)
            else:
                new = self._value(item, below, findings=findings, places=places)
            result[kept] = new
        same = all(new is old for new, old in zip(result.values(), value.values(), strict=True))
        return value if same and list(result) == list(value) else result

    def _name(self, name: str, path: str, *, findings: list[Finding], taken: Mapping[str, Any]) -> str:
        """Return an object's key without the secret that it is or holds; two keys stay two."""
        data = name.encode("utf-8", "surrogatepass")
        spans = [span for span in self.spans(data, places=False) if span.tier <= Tier.FORMAT]
        if not spans:
            return name
        new, replaced = self._without(data, spans, before=[])
        kept = unique = new.decode("utf-8", "surrogatepass")
        count = 1
        while unique in taken:
            count += 1
            unique = f"{kept} ({count})"
        findings += [Finding(f"{path}/{unique}", each.rule, 1, self._sealed([each.secret])) for each in replaced]
        return unique

    def _array(self, value: list[Any], path: str, *, findings: list[Finding], places: bool) -> list[Any]:
        before, value = value, self._across(value, path, findings=findings, places=places)
        is_pair = len(value) == 2 and all(isinstance(item, str) for item in value)
        kind = context.is_secret_key(value[0]) if is_pair else None
        result = [
            self._field(item, f"{path}/{index}", findings=findings, places=places, kind=kind)
            if kind and index
            else self._value(item, f"{path}/{index}", findings=findings, places=places)
            for index, item in enumerate(value)
        ]
        return before if all(new is old for new, old in zip(result, before, strict=True)) else result

    def _across(self, value: list[Any], path: str, *, findings: list[Finding], places: bool) -> list[Any]:
        """Return the list without the secrets that only its texts together show."""
        texts = [_text_of(item) for item in value]
        if len(texts) < 2 or any(text is None for text in texts):
            return value
        pieces = pieces_across(
            [str(text).encode("utf-8", "surrogatepass") for text in texts], lambda data: self.spans(data, places=places)
        )
        if not pieces:
            return value
        result = list(value)
        for number in {piece.item for piece in pieces}:
            own = [piece for piece in pieces if piece.item == number]
            result[number] = _with_text(value[number], self._cut(str(texts[number]), own))
            findings += [Finding(f"{path}/{number}", piece.rule, 1) for piece in own if piece.is_first]
        return result

    def _cut(self, text: str, pieces: Sequence[Piece]) -> str:
        """Return the text without these pieces; in the place of a first one stands the replacement."""
        data = text.encode("utf-8", "surrogatepass")
        parts, at = [], 0
        for piece in pieces:
            secret = data[piece.start : piece.end].decode("utf-8", "replace")
            parts += [data[at : piece.start], self.replacement(piece.rule, secret).encode() if piece.is_first else b""]
            at = piece.end
        return b"".join([*parts, data[at:]]).decode("utf-8", "replace")

    def _field(self, text: str, path: str, *, findings: list[Finding], places: bool, kind: str | None) -> str:
        if kind is None or not context.is_secret_value(text, kind=kind):
            return self._text(text, path, findings=findings, places=places)
        findings.append(Finding(path, kind, 1, self._sealed([text])))
        return self.replacement(kind, text)

    def _whole(self, value: Any, path: str, *, findings: list[Finding], rule: str) -> Any:
        """Return a value with every text in it replaced."""
        if isinstance(value, str) and value and not value.startswith("[redacted:"):
            findings.append(Finding(path, rule, 1, self._sealed([value])))
            return self.replacement(rule, value)
        if isinstance(value, dict):
            new = {
                name: self._whole(item, f"{path}/{name}", findings=findings, rule=rule) for name, item in value.items()
            }
            return value if all(new[name] is item for name, item in value.items()) else new
        return value

    def _media(self, part: Mapping[str, Any], data: str, path: str, *, findings: list[Finding], places: bool) -> str:
        """Return the base64 of a file; of one that is text, without the secrets in it."""
        if not str(part.get("media_type", "")).startswith(_TEXT_MEDIA):
            return data
        try:
            text = base64.b64decode(data, validate=True).decode()
        except (binascii.Error, ValueError):
            return data
        new = self._text(text, path, findings=findings, places=places)
        return data if new is text else base64.b64encode(new.encode()).decode()

    # ---- texts -----------------------------------------------------------------------------------------------------

    def _text(self, text: str, path: str, *, findings: list[Finding], places: bool) -> str:
        if len(text) < SHORTEST:
            return text
        data, replaced = self._replaced(text.encode("utf-8", "surrogatepass"), places=places)
        if not replaced:
            return text
        by_rule: dict[str, list[str]] = {}
        for each in replaced:
            by_rule.setdefault(each.rule, []).append(each.secret)
        findings += [Finding(path, rule, len(found), self._sealed(found)) for rule, found in by_rule.items()]
        return data.decode("utf-8", "surrogatepass")

    def _replaced(self, data: bytes, *, places: bool) -> tuple[bytes, list[Replaced]]:
        """Return the text until nothing more is found in it, and what was taken out, in the order of the text.

        What stands beside a secret may be one without it, so after the first look those places are looked at again.
        """
        replaced: list[Replaced] = []
        windows = [(0, len(data))]
        for _ in range(_MOST_PASSES):
            spans = [
                span._replace(start=span.start + first, end=span.end + first)
                for first, last in windows
                for span in self.spans(data[first:last] if last - first < len(data) else data, places=places)
            ]
            if not spans:
                break
            data, replaced = self._without(data, spans, before=replaced)
            windows = windows_around(data, [(each.at, each.at + each.length) for each in replaced])
        return data, replaced

    def _without(self, data: bytes, spans: Sequence[Span], *, before: list[Replaced]) -> tuple[bytes, list[Replaced]]:
        """Return the text with these spans replaced, and everything that was, at the places where it stands now."""
        parts: list[bytes] = []
        now: list[Replaced] = []
        rest = list(reversed(before))
        at = shift = 0
        for span in spans:
            while rest and rest[-1].at < span.start:
                now.append(rest[-1]._replace(at=rest.pop().at + shift))
            secret = data[span.start : span.end].decode("utf-8", "replace")
            mark = self.replacement(span.rule, secret).encode()
            now.append(Replaced(span.start + shift, len(mark), span.rule, secret))
            parts += [data[at : span.start], mark]
            at = span.end
            shift += len(mark) - (span.end - span.start)
        now += [each._replace(at=each.at + shift) for each in reversed(rest)]
        return b"".join([*parts, data[at:]]), now

    def spans(self, data: bytes, *, places: bool = True) -> list[Span]:
        """Return where the secrets of a UTF-8 text are, those too that invisible characters or colours run through."""
        finder = self._with_places if places else self._finder
        found = finder.find(data)
        plain = undisguised(data)
        if plain is None:
            return found
        hidden = [
            span._replace(start=origin[0], end=origin[1])
            for span in finder.find(plain.data)
            if (origin := plain.origin(span.start, span.end)) is not None
        ]
        return merged([*found, *hidden]) if hidden else found

    def leads(self, data: bytes) -> list[int]:
        """Return where something stands that may lead to a secret, in order."""
        return self._with_places.leads(data)

    def may_begin_at(self, data: bytes) -> int:
        """Return from where on the end of a text may be the beginning of something that leads to a secret."""
        return self._with_places.may_begin_at(data)

    def replacement(self, rule: str, secret: str) -> str:
        """Return what stands for a secret."""
        if self._hash_key is None:
            return f"[redacted:{rule}]"
        data = secret.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(data, key=self._hash_key[:64], digest_size=6).hexdigest()
        return f"[redacted:{rule}:{digest}]"

    def _sealed(self, secrets: Sequence[str]) -> tuple[str, ...]:
        return () if self._seal is None else tuple(self._seal(secret) for secret in secrets)


def windows_around(data: bytes, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the lines around these places, with more on both sides, each byte once."""
    windows: list[tuple[int, int]] = []
    for start, end in places:
        first = data.rfind(b"\n", 0, max(0, start - _AGAIN)) + 1
        last = data.find(b"\n", end + _AGAIN)
        last = len(data) if last < 0 else last + 1
        if windows and first <= windows[-1][1]:
            windows[-1] = (windows[-1][0], max(last, windows[-1][1]))
        else:
            windows.append((first, last))
    return windows


def _text_of(item: Any) -> str | None:
    """Return the text that an item of a list is, or that a part of a message has."""
    if isinstance(item, dict) and item.get("type") in ("text", "input_text", "output_text"):
        item = item.get("text")
    return item if isinstance(item, str) else None


def _with_text(item: Any, text: str) -> Any:
    return {**item, "text": text} if isinstance(item, dict) else text


def _secret_of_pair(value: Mapping[str, Any]) -> str | None:
    """Return what kind of secret `value` is in `{"name": "DB_PASSWORD", "value": "…"}`, the way many lists are written."""
    for label in ("name", "key", "Name", "Key"):
        name = value.get(label)
        if isinstance(name, str) and "value" in value:
            return context.is_secret_key(name)
    return None
