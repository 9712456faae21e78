"""AES-256-GCM over one session's data keys (docs/formats/encryption.md). The library is loaded when the first key is used."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import orjson

from kipu.errors import DataKeyMissingError, MissingExtraError, SealBrokenError
from kipu.ports.clock import Entropy

KEY_BYTES = 32
_NONCE_BYTES = 12
_EPOCH_BYTES = 4
_OVERHEAD = _EPOCH_BYTES + _NONCE_BYTES + 16
_CHAIN = b"kipu chain 1"


def aes_gcm(key: bytes) -> Any:
    """Return the primitive for a key. Raises: MissingExtraError."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtraError(feature="encryption", package="cryptography", extra="security") from error
    return AESGCM(key)


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag


class AesGcmCipher:
    """Seal and open one session's bytes: epoch, random nonce, ciphertext, tag; bound to session, epoch and context (EN-2).

    Nonces are random and never counted: after a torn tail is repaired the same number is written again with other bytes.
    """

    def __init__(self, session_id: str, data_keys: Mapping[int, bytes], *, entropy: Entropy) -> None:
        self._session_id = session_id
        self._random_bytes = entropy.random_bytes
        self._keys = {epoch: (aes_gcm(key), _binding(session_id, epoch)) for epoch, key in data_keys.items()}
        newest = max(data_keys)
        primitive, self._newest_binding = self._keys[newest]
        self._encrypt = primitive.encrypt
        self._newest_epoch = newest.to_bytes(_EPOCH_BYTES, "big")
        self._invalid = _invalid_tag()
        self._chain_key = hmac.digest(data_keys[min(data_keys)], _CHAIN, "sha256")

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return `plain` sealed under the newest epoch."""
        nonce = self._random_bytes(_NONCE_BYTES)
        sealed: bytes = self._encrypt(nonce, plain, self._newest_binding + context)
        return b"".join((self._newest_epoch, nonce, sealed))

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Return what was sealed under this context, or raise."""
        epoch = int.from_bytes(sealed[:_EPOCH_BYTES], "big")
        known = self._keys.get(epoch)
        if len(sealed) < _OVERHEAD:
            raise SealBrokenError(store="", reason="too short", session_id=self._session_id, where="a sealed value")
        if known is None:
            raise DataKeyMissingError(store="", session_id=self._session_id, reason=f"there is none of epoch {epoch}")
        primitive, binding = known
        try:
            plain: bytes = primitive.decrypt(
                sealed[_EPOCH_BYTES : _EPOCH_BYTES + _NONCE_BYTES],
                sealed[_EPOCH_BYTES + _NONCE_BYTES :],
                binding + context,
            )
        except self._invalid as error:
            raise SealBrokenError(
                store="", reason="its tag does not fit", session_id=self._session_id, where="a sealed value"
            ) from error
        return plain

    def tag(self, data: bytes) -> bytes:
        """Return the chain's keyed tag, under a key of its own that stays the same in every epoch."""
        return hmac.digest(self._chain_key, data, "sha256")


def _binding(session_id: str, epoch: int) -> bytes:
    return orjson.dumps(["kipu", 1, session_id, epoch])


class NameCipher:
    """The keyed forms of what must be found without being read: terms, hashes, and names that come back (EN-5, EN-6)."""

    _CACHED_TERMS = 65_536
    _STEP_CHARACTERS = 5
    _MAX_STEPS = 64

    def __init__(self, index_key: bytes) -> None:
        self._terms_key = hmac.digest(index_key, b"kipu terms 1", "sha256")
        self._blind_key = hmac.digest(index_key, b"kipu blind 1", "sha256")
        self._names_key = hmac.digest(index_key, b"kipu names 1", "sha512")
        self._siv: Any = None
        self._known: dict[str, str] = {}

    def term(self, term: str) -> str:
        """Return 25 bits of hash per character, each over all characters so far: equal starts have equal starts."""
        known = self._known.get(term)
        if known is not None:
            return known
        running = hashlib.blake2b(key=self._terms_key, digest_size=4)
        steps = [*term[: self._MAX_STEPS]]
        if len(term) > self._MAX_STEPS:
            steps.append(term[self._MAX_STEPS :])
        parts = []
        for step in steps:
            running.update(step.encode("utf-8", "surrogatepass"))
            parts.append(_letters(running.copy().digest())[: self._STEP_CHARACTERS])
        form = "".join(parts)
        if len(self._known) >= self._CACHED_TERMS:
            self._known.clear()
        self._known[term] = form
        return form

    def blind(self, text: bytes) -> str:
        """Return 100 bits of keyed hash as lower-case letters and digits."""
        return _letters(hashlib.blake2b(text, key=self._blind_key, digest_size=15).digest())[:20]

    def hide(self, name: str) -> str:
        """Return the name sealed without a nonce (AES-SIV), so that equal names are equal."""
        sealed: bytes = self._primitive().encrypt(b"." + name.encode("utf-8", "surrogatepass"), None)
        return sealed.hex()

    def reveal(self, hidden: str) -> str:
        """Return the name that was hidden."""
        from cryptography.exceptions import InvalidTag

        try:
            plain: bytes = self._primitive().decrypt(bytes.fromhex(hidden), None)
        except (InvalidTag, ValueError) as error:
            raise SealBrokenError(store="", reason="not ours", session_id="", where="a hidden name") from error
        return plain[1:].decode("utf-8", "surrogatepass")

    def _primitive(self) -> Any:
        if self._siv is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV

            self._siv = AESSIV(self._names_key)
        return self._siv


_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]


def _letters(data: bytes) -> str:
    """Return base32 in lower case, two letters for each whole ten bits."""
    number = int.from_bytes(data, "big")
    count = len(data) * 8 // 10
    return "".join([_PAIRS[number >> (10 * (count - 1 - at)) & 1023] for at in range(count)])
