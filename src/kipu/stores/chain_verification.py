"""A session's chain followed from its first link to the head's: where it first breaks (EN-21)."""

from __future__ import annotations

from kipu.errors import SessionArchivedError
from kipu.ports.cipher import SessionCipher, StoreKeys
from kipu.ports.store import EventStore
from kipu.stores.chain_link import CHAIN, GONE, TIP, ChainBreak, Link, begin, open_sealed, read_link, split, tag_of


async def verify_chain(store: EventStore, session_id: str, *, keys: StoreKeys) -> ChainBreak | None:
    """Return where the chain of a session first breaks; `store` is the one inside the chained one.

    What is in an archive is passed over: its last link, kept under the key when it was let go of, says how the chain goes on.
    """
    head = await store.head(session_id)
    kept = head.metadata.get(CHAIN) if head is not None else None
    if head is None or kept is None:
        chained = await _first_with_link(store, session_id)
        return None if chained is None else ChainBreak(session_id, chained, "head")
    cipher = await keys.cipher(session_id)
    sound = open_sealed(cipher, kept, role=TIP)
    tip = sound or read_link(str(kept).rpartition(".")[0]) or Link(head.base_seq + 1, head.last_seq, b"")
    before = Link(tip.start, tip.start - 1, begin(cipher, tip.start))
    if gone := await _out_of_reach(store, session_id, after=tip.start - 1):
        mark = open_sealed(cipher, (head.archive or {}).get(CHAIN), role=GONE)
        if mark is None or (mark.start, mark.number) != (tip.start, gone):
            return ChainBreak(session_id, gone, "archive")
        before = mark
    broken, last = await _followed(store, session_id, before=before, cipher=cipher)
    if broken is not None:
        return broken
    if tip.number > last.number:
        return ChainBreak(session_id, last.number + 1, "cut")
    return ChainBreak(session_id, last.number, "head") if sound != last else None


async def _followed(
    store: EventStore, session_id: str, *, before: Link, cipher: SessionCipher
) -> tuple[ChainBreak | None, Link]:
    """Follow the chain from behind a link to its end; return where it breaks, and the last link that holds."""
    last = before
    while page := await store.read(session_id, after=last.number):
        for event in page:
            due = last.number + 1
            link, body = split(event.record.body)
            if event.seq != due or (link is not None and link.number != due):
                moved = await _first_with_link(store, session_id, number=due) is not None
                return ChainBreak(session_id, due, "reordered" if moved else "dropped"), last
            tag = tag_of(cipher, last.tag, number=due, record=event.record._replace(body=body))
            if link is None or link.tag != tag:
                return ChainBreak(session_id, due, "altered"), last
            last = Link(before.start, due, tag)
    return None, last


async def _out_of_reach(store: EventStore, session_id: str, *, after: int) -> int:
    """Return up to where a session's events are in an archive that this store cannot look into, 0 where none are."""
    try:
        await store.read(session_id, after=after, limit=1)
    except SessionArchivedError as error:
        return int(error.until)
    return 0


async def _first_with_link(store: EventStore, session_id: str, *, number: int | None = None) -> int | None:
    """Return the first event that carries a link, or this one, of those that are within reach."""
    after = await _out_of_reach(store, session_id, after=0)
    while page := await store.read(session_id, after=after):
        after = page[-1].seq
        for event in page:
            link, _ = split(event.record.body)
            if link is not None and number in {None, link.number}:
                return event.seq
    return None
