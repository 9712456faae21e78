"""Secrets that are known, and the forms in which programs write them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

SHORTEST = 8
_NAMES = re.compile(
    r"(?:PASS(?:WORD|WD|PHRASE)?|SECRET|TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?|AUTH|DSN)(?:_\w+)?",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"(?:[a-z]+|[A-Z]+|[0-9]{1,9}|/[\w./-]*|[a-z]+://[^@]*)")


def secrets_of_environment(environment: Mapping[str, str]) -> list[str]:
    """Return the values of variables that are named like secrets, but for words, numbers, paths and addresses."""
    found = []
    for name, value in environment.items():
        named = _NAMES.search(name) and not name.endswith(("_FILE", "_PATH", "_SOCK", "_URL", "_ID", "_NAME"))
        if named and len(value) >= SHORTEST and not _PLAIN.fullmatch(value):
            found.append(value)
    return found


def forms_of(secrets: Iterable[str]) -> tuple[bytes, ...]:
    """Return every form of the secrets, each once: plain, base64 at three alignments, URL-encoded, JSON-escaped, hex.

    A secret of fewer than eight characters has none: it would be found everywhere.
    """
    found: dict[bytes, None] = {}
    for secret in secrets:
        text = secret.strip()
        if len(text) >= SHORTEST:
            found.update(dict.fromkeys(_forms(text)))
    return tuple(found)


def _forms(text: str) -> list[bytes]:
    data = text.encode("utf-8", "surrogatepass")
    texts = [
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        json.dumps(text)[1:-1].replace("/", "\\/"),
    ]
    if not any("\ud800" <= character <= "\udfff" for character in text):
        encoded = (quote(text), quote(text, safe=""), quote_plus(text))
        texts += [form for each in encoded for form in (each, re.sub("%[0-9A-F]{2}", lambda m: m[0].lower(), each))]
    forms = [data, *(form.encode("utf-8", "surrogatepass") for form in texts)]
    forms += [data.hex().encode(), data.hex().upper().encode()]
    for shift in range(3):
        # The characters at both ends also hold bits of what is beside the secret: only those between are the secret's own.
        coded = base64.b64encode(b"\0" * shift + data)
        first, last = (shift * 8 + 5) // 6, (shift + len(data)) * 8 // 6
        forms += [coded[first:last], coded[first:last].translate(bytes.maketrans(b"+/", b"-_"))]
    return [form for form in forms if len(form) >= SHORTEST]
