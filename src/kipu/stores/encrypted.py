"""A store under seal: what the store inside keeps of a session's content opens only with its keys (docs/formats/encryption.md)."""

from __future__ import annotations

import asyncio
import builtins
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from kipu.errors import (
    BlobNotFoundError,
    DataKeyMissingError,
    EncryptionError,
    SealBrokenError,
    SessionArchivedError,
    SessionNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from kipu.ports.cipher import SessionCipher, StoreKeys
from kipu.ports.head import EMPTY_PATCH, Head, HeadPatch
from kipu.ports.store import (
    MAX_PAGE,
    Appended,
    Binding,
    Damage,
    ErasureReceipt,
    EventStore,
    Hit,
    IndexEntry,
    Lease,
    Outcome,
    Page,
    Phrase,
    Record,
    SearchQuery,
    SessionQuery,
    StoreDescription,
    StoredEvent,
)
from kipu.stores.sealed_head import context_of, open_head, seal_patch, seal_query, without_text
from kipu.stores.sealed_record import open_event, seal_record
from kipu.stores.wrapper import WrappedStore

T = TypeVar("T")
_FIRST = "first_text"
_SESSIONS_KEPT = 4096
_NEVER = -1  # no session has it as its last seq: an append that expects it is refused, unless its key is known


class EncryptedStore(WrappedStore):
    """Keep the contract of the store inside while it sees bodies, texts of heads, blobs and terms sealed or hashed (B55, C20).

    `fields` seals these fields of bodies and leaves the others clear, but bound. With `hide_broken` an event whose seal does
    not hold is left out of reads, as a store does with a damaged line, instead of being an error; `verify` reports both.
    """

    def __init__(
        self,
        inner: EventStore,
        keys: StoreKeys,
        *,
        fields: frozenset[str] | None = None,
        hide_broken: bool = False,
    ) -> None:
        super().__init__(inner)
        self.store_keys = keys
        self._fields = fields
        self._hide_broken = hide_broken
        self._has_first: set[str] = set()
        self._placing: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def around(self, inner: EventStore) -> EventStore:
        """Return another store under the same keys, which close with this one."""
        return EncryptedStore(inner, self.store_keys, fields=self._fields)

    def describe(self) -> StoreDescription:
        """Return what the inner store is, and what is sealed."""
        inner = self.inner.describe()
        what = "bodies" if self._fields is None else f"the fields {', '.join(sorted(self._fields))}"
        return replace(inner, notes=(*inner.notes, f"AES-256-GCM seals {what}, heads' texts and blobs"))

    async def append(
        self,
        session_id: str,
        records: Sequence[Record],
        *,
        head: HeadPatch = EMPTY_PATCH,
        bind: Binding | None = None,
        token: int | None = None,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append the records sealed. Nothing is awaited after the inner append, so a cancellation means what it means there."""
        hidden = None if idempotency_key is None else self.store_keys.hide(idempotency_key)
        cipher = self.store_keys.known(session_id) or await self._writing(session_id, records)
        if cipher is None:
            bare = [record._replace(body=b"{}") for record in records]
            return await self.inner.append(session_id, bare, expected_seq=_NEVER, idempotency_key=hidden)
        appended = await self.inner.append(
            session_id,
            [seal_record(record, cipher, fields=self._fields) for record in records],
            head=seal_patch(self._unknown(session_id, head), cipher, keys=self.store_keys),
            bind=bind,
            token=token,
            expected_seq=expected_seq,
            idempotency_key=hidden,
        )
        if head.default.get(_FIRST) and not appended.duplicate:
            if len(self._has_first) >= _SESSIONS_KEPT:
                self._has_first.clear()
            self._has_first.add(session_id)
        return appended

    def _unknown(self, session_id: str, head: HeadPatch) -> HeadPatch:
        """Return the patch without a first text that the head has already: what every message brings is sealed once."""
        if _FIRST in head.set:
            self._has_first.discard(session_id)
        elif _FIRST in head.default and session_id in self._has_first:
            return head._replace(default={name: value for name, value in head.default.items() if name != _FIRST})
        return head

    async def _writing(self, session_id: str, records: Sequence[Record]) -> SessionCipher | None:
        """Return the cipher to seal with, or None where the inner store will refuse: there is no such session."""
        begins = any(record.event_type == "session_init" for record in records)
        try:
            return await self.store_keys.cipher(session_id)
        except DataKeyMissingError:
            try:
                if await self.inner.head(session_id) is not None:
                    raise
            except StoreUnavailableError:
                if not begins:  # a pair begins sessions without its primary; the merge finds out what that has
                    raise
        return await self.store_keys.begin(session_id) if begins else None

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = MAX_PAGE,
        backwards: bool = False,
    ) -> list[StoredEvent]:
        """Return events as they were given. Raises: SealBrokenError (not with `hide_broken`), DataKeyMissingError."""
        while True:
            page = await self.inner.read(session_id, after=after, until=until, limit=limit, backwards=backwards)
            if not page:
                return []
            events = await self._opened(session_id, partial(self._events, page))
            if events:
                return events
            if backwards:  # all of it was hidden: only an empty page is the end
                until = page[-1].seq - 1
            else:
                after = page[-1].seq

    def _events(self, page: Iterable[StoredEvent], cipher: SessionCipher) -> builtins.list[StoredEvent]:
        if not self._hide_broken:
            return [open_event(event, cipher) for event in page]
        events = []
        for event in page:
            try:
                events.append(open_event(event, cipher))
            except SealBrokenError:
                continue
        return events

    async def _opened(self, session_id: str, opening: Callable[[SessionCipher], T]) -> T:
        """Return what `opening` makes of the session's cipher; a key that another process made since is fetched."""
        try:
            return opening(await self.store_keys.cipher(session_id))
        except DataKeyMissingError:
            return opening(await self.store_keys.cipher(session_id, fresh=True))

    async def outcomes(self, session_id: str) -> builtins.list[Outcome]:
        """Return what stands under which key."""
        hidden = await self.inner.outcomes(session_id)
        return [outcome._replace(key=self.store_keys.reveal(outcome.key)) for outcome in hidden]

    async def head(self, session_id: str) -> Head | None:
        """Return the head with its text. Raises: SealBrokenError, DataKeyMissingError."""
        head = await self.inner.head(session_id)
        if head is None:
            return None
        return await self._opened(session_id, lambda cipher: open_head(head, cipher))

    async def list(self, query: SessionQuery) -> Page[Head]:
        """Return a page of heads; one whose text cannot be read is there without it, and its metadata says so."""
        page = await self.inner.list(seal_query(query, self.store_keys))
        return Page(tuple([await self._listed(head) for head in page.items]), page.cursor)

    async def runnable(self, *, now: str, limit: int) -> builtins.list[Head]:
        """Return the work there is."""
        return [await self._listed(head) for head in await self.inner.runnable(now=now, limit=limit)]

    async def _listed(self, head: Head) -> Head:
        try:
            return await self._opened(head.session_id, lambda cipher: open_head(head, cipher))
        except (SealBrokenError, EncryptionError) as error:
            return without_text(head, error)

    async def index(self, entries: Sequence[IndexEntry], *, indexed: Mapping[str, int]) -> None:
        """Give the inner store keyed forms of the terms."""
        term = self.store_keys.term
        forms = [IndexEntry(entry.session_id, entry.seq, tuple(map(term, entry.terms))) for entry in entries]
        await self.inner.index(forms, indexed=indexed)

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Search for keyed forms; a start is found by the start of its form."""
        term = self.store_keys.term
        phrases = tuple(Phrase(tuple(map(term, phrase.terms)), phrase.prefix) for phrase in query.phrases)
        return await self.inner.search(replace(query, phrases=phrases))

    async def _follow(self, events: AsyncIterator[StoredEvent]) -> AsyncIterator[StoredEvent]:
        try:
            async for event in events:
                for opened in await self._followed(event):
                    yield opened
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()

    async def _followed(self, event: StoredEvent) -> builtins.list[StoredEvent]:
        try:
            return await self._opened(event.session_id, lambda cipher: self._events([event], cipher))
        except DataKeyMissingError:
            if await self.inner.head(event.session_id) is None:  # erased meanwhile
                return []
            raise

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Follow the inner store."""
        return self._follow(self.inner.follow(session_id, after=after, types=types))

    async def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep the blob sealed and return the digest of its plain bytes."""
        if await self.inner.head(session_id) is None:
            raise SessionNotFoundError(session_id=session_id)
        digest = hashlib.sha256(data).hexdigest()
        async with self._placing.setdefault((session_id, digest), asyncio.Lock()):
            known = await self.store_keys.blob_place(session_id, digest)
            if known is not None and known in await self.inner.blobs(session_id):
                return digest
            cipher = await self.store_keys.cipher(session_id)
            place = await self.inner.put_blob(session_id, cipher.seal(data, _BLOB))
            # The store may have been lost and the keys kept: what they remember is then a place where nothing is.
            await self.store_keys.place_blob(session_id, digest, place=place, instead_of=known)
        return digest

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Return the plain bytes. Raises: BlobNotFoundError, SealBrokenError, DataKeyMissingError."""
        place = await self.store_keys.blob_place(session_id, digest)
        if place is None:
            place = (await self._unplaced(session_id)).get(digest)
        if place is None:
            raise BlobNotFoundError(session_id=session_id, digest=digest)
        data = await self._open_blob(session_id, place)
        if hashlib.sha256(data).hexdigest() != digest:
            raise SealBrokenError(store="", reason="another blob", session_id=session_id, where=f"blob {digest}")
        return data

    async def blobs(self, session_id: str) -> builtins.list[str]:
        """Return the digests of the plain bytes."""
        kept = set(await self.inner.blobs(session_id))
        places = {**await self._unplaced(session_id), **await self.store_keys.blob_places(session_id)}
        return sorted(digest for digest, place in places.items() if place in kept)

    async def _open_blob(self, session_id: str, place: str) -> bytes:
        sealed = await self.inner.get_blob(session_id, place)
        return await self._opened(session_id, lambda cipher: cipher.open(sealed, _BLOB))

    async def _unplaced(self, session_id: str) -> dict[str, str]:
        """Return the blobs whose place was never remembered: a kill came between. They are found by opening them."""
        try:
            kept = await self.inner.blobs(session_id)
        except SessionNotFoundError:
            return {}
        found = {}
        known = set((await self.store_keys.blob_places(session_id)).values())
        for place in kept:
            if place not in known:
                try:
                    found[hashlib.sha256(await self._open_blob(session_id, place)).hexdigest()] = place
                except SealBrokenError:
                    continue
        return found

    async def adopt(self, session_id: str, records: Sequence[Record] = (), *, after: int = 0, lease: Lease) -> int:
        """Take in shared events, sealed with this session's own key."""
        if await self.inner.head(session_id) is None:
            raise SessionNotFoundError(session_id=session_id)
        cipher = await self.store_keys.cipher(session_id)
        sealed = [seal_record(record, cipher, fields=self._fields) for record in records]
        return await self.inner.adopt(session_id, sealed, after=after, lease=lease)

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Destroy the session's key, then every byte of it. Killed in between it goes on when called again (C20)."""
        if await self.inner.head(session_id) is not None:
            lease = await self.inner.renew(lease)  # whoever has lost it must not destroy a key
            await self.store_keys.shred(session_id)
        receipt = await self.inner.erase(session_id, lease=lease)
        return replace(receipt, removed={**receipt.removed, "data_keys": 1})

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return the inner store's damage and every seal that does not hold."""
        damage = await self.inner.verify(session_id)
        ids = [session_id] if session_id is not None else await self._ids()
        for each in ids:
            damage += await self._broken(each)
        return damage

    async def _ids(self) -> builtins.list[str]:
        ids: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.inner.list(SessionQuery(order="created_at", limit=MAX_PAGE, cursor=cursor))
            ids += [head.session_id for head in page.items]
            cursor = page.cursor
            if cursor is None:
                return ids

    async def _broken(self, session_id: str) -> builtins.list[Damage]:
        damage: list[Damage] = []
        try:
            await self.head(session_id)
        except StoreError as error:
            damage.append(_damage(session_id, error, where="head"))
            if isinstance(error, EncryptionError):
                return damage
        after = 0
        try:
            while page := await self._standing(session_id, after):
                after = page[-1].seq
                for event in page:
                    damage += await self._broken_event(event)
            for place in await self.inner.blobs(session_id):
                try:
                    await self._open_blob(session_id, place)
                except SealBrokenError as error:
                    damage.append(_damage(session_id, error, where=f"blob {place}"))
        except StoreError as error:  # what the inner store cannot read it has reported itself
            damage.append(_damage(session_id, error, where="log"))
        return damage

    async def _standing(self, session_id: str, after: int) -> builtins.list[StoredEvent]:
        """Return a page of what is there; what is in an archive out of this store's reach is not looked at."""
        try:
            return await self.inner.read(session_id, after=after)
        except SessionArchivedError as error:
            return await self.inner.read(session_id, after=error.until)

    async def _broken_event(self, event: StoredEvent) -> builtins.list[Damage]:
        try:
            await self._opened(event.session_id, lambda cipher: open_event(event, cipher))
        except (SealBrokenError, EncryptionError) as error:
            return [_damage(event.session_id, error, where=f"event {event.seq}", seq=event.seq)]
        return []

    async def close(self) -> None:
        """Close the inner store, then the keys."""
        await self.inner.close()
        await self.store_keys.close()


_BLOB = context_of("blob")


def _damage(session_id: str, error: StoreError, *, where: str, seq: int | None = None) -> Damage:
    reason = "checksum" if isinstance(error, SealBrokenError) else "unreadable"
    return Damage(session_id, reason, where, seq=seq, detail=str(error))
