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
from kipu.ports.memory import FactEntry, KeptFact, MemoryStore
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
