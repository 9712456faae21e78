"""A keyed chain over a session's events: each carries a tag over itself and the one before, the head the last (EN-20)."""

from __future__ import annotations

import asyncio
import builtins
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any
from weakref import WeakValueDictionary

from kipu.errors import ConflictError, DataKeyMissingError, SessionArchivedError, StoreError
from kipu.ports.cipher import SessionCipher, StoreKeys
from kipu.ports.head import EMPTY_PATCH, Head, HeadPatch
from kipu.ports.store import (
    MAX_PAGE,
    Appended,
    Binding,
    Damage,
    ErasureReceipt,
    EventStore,
    Lease,
    Page,
    Record,
    SessionQuery,
    StoredEvent,
)
from kipu.stores.chain_link import (
    CHAIN,
    END,
    GONE,
    MIDDLE,
    START,
    TAG_BYTES,
    TIP,
    ChainBreak,
    Link,
    begin,
    link_of,
    open_sealed,
    sealed_text,
    split,
    tag_of,
)
from kipu.stores.chain_verification import verify_chain
from kipu.stores.wrapper import WrappedStore

_ATTEMPTS = 1000
TIPS_KEPT = 4096
_NEVER = -1


def _bare(event: StoredEvent) -> StoredEvent:
    return StoredEvent(event.seq, event.session_id, event.record._replace(body=split(event.record.body)[1]))


def _bare_head(head: Head) -> Head:
    archive = head.archive or {}
    if CHAIN not in head.metadata and CHAIN not in archive:
        return head
    bare = copy.copy(head)
    bare.__dict__["metadata"] = {name: value for name, value in head.metadata.items() if name != CHAIN}
    if archive:
        bare.__dict__["archive"] = {name: value for name, value in archive.items() if name != CHAIN}
    return bare


