"""A keyed chain over a session's events: each carries a tag over itself and the one before, the head the last (EN-20)."""

from __future__ import annotations

import asyncio
import base64
import builtins
import copy
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import orjson

from kipu.errors import ConflictError, DataKeyMissingError, EncryptionError
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
from kipu.stores.wrapper import WrappedStore

_START, _MIDDLE, _END = b'{"$link":"', b'","$body":', b"}"
CHAIN = "$chain"
_TAG_BYTES = 16
_ATTEMPTS = 1000
_TIPS_KEPT = 4096
_NEVER = -1


class Link(NamedTuple):
    """What an event carries: its number in the chain and its tag. `start` is the first number that was chained."""

    start: int
    number: int
    tag: bytes

    def text(self) -> str:
        """Return the link as text."""
        return f"{self.start}.{self.number}.{base64.b64encode(self.tag).decode()}"


class ChainBreak(NamedTuple):
    """The first place where a session's chain does not hold. `kind`: altered, dropped, reordered, cut, head."""

    session_id: str
    seq: int
    kind: str


def _read_link(text: Any) -> Link | None:
    try:
        start, number, tag = str(text).split(".")
        return Link(int(start), int(number), base64.b64decode(tag, validate=True))
    except ValueError:
        return None


def _split(body: bytes) -> tuple[Link | None, bytes]:
    """Return the link of a kept body, None where it has none, and the body inside."""
    if not body.startswith(_START) or not body.endswith(_END):
        return None, body
    at = body.find(_MIDDLE, len(_START))
    link = _read_link(body[len(_START) : at].decode("ascii", "replace")) if at > 0 else None
    return (link, body[at + len(_MIDDLE) : -len(_END)]) if link is not None else (None, body)


def _begin(cipher: SessionCipher, start: int) -> bytes:
    return cipher.tag(b"begin %d" % start)[:_TAG_BYTES]


def _tag(cipher: SessionCipher, before: bytes, number: int, *, record: Record) -> bytes:
    envelope = orjson.dumps((number, *record[:3], *record[4:9]))
    return cipher.tag(b"".join((before, envelope, record.body)))[:_TAG_BYTES]


def _bare(event: StoredEvent) -> StoredEvent:
    return StoredEvent(event.seq, event.session_id, event.record._replace(body=_split(event.record.body)[1]))


def _bare_head(head: Head) -> Head:
    if CHAIN not in head.metadata:
        return head
    bare = copy.copy(head)
    bare.__dict__["metadata"] = {name: value for name, value in head.metadata.items() if name != CHAIN}
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
                    appended = await self.inner.append(session_id, linked, head=_with_tip(head, last), **how)
                except ConflictError:
                    self._tips.pop(session_id, None)
                    if expected_seq is not None or not await self._moved(session_id, tip):
                        raise
                    continue
                except BaseException:
                    self._tips.pop(session_id, None)
                    raise
                if not appended.duplicate:
                    if len(self._tips) >= _TIPS_KEPT:
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
            return await self._keys.cipher(session_id), tip, True
        head = await self.inner.head(session_id)
        if head is not None:
            cipher = await self._keys.cipher(session_id)
            tip = self._tips[session_id] = _tip_of(head, cipher)
            return cipher, tip, True
        if not any(record.event_type == "session_init" for record in records):
            return None, None, False
        begun = await self._begun(session_id)
        base = int(patch.set.get("base_seq", 0))
        tip = self._tips[session_id] = Link(base + 1, base, _begin(begun, base + 1))
        return begun, tip, False

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

    def follow(self, session_id: str | None = None, *, after: int = 0) -> AsyncIterator[StoredEvent]:
        """Follow the inner store."""
        return self._follow(self.inner.follow(session_id, after=after))

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
        if session_id is not None:
            return damage + await self._damage(session_id)
        cursor: str | None = None
        while True:
            page = await self.inner.list(SessionQuery(order="created_at", limit=MAX_PAGE, cursor=cursor))
            for head in page.items:
                damage += await self._damage(head.session_id)
            cursor = page.cursor
            if cursor is None:
                return damage

    async def _damage(self, session_id: str) -> builtins.list[Damage]:
        try:
            found = await self.chain_break(session_id)
        except EncryptionError as error:
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
        tag = _tag(cipher, tag, number, record=record)
        text = Link(tip.start, number, tag).text().encode()
        linked.append(record._replace(body=b"".join((_START, text, _MIDDLE, record.body, _END))))
    return linked, Link(tip.start, number, tag)


def _with_tip(patch: HeadPatch, tip: Link) -> HeadPatch:
    metadata = {**patch.merge.get("metadata", {}), CHAIN: tip.text()}
    return patch._replace(merge={**patch.merge, "metadata": metadata})


def _tip_of(head: Head, cipher: SessionCipher) -> Link:
    """Return the last link; a session that was never chained begins with its next event."""
    tip = _read_link(head.metadata.get(CHAIN))
    if tip is None:
        return Link(head.last_seq + 1, head.last_seq, _begin(cipher, head.last_seq + 1))
    return Link(tip.start, head.last_seq, tip.tag)


async def verify_chain(store: EventStore, session_id: str, *, keys: StoreKeys) -> ChainBreak | None:
    """Return where the chain of a session first breaks; `store` is the one inside the chained one."""
    head = await store.head(session_id)
    tip = _read_link(head.metadata.get(CHAIN)) if head is not None else None
    if tip is None:
        chained = await _first_with_link(store, session_id)
        return None if chained is None else ChainBreak(session_id, chained, "head")
    cipher = await keys.cipher(session_id)
    due, tag = tip.start, _begin(cipher, tip.start)
    while page := await store.read(session_id, after=due - 1):
        for event in page:
            link, body = _split(event.record.body)
            if event.seq != due or (link is not None and link.number != due):
                moved = await _first_with_link(store, session_id, number=due) is not None
                return ChainBreak(session_id, due, "reordered" if moved else "dropped")
            tag = _tag(cipher, tag, due, record=event.record._replace(body=body))
            if link is None or link.tag != tag:
                return ChainBreak(session_id, due, "altered")
            due += 1
    if tip.number >= due:
        return ChainBreak(session_id, due, "cut")
    return ChainBreak(session_id, due - 1, "head") if (tip.number, tip.tag) != (due - 1, tag) else None


async def _first_with_link(store: EventStore, session_id: str, *, number: int | None = None) -> int | None:
    """Return the first event that carries a link, or this one."""
    after = 0
    while page := await store.read(session_id, after=after):
        after = page[-1].seq
        for event in page:
            link, _ = _split(event.record.body)
            if link is not None and number in {None, link.number}:
                return event.seq
    return None
