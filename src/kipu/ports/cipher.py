"""What a store wrapper needs in order to seal: one cipher per session, and keyed forms of what must stay findable."""

from __future__ import annotations

from typing import Protocol


class SessionCipher(Protocol):
    """Seal and open what belongs to one session.

    Contract:
    - What was sealed for one session, or under one context, opens nowhere else (C20).
    - `open` returns the very bytes that were sealed, or raises; it never returns less.
    """

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return `plain` sealed under the session's newest data key."""
        ...

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Return what was sealed. Raises: SealBrokenError, DataKeyMissingError (an epoch this cipher does not have)."""
        ...

    def tag(self, data: bytes) -> bytes:
        """Return a keyed tag of 32 bytes, the same in every epoch."""
        ...


class StoreKeys(Protocol):
    """The keys of one store.

    Contract:
    - A session's data key is durable before its cipher is given out, and is the same for all who ask (C20).
    - A key that is missing or cannot be opened is an error, never a fresh key (A50).
    - After `shred` returned nothing can open what the session sealed.
    """

    async def begin(self, session_id: str) -> SessionCipher:
        """Return the cipher of a session that begins, with a data key made if there is none. Raises: SessionErasedError."""
        ...

    async def cipher(self, session_id: str, *, fresh: bool = False) -> SessionCipher:
        """Return the session's cipher; `fresh` reads its keys again. Raises: DataKeyMissingError, KeyUnavailableError."""
        ...

    def known(self, session_id: str) -> SessionCipher | None:
        """Return the session's cipher where it is at hand and its keys are still the same."""
        ...

    async def shred(self, session_id: str) -> None:
        """Destroy the session's data keys, durably. Shredding twice is harmless."""
        ...

    def term(self, term: str) -> str:
        """Return the keyed form of a search term; the form of a term's start is the start of its form."""
        ...

    def blind(self, text: bytes) -> str:
        """Return a keyed hash: equal for equal text, and telling nothing else."""
        ...

    def hide(self, name: str) -> str:
        """Return a keyed form that is equal for equal names and that `reveal` turns back."""
        ...

    def reveal(self, hidden: str) -> str:
        """Return the name. Raises: SealBrokenError."""
        ...

    async def blob_places(self, session_id: str) -> dict[str, str]:
        """Return under which digest the inner store keeps each blob, by the digest of its plain bytes."""
        ...

    async def blob_place(self, session_id: str, digest: str) -> str | None:
        """Return the place of one blob."""
        ...

    async def place_blob(self, session_id: str, digest: str, *, place: str, instead_of: str | None = None) -> None:
        """Remember where a blob is; the first place stays, but for the one that this is `instead_of`: nothing is there any more."""
        ...

    async def close(self) -> None:
        """Close what the keys are kept in. Closing twice is harmless."""
        ...
