"""Session keys: where a message belongs. A key routes; it is neither the id of a history nor a right to see it (A20)."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, fields
from urllib.parse import unquote

from kipu.errors import InvalidSessionKeyError

SCOPES = frozenset({"direct", "group", "thread", "task", "job"})
MAX_KEY_LENGTH = 1_024
_HALF = re.compile("[\ud800-\udfff]")
_RESERVED = frozenset("%:;=/\\ ")
_NAMED = ("tenant", "agent", "account", "scope", "thread_id", "member")


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Where a message belongs, by parts. `str()` is the canonical text: equal for equal keys, different for different ones (A21).

    The short form `channel:chat_id` is the default (A6). Other parts follow as `;name=value` in a fixed order. Parts are
    brought to Unicode NFC, keep their case, and have separators percent-escaped.

    >>> str(SessionKey("telegram", "42"))
    'telegram:42'
    >>> str(SessionKey("slack", "C1", scope="thread", thread_id="17.5"))
    'slack:C1;scope=thread;thread_id=17.5'
    """

    channel: str
    chat_id: str
    tenant: str | None = None
    agent: str | None = None
    account: str | None = None
    scope: str | None = None
    thread_id: str | None = None
    member: str | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if value is None and part.name in _NAMED:
                continue
            object.__setattr__(self, part.name, _checked(part.name, value))
        if self.scope is not None and self.scope not in SCOPES:
            raise InvalidSessionKeyError(key=self.scope, reason=f"the scope is not one of {', '.join(sorted(SCOPES))}")
        if len(str(self)) > MAX_KEY_LENGTH:
            raise InvalidSessionKeyError(
                key=str(self)[:80] + "…", reason=f"it is longer than {MAX_KEY_LENGTH} characters"
            )

    def __str__(self) -> str:
        named = [f";{name}={_escape(value)}" for name in _NAMED if (value := getattr(self, name)) is not None]
        return f"{_escape(self.channel)}:{_escape(self.chat_id)}{''.join(named)}"

    @classmethod
    def parse(cls, text: object) -> SessionKey:
        """Return the key that `text` (or a `SessionKey`) writes; a chat id may hold further colons.

        Raises:
            InvalidSessionKeyError: a part is missing, empty, unknown or given twice (A5).
        """
        if isinstance(text, SessionKey):
            return text
        if not isinstance(text, str) or ":" not in text:
            raise InvalidSessionKeyError(key=text, reason="it has no channel and chat id")
        address, *extras = text.split(";")
        channel, _, chat_id = address.partition(":")
        named: dict[str, str] = {}
        for extra in extras:
            name, equals, value = extra.partition("=")
            if name not in _NAMED or not equals or name in named:
                raise InvalidSessionKeyError(key=text, reason=f"{extra!r} is not one of its named parts")
            named[name] = unquote(value, errors="strict")
        return cls(unquote(channel, errors="strict"), unquote(chat_id, errors="strict"), **named)


def arrival_key(*, tenant: str, channel: str, account: str, source_message_id: str, revision: str = "") -> str:
    """Return the idempotency key of a message from outside: the same delivery twice has the same one (C4)."""
    parts = (tenant, channel, account, source_message_id, revision)
    # Half a character is written out: no store can keep it, and two ids that differ in it are two messages.
    escaped = (part.replace("%", "%25").replace("/", "%2F") for part in parts)
    return "arrival:" + "/".join(_HALF.sub(lambda found: f"%u{ord(found[0]):X}", part) for part in escaped)


def _checked(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidSessionKeyError(key=value, reason=f"its {name} is empty")
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in value):
        raise InvalidSessionKeyError(key=value, reason=f"its {name} has control characters")
    return unicodedata.normalize("NFC", value)


def _escape(part: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _RESERVED else char for char in part)
