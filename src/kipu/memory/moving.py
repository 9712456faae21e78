"""A memory moved beside another store, or under seal and out of it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from kipu.memory.fact_text import fingerprint
from kipu.memory.opening import open_memory_store
from kipu.memory.rules import slot_of
from kipu.ports.cipher import StoreKeys
from kipu.ports.memory import Fact, FactEntry, FactQuery, KeptFact, MemoryStore, with_status
from kipu.session.terms import terms_of

_SIDES = ("", "-journal")


async def copy_memory(source: MemoryStore, target: MemoryStore) -> int:
    """Keep everything that `source` keeps in `target` too, and return how many facts that is. Doing it again changes nothing."""
    count, after = 0, ""
    while page := await source.kept(after=after):
        await target.restore([_findable(each) for each in page], ())
        count += len(page)
        after = page[-1].entry.fact.fact_id
    followed = await source.followed()
    if followed:
        await target.restore((), followed)
    return count


async def mirror_memory(source: MemoryStore, target: MemoryStore) -> None:
    """Keep in `target` what `source` keeps, and nothing else: what was forgotten there is forgotten here (C20)."""
    await copy_memory(source, target)
    wanted = {fact_id async for fact_id in _fact_ids(source)}
    for fact_id in [fact_id async for fact_id in _fact_ids(target)]:
        if fact_id not in wanted:
            await target.forget(fact_id)


async def _fact_ids(memory: MemoryStore) -> AsyncIterator[str]:
    after = ""
    while page := await memory.kept(after=after):
        for each in page:
            yield each.entry.fact.fact_id
        after = page[-1].entry.fact.fact_id


async def merge_memory(source: MemoryStore, target: MemoryStore) -> int:
    """Add to `target`, which is in use, what only `source` keeps, and return how many facts that is. Again, it changes nothing.

    What both know stands as it does in `target`, but for what a person decided in `source`. Where two active facts are about the
    same, the newer one is active.
    """
    count, after = 0, ""
    while page := await source.kept(after=after):
        for found in map(_findable, page):
            count += await _merged(found, target)
        after = page[-1].entry.fact.fact_id
    for session_id, progress in await source.followed():
        if progress.seq > (await target.progress(session_id)).seq:
            await target.restore((), [(session_id, progress)])
    for session_id, token in await source.announced():
        await target.announce(session_id, token)
    return count


async def _merged(found: KeptFact, target: MemoryStore) -> bool:
    """Add one fact, and return whether it was new."""
    fact = found.entry.fact
    known = await target.fact(fact.fact_id)
    if known is not None:
        if known.status == "quarantined" and fact.status == "active":
            await target.accept(fact.fact_id)
        elif known.fact_id == fact.fact_id and fact.reason == "edited" != known.reason:
            await target.restore([found], ())
        return False
    rival = await _rival(fact, target) if fact.status == "active" else None
    if rival is None:
        await target.restore([found], ())
    elif fingerprint(rival.text) == fingerprint(fact.text) or rival.created_at <= fact.created_at:
        await target.put(found.entry)
    else:
        older = with_status(fact, "superseded", reason="replaced", by=rival.fact_id)
        await target.restore([found._replace(entry=replace(found.entry, fact=older))], ())
    return True


async def _rival(fact: Fact, target: MemoryStore) -> Fact | None:
    """Return an active fact of the same space that says the same, or is about the same."""
    query = FactQuery(spaces=(fact.space,), owner=fact.owner, limit=500)
    while True:
        page = await target.facts(query)
        for each in page.items:
            is_about_it = fact.slot is not None and fact.slot in (each.slot, slot_of(each.text))
            if is_about_it or fingerprint(each.text) == fingerprint(fact.text):
                return each
        if page.cursor is None:
            return None
        query = replace(query, cursor=page.cursor)


def _findable(found: KeptFact) -> KeptFact:
    """Return the fact with what it is found by: a sealed memory has that as keyed hashes only."""
    fact = found.entry.fact
    fact = replace(fact, slot=fact.slot or slot_of(fact.text))
    return found._replace(entry=FactEntry(fact, terms_of(fact.text), fingerprint(fact.text)))


async def convert_memory(path: Path, new_path: Path, *, keys: StoreKeys | None, new_keys: StoreKeys | None) -> int:
    """Make at `new_path` the memory that is at `path`, sealed with `new_keys`, or plain; what stood there before goes.

    Return how many facts it has. The old one stays as it is.
    """
    if not await asyncio.to_thread(_make_room, path, new_path):
        return 0
    source = open_memory_store(path, keys=keys)
    target = open_memory_store(new_path, keys=new_keys)
    try:
        return await copy_memory(source, target)
    finally:
        await target.close()
        await source.close()


def _make_room(path: Path, new_path: Path) -> bool:
    """Remove what a stopped conversion left, and say whether there is something to convert."""
    for side in _SIDES:
        new_path.with_name(new_path.name + side).unlink(missing_ok=True)
    return path.exists()
