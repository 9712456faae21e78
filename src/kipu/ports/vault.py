"""The seam to the key vault: what keeps a store's wrapped keys, apart from what they seal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol


class WrappedKey(NamedTuple):
    """One data key as it is kept: under which key-encryption key, and its bytes then."""

    session_id: str
    epoch: int
    kek: str
    wrapped: bytes


class VaultContent(NamedTuple):
    """All that a vault keeps, for another one to keep: blobs are (session, hidden digest, place)."""

    salt: bytes | None
    settings: dict[str, Any]
    keys: tuple[WrappedKey, ...]
    blobs: tuple[tuple[str, str, str], ...]
    shredded: tuple[str, ...]


class KeyVault(Protocol):
    """Keep wrapped keys for any number of processes at once; no key in clear ever comes here.

    Contract:
    - Every change is one transaction, durable on return; of changes that exclude each other one happens (C20).
    - A key that was destroyed is not made again, and a key-encryption key that was retired wraps nothing more.
    - "Cannot read" is an error, never "no keys" (A50).

    Raises everywhere: StoreUnavailableError, StoreFullError, StoreReadOnlyError, StoreCorruptError, StoreClosedError.
    """

    @property
    def place(self) -> str:
        """Return what messages call the vault."""
        ...

    async def keys(self, session_id: str) -> list[WrappedKey]:
        """Return the session's wrapped keys by epoch; none where there are none."""
        ...

    async def add(self, key: WrappedKey) -> WrappedKey:
        """Keep a key where there is none, and return the one that stands there. Raises: KeyRetiredError, SessionErasedError."""
        ...

    def rotating(self) -> AbstractAsyncContextManager[None]:
        """Be the only one who rotates, in any process; a killed one is in nobody's way for long. Raises: KeysBusyError."""
        ...

    async def retire(self, kek: str) -> None:
        """Let `kek` alone wrap from now on: every other key that wraps something is refused by `add` in every process."""
        ...

    async def rewrap(self, pairs: Sequence[tuple[WrappedKey, WrappedKey]]) -> int:
        """Put each new form where the old one still stands, all in one transaction; return how many it was.

        Raises: KeysBusyError where another rotation took over meanwhile; nothing of the batch was changed then.
        """
        ...

    async def not_under(self, kek: str, *, after: tuple[str, int], limit: int) -> list[WrappedKey]:
        """Return keys that another key-encryption key wraps, in order, from behind a place."""
        ...

    async def counts(self) -> dict[str, int]:
        """Return how many data keys each key-encryption key wraps."""
        ...

    async def sizes(self) -> tuple[int, int, int]:
        """Return how many sessions have keys, how many keys that is, and of how many they were destroyed."""
        ...

    async def shred(self, session_id: str) -> None:
        """Destroy the session's keys and leave its id behind, so that none is made for it again."""
        ...

    async def is_shredded(self, session_id: str) -> bool:
        """Return whether the session's keys were destroyed."""
        ...

    async def constant(self, name: str, value: bytes) -> bytes:
        """Return what the vault has under a name; `value` becomes that where it has nothing. Nothing is written where it has."""
        ...

    async def settings(self) -> dict[str, Any]:
        """Return what the store is to be opened with: `source`, `older`, `chain`, `fields`. No secret is among it."""
        ...

    async def set_settings(self, changes: Mapping[str, Any]) -> None:
        """Change settings; None removes one. Nothing is written where they are so already."""
        ...

    async def sessions(self, *, after: str, limit: int) -> list[tuple[str, int]]:
        """Return ids of sessions that have keys, from behind one, each with its newest epoch."""
        ...

    async def version(self) -> int:
        """Return a number that changes when somebody else made a new epoch or destroyed keys."""
        ...

    async def blob_places(self, session_id: str) -> dict[str, str]:
        """Return the hidden digests of a session's blobs with their places."""
        ...

    async def blob_place(self, session_id: str, digest: str) -> str | None:
        """Return the place of a blob by its hidden digest."""
        ...

    async def place_blob(self, session_id: str, digest: str, *, place: str, instead_of: str | None = None) -> None:
        """Remember where a blob is; the first place stays, but for the one that this is `instead_of`."""
        ...

    async def close(self) -> None:
        """Close what the keys are kept in. Closing twice is harmless."""
        ...


class VaultPlace(Protocol):
    """Where a store's vault is, or would be."""

    @property
    def shown(self) -> str:
        """Return what messages call it."""
        ...

    async def is_there(self) -> bool:
        """Return whether there is a vault, that is: whether the store is encrypted. Nothing is made by asking."""
        ...

    async def open(self) -> KeyVault:
        """Return the vault, made where there is none. Raises: StoreError."""
        ...
