"""A key management service to try: it keeps its keys to itself, binds contexts, can be down, and can say no."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from kipu.security.key_provider import KmsKeys, Wrapping


class FakeKeyService:
    """Wrap and unwrap as a cloud service does: the caller sees bytes and a name, never a key.

    `down` makes every call fail as a network does, `denied` as a permission that was taken away; `calls` counts them.
    """

    def __init__(self, *names: str) -> None:
        self._keys = {name: hashlib.sha256(f"the key {name}".encode()).digest() for name in names}
        self.down = False
        self.denied = False
        self.calls = 0

    def source(self, name: str, *, older: Sequence[str] = ()) -> KmsKeys:
        """Return what a store is given: `name` wraps and unwraps, the older ones unwrap."""
        return KmsKeys(
            name,
            wrap=lambda key, context: self._wrap(name, key, context=context),
            unwrap=lambda wrapped, context: self._unwrap(name, wrapped, context=context),
            older={each: self._unwrapping(each) for each in older},
        )

    def _unwrapping(self, name: str) -> Wrapping:
        return lambda wrapped, context: self._unwrap(name, wrapped, context=context)

    def _wrap(self, name: str, key: bytes, *, context: bytes) -> bytes:
        self._called()
        stream = self._stream(name, context, size=len(key))
        sealed = bytes(a ^ b for a, b in zip(key, stream, strict=True))
        return sealed + self._tag(name, sealed, context=context)

    def _unwrap(self, name: str, wrapped: bytes, *, context: bytes) -> bytes:
        self._called()
        sealed, tag = wrapped[:-32], wrapped[-32:]
        if not hmac.compare_digest(tag, self._tag(name, sealed, context=context)):
            raise ValueError("InvalidCiphertextException")
        return bytes(a ^ b for a, b in zip(sealed, self._stream(name, context, size=len(sealed)), strict=True))

    def _called(self) -> None:
        self.calls += 1
        if self.down:
            raise ConnectionError("the service does not answer")
        if self.denied:
            raise PermissionError("AccessDeniedException")

    def _stream(self, name: str, context: bytes, *, size: int) -> bytes:
        return hashlib.shake_256(self._keys[name] + context).digest(size)

    def _tag(self, name: str, sealed: bytes, *, context: bytes) -> bytes:
        return hmac.digest(self._keys[name], sealed + context, "sha256")