class ChainedStore(WrappedStore):
    """Keep the contract of the store inside, its events chained by keyed tags, so that `verify` names what was changed.

    Appends to one session stand in line, in this process by a lock and beside others by their number; those to different
    sessions do not.
    """

    def __init__(self, inner: EventStore, keys: StoreKeys) -> None:
        super().__init__(inner)
        self._keys = keys
        self._tips: dict[str, Link] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def around(self, inner: EventStore) -> EventStore:
        """Return another store whose chains are of the same keys."""
        return ChainedStore(inner, self._keys)

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
        """Append the records linked to the last one."""
        how: dict[str, Any] = {"bind": bind, "token": token, "idempotency_key": idempotency_key}
        async with self._locks.setdefault(session_id, asyncio.Lock()):
            for _ in range(_ATTEMPTS):
                cipher, tip, exists = await self._place(session_id, records, patch=head, expected_seq=expected_seq)
                if cipher is None or tip is None:
                    how["expected_seq"] = _NEVER
                    return await self.inner.append(session_id, records, head=head, **how)
                how["expected_seq"] = (tip.number if exists else None) if expected_seq is None else expected_seq
                linked, last = _linked(records, tip, cipher=cipher)
                try:
                    appended = await self.inner.append(session_id, linked, head=_with_tip(head, last, cipher), **how)
                except ConflictError:
                    self._tips.pop(session_id, None)
                    if expected_seq is not None or not await self._moved(session_id, tip):
                        raise
                    continue
                except BaseException:
                    self._tips.pop(session_id, None)
                    raise
                if not appended.duplicate:
                    if len(self._tips) >= TIPS_KEPT:
                        self._tips.clear()
                    self._tips[session_id] = last
                return appended
        raise ConflictError(session_id=session_id, expected=expected_seq, actual=None)

    async def _place(
        self, session_id: str, records: Sequence[Record], *, patch: HeadPatch, expected_seq: int | None
    ) -> tuple[SessionCipher | None, Link | None, bool]:
        """Return the cipher, the link that comes before, and whether the session exists; no cipher where it will be refused."""
        tip = self._tips.get(session_id)
        if tip is not None and expected_seq in {None, tip.number}:
            return self._keys.known(session_id) or await self._keys.cipher(session_id), tip, True
        head = await self.inner.head(session_id)
        if head is not None:
            cipher = await self._keys.cipher(session_id)
            tip = self._tips[session_id] = await self._tip_of(head, cipher)
            return cipher, tip, True
        if not any(record.event_type == "session_init" for record in records):
            return None, None, False
        begun = await self._begun(session_id)
        base = int(patch.set.get("base_seq", 0))
        tip = self._tips[session_id] = Link(base + 1, base, begin(begun, base + 1))
        return begun, tip, False

    async def _tip_of(self, head: Head, cipher: SessionCipher) -> Link:
        """Return the last link; a session that was never chained begins with its next event.

        Where the head's link was taken away, or is not one that the key made, what comes is linked to nothing that was: the
        break stays to be found, and nobody is kept from writing.
        """
        kept, number = head.metadata.get(CHAIN), head.last_seq
        tip = open_sealed(cipher, kept, role=TIP)
        if tip is not None:
            return Link(tip.start, number, tip.tag)
        try:
            last = await self.inner.read(head.session_id, until=number, limit=1, backwards=True)
        except SessionArchivedError:
            last = []
        before = link_of(last[0]) if last else None
        if kept is None and before is None:
            return Link(number + 1, number, begin(cipher, number + 1))
        start = before.start if before is not None else number + 1
        return Link(start, number, cipher.tag(b"broken %d" % number)[:TAG_BYTES])

    async def _begun(self, session_id: str) -> SessionCipher:
        try:
            return await self._keys.cipher(session_id)
        except DataKeyMissingError:
            return await self._keys.begin(session_id)

    async def _moved(self, session_id: str, tip: Link) -> bool:
        head = await self.inner.head(session_id)
        return head is not None and head.last_seq != tip.number

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = MAX_PAGE,
        backwards: bool = False,
    ) -> list[StoredEvent]:
        """Return events as they were given."""
        page = await self.inner.read(session_id, after=after, until=until, limit=limit, backwards=backwards)
        return [_bare(event) for event in page]

    async def _follow(self, events: AsyncIterator[StoredEvent]) -> AsyncIterator[StoredEvent]:
        try:
            async for event in events:
                yield _bare(event)
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Follow the inner store."""
        return self._follow(self.inner.follow(session_id, after=after, types=types))

    async def head(self, session_id: str) -> Head | None:
        """Return the head without the chain's last tag."""
        head = await self.inner.head(session_id)
        return head and _bare_head(head)

    async def list(self, query: SessionQuery) -> Page[Head]:
        """Return a page of heads."""
        page = await self.inner.list(query)
        return Page(tuple(map(_bare_head, page.items)), page.cursor)

    async def runnable(self, *, now: str, limit: int) -> builtins.list[Head]:
        """Return the work there is."""
        return [_bare_head(head) for head in await self.inner.runnable(now=now, limit=limit)]

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Let go of the events; the head keeps the last one's link under the key, so that nobody else can say that they went."""
        head = await self.inner.head(session_id)
        if head is not None and CHAIN in head.metadata:
            cipher = await self._keys.cipher(session_id)
            tip = open_sealed(cipher, head.metadata[CHAIN], role=TIP)
            if tip is not None and tip.number == until:
                archive = {**archive, CHAIN: sealed_text(cipher, tip, role=GONE)}
        await self.inner.offload(session_id, until=until, blobs=blobs, archive=archive, lease=lease)

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Erase the session, its place in the chain forgotten."""
        self._tips.pop(session_id, None)
        return await self.inner.erase(session_id, lease=lease)

    async def chain_break(self, session_id: str) -> ChainBreak | None:
        """Return the first event that was altered, dropped or reordered, or the cut of the tail; None where the chain holds.

        A log that somebody set back whole, head and tail together, to a state it once had, holds too (EN-23).
        Raises: SessionNotFoundError, DataKeyMissingError.
        """
        return await verify_chain(self.inner, session_id, keys=self._keys)

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return the inner store's damage, and the first break of each chain."""
        damage = await self.inner.verify(session_id)
        for each in [session_id] if session_id is not None else await self.session_ids():
            damage += await self._damage(each)
        return damage

    async def session_ids(self) -> builtins.list[str]:
        """Return the id of every session, those created last first."""
        ids: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.inner.list(SessionQuery(order="created_at", limit=MAX_PAGE, cursor=cursor))
            ids += [head.session_id for head in page.items]
            cursor = page.cursor
            if cursor is None:
                return ids

    async def _damage(self, session_id: str) -> builtins.list[Damage]:
        try:
            found = await self.chain_break(session_id)
        except StoreError as error:
            return [Damage(session_id, "unreadable", "chain", detail=str(error))]
        if found is None:
            return []
        reason = {"altered": "checksum", "head": "checksum", "reordered": "order"}.get(found.kind, "gap")
        detail = f"the chain says that it was {found.kind}"
        return [Damage(session_id, reason, f"event {found.seq}", seq=found.seq, detail=detail)]


def _linked(records: Sequence[Record], tip: Link, *, cipher: SessionCipher) -> tuple[list[Record], Link]:
    linked, number, tag = [], tip.number, tip.tag
    for record in records:
        number += 1
        tag = tag_of(cipher, tag, number=number, record=record)
        text = Link(tip.start, number, tag).text().encode()
        linked.append(record._replace(body=b"".join((START, text, MIDDLE, record.body, END))))
    return linked, Link(tip.start, number, tag)


def _with_tip(patch: HeadPatch, tip: Link, cipher: SessionCipher) -> HeadPatch:
    metadata = {**patch.merge.get("metadata", {}), CHAIN: sealed_text(cipher, tip, role=TIP)}
    return patch._replace(merge={**patch.merge, "metadata": metadata})
