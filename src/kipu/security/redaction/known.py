"""Secrets that are known, and the forms in which programs write them."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST = 8
_NAMES = re.compile(
    r"(?:PASS(?:WORD|WD|PHRASE)?|SECRETS?|TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SECRET_?KEY|CREDENTIALS?|AUTH|DSN|[A-Z]_KEY)"
    r"(?:_(?!FILE|PATH|SOCK|URL|URI|ID|NAME|TYPE|MODE|METHOD|PROVIDER|HOST|USER|REGION|TTL|EXPIR|STORE|BACKEND|SIZE|LEN|COUNT|LIMIT)\w+)?",
    re.IGNORECASE,
)
_OTHER = re.compile(
    r".*_(?:FILE|PATH|SOCK|SOCKET|DIR|URL|URI|ID|NAME|TYPE|MODE|METHOD|PROVIDER|HOST|USER|REGION|TTL|EXPIRES|STORE|BACKEND|PARALLELISM|"
    r"ALGORITHM|ISSUER|AUDIENCE|SCOPES?|ENABLED|VERSION|PREFIX|HEADER|LIMIT|COUNT|SIZE)",
    re.IGNORECASE,
)
# A word, a number, a path, an address without a password, words with signs between them.
_PLAIN = re.compile(r"(?:[a-z]+|[A-Z]+|[0-9]{1,9}|[a-zA-Z]+(?:[-_.:,][a-zA-Z]+)+|~?/[\w./-]*|[a-z]+://[^@]*)")


def secrets_of_environment(environment: Mapping[str, str]) -> list[str]:
    """Return the values of variables that are named like secrets, but for words, numbers, paths and addresses."""
    return [value for name, value in environment.items() if _is_secret(name, value)]


def secrets_of_settings(table: Any, *, named: bool = False) -> list[str]:
    """Return the texts of a configuration that are named like secrets; below `credentials` and `headers` every one is.

    What is `${NAME}` stands for a variable, whose value the environment has.
    """
    if isinstance(table, Mapping):
        return [
            secret
            for name, value in table.items()
            for secret in (
                ([value] if (named and not _PLAIN.fullmatch(value)) or _is_secret(str(name), value) else [])
                if isinstance(value, str)
                else secrets_of_settings(value, named=named or str(name) in ("credentials", "headers"))
            )
            if len(secret) >= SHORTEST and "${" not in secret
        ]
    if isinstance(table, list):
        return [secret for item in table for secret in secrets_of_settings(item, named=named)]
    return []


def _is_secret(name: str, value: str) -> bool:
    named = _NAMES.search(name) is not None and _OTHER.fullmatch(name) is None
    return named and len(value) >= SHORTEST and _PLAIN.fullmatch(value) is None


def forms_of(secrets: Iterable[str]) -> tuple[bytes, ...]:
    """Return every form of the secrets, each once: plain, escaped for JSON, URLs and HTML, in hex, in base64 wherever it begins.

    JSON is escaped once and twice; base64 is that of UTF-8, and of UTF-16 as PowerShell takes commands.

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
        json.dumps(json.dumps(text)[1:-1])[1:-1],
        html.escape(text),
        html.escape(text, quote=False),
        html.escape(text).replace("&#x27;", "&#39;"),
    ]
    if not any("\ud800" <= character <= "\udfff" for character in text):
        encoded = (quote(text), quote(text, safe=""), quote_plus(text))
        texts += [form for each in encoded for form in (each, re.sub("%[0-9A-F]{2}", lambda m: m[0].lower(), each))]
    forms = [data, *(form.encode("utf-8", "surrogatepass") for form in texts)]
    digits = data.hex()
    forms += [digits.encode(), digits.upper().encode()]
    forms += ["".join(f"{mark}{byte:02x}" for byte in data).encode() for mark in ("\\x", "%")]
    for plain in (data, text.encode("utf-16-le", "surrogatepass")):
        forms += _base64_forms(plain)
    return [form for form in forms if len(form) >= SHORTEST]


def _base64_forms(data: bytes) -> list[bytes]:
    forms = []
    for shift in range(3):
        # The characters at both ends also hold bits of what is beside the secret: only those between are the secret's own.
        coded = base64.b64encode(b"\0" * shift + data)
        first, last = (shift * 8 + 5) // 6, (shift + len(data)) * 8 // 6
        forms += [coded[first:last], coded[first:last].translate(bytes.maketrans(b"+/", b"-_"))]
    return forms
