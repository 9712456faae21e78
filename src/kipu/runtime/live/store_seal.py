"""Pieces under the session's own data key, so that a server between sees no more of them than of the events."""

from __future__ import annotations

import binascii

from kipu.ports.cipher import SessionCipher, StoreKeys

_CONTEXT = b"kipu live piece"
_OVERHEAD = 64  # what a seal adds to the data, at most


class StoreSeal:
    """Seal with the keys of an encrypted store."""

    def __init__(self, keys: StoreKeys) -> None:
        self._keys = keys

    def room(self, most_bytes: int) -> int:
        """Return how many bytes may be sealed for the outcome to fit."""
        return most_bytes * 3 // 4 - _OVERHEAD

    async def seal(self, session_id: str, data: bytes) -> str:
        """Return the data sealed, as text. Raises: EncryptionError."""
        cipher = await self._cipher(session_id)
        return binascii.b2a_base64(cipher.seal(data, _CONTEXT), newline=False).decode()

    async def open(self, session_id: str, text: str) -> bytes:
        """Return what was sealed. Raises: EncryptionError, ValueError."""
        return (await self._cipher(session_id)).open(binascii.a2b_base64(text), _CONTEXT)

    async def _cipher(self, session_id: str) -> SessionCipher:
        return self._keys.known(session_id) or await self._keys.cipher(session_id)
