"""What was taken out, sealed, so that whoever holds the vault's key can have it back."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kipu.errors import KeySourceError, KeyUnavailableError
from kipu.ports.clock import Entropy
from kipu.security.cipher import KEY_BYTES, aes_gcm
from kipu.security.key_provider import kek_name

_CONTEXT = b"kipu redaction vault 1"
_NONCE_BYTES = 12


class SecretVault:
    """Seal and open secrets with keys of 32 bytes: the last one seals, all of them open."""

    def __init__(self, keys: Sequence[bytes], *, entropy: Entropy) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise KeySourceError(
                source="the redaction vault", reason=f"a key is {KEY_BYTES} bytes, and there must be one"
            )
        self._keys = {kek_name(key): key for key in keys}
        self._current = kek_name(keys[-1])
        self._entropy = entropy

    def seal(self, secret: str) -> str:
        """Return the secret sealed under the last key, with the key's name before it."""
        nonce = self._entropy.random_bytes(_NONCE_BYTES)
        data = secret.encode("utf-8", "surrogatepass")
        sealed: bytes = aes_gcm(self._keys[self._current]).encrypt(nonce, data, _CONTEXT)
        return f"{self._current}.{base64.b64encode(nonce + sealed).decode()}"

    def open(self, sealed: str) -> str:
        """Return the secret. Raises: KeyUnavailableError (it was sealed under another key, or changed)."""
        name, _, text = sealed.partition(".")
        key = self._keys.get(name)
        if key is None:
            raise self._unavailable(name)
        primitive = aes_gcm(key)
        from cryptography.exceptions import InvalidTag

        try:
            data = base64.b64decode(text, validate=True)
            plain: bytes = primitive.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _CONTEXT)
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise self._unavailable(name) from error
        return plain.decode("utf-8", "surrogatepass")

    def _unavailable(self, name: str) -> KeyUnavailableError:
        given = ", ".join(sorted(self._keys))
        return KeyUnavailableError(store="", reason="", what="A redacted secret", kek=name, given=given)


def restored(fields: Mapping[str, Any], *, open_sealed: Callable[[str], str]) -> dict[str, Any]:
    """Return an event's fields with what its `normalised` holds sealed put back; the rest of them as they are.

    Raises: KeyUnavailableError.
    """
    result = {name: value for name, value in fields.items() if name != "normalised"}
    for path, sealed in _sealed_by_path(fields.get("normalised")).items():
        names = path.strip("/").split("/")
        result = _with(result, names, {rule: [open_sealed(each) for each in found] for rule, found in sealed.items()})
    return result


def _sealed_by_path(notes: Any) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for note in notes if isinstance(notes, list) else ():
        if isinstance(note, dict) and note.get("kind") == "redacted" and note.get("sealed"):
            found.setdefault(note["path"], {}).setdefault(note["rule"], []).extend(note["sealed"])
    return found


def _with(value: Any, names: Sequence[str], secrets: Mapping[str, list[str]]) -> Any:
    if not names:
        return _put_back(value, secrets) if isinstance(value, str) else value
    if isinstance(value, dict):
        # A name may hold the sign that separates names: the longest one that is there is meant.
        for count in range(len(names), 0, -1):
            name = "/".join(names[:count])
            if name in value:
                return {**value, name: _with(value[name], names[count:], secrets)}
    if isinstance(value, list) and names[0].isdigit() and int(names[0]) < len(value):
        place = int(names[0])
        return [*value[:place], _with(value[place], names[1:], secrets), *value[place + 1 :]]
    return value


def _put_back(text: str, secrets: Mapping[str, list[str]]) -> str:
    """Return the text with the replacements of each rule put back in their order, where there are as many as were sealed."""
    for rule, found in secrets.items():
        mark = re.compile(rf"\[redacted:{re.escape(rule)}(?::[0-9a-f]{{12}})?\]")
        pieces = mark.split(text)
        if len(pieces) == len(found) + 1:
            text = "".join(piece + secret for piece, secret in zip(pieces, [*found, ""], strict=True))
    return text
