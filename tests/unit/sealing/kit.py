"""Stores with a canary in every place, converted, killed in the middle of it, and compared."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from kipu import ToolCallEvent, ToolResultEvent, UserMessageEvent, open_manager
from kipu.events.conversation import AgentMessageEvent
from kipu.manager.replaying import OWN_FIELDS
from kipu.ports.head import head_to_json
from kipu.ports.store import EventStore, SessionQuery
from kipu.sealing.conversion import Converted
from kipu.sealing.converting import decrypt_store, encrypt_store
from kipu.security.key_finder import KeyFinder
from kipu.security.key_provider import LocalKeys
from kipu.stores.host import SystemEntropy, this_process_owner
from kipu.testing.conformance.second_process import Outlet
from kipu.testing.conformance.subject import whole_log
from kipu.wiring import open_store, store_place

ENTROPY = SystemEntropy()
KEY = bytes(range(32))
CANARY = "b51f5cfd8a07c3e2d9"
URLS = {"sqlite": "sqlite:///{}/store.db", "jsonl": "jsonl:///{}/store"}


def keys(*given: bytes) -> LocalKeys:
    """Return a source of these keys; without any, of the usual one."""
    return LocalKeys(given or (KEY,), entropy=ENTROPY)


async def fill(url: str, *, sessions: int = 3, erased: str | None = "gone") -> None:
    """Hold conversations, with a canary in all that can hold text, a blob, two keys, a fork and, if named, an erased session."""
    async with await open_manager(url) as manager:
        for number in range(sessions):
            session = await manager.get_or_create(f"telegram:{number}")
            await session.set_metadata(title=f"about {CANARY}", topic=f"topic {CANARY}", tags=[CANARY])
            await manager.receive(
                f"telegram:{number}", UserMessageEvent(content=f"{CANARY} hello", source_message_id=f"m{number}")
            )
            for _ in range(2):
                async with session.turn() as turn:
                    await turn.add_events(
                        [
                            AgentMessageEvent(content=CANARY),
                            ToolCallEvent(tool_name="cat", tool_call_id="c1", tool_input={}),
                        ]
                    )
                    await turn.add_event(ToolResultEvent(tool_call_id="c1", result=f"{CANARY} {number} " * 4000))
        session = await manager.get_or_create("telegram:0")
        await session.fork(3, title=f"fork {CANARY}")
        if erased is not None:
            await manager.delete_session(await manager.create_session(erased))
        await manager.search("hello")


async def told_of(store: EventStore) -> dict[str, Any]:
    """Return all that can be seen of a store, but for what is a place's own."""
    told: dict[str, Any] = {}
    for head in (await store.list(SessionQuery(limit=500))).items:
        name = head.session_id
        row = {field: value for field, value in head_to_json(head).items() if field not in OWN_FIELDS}
        blobs = {digest: await store.get_blob(name, digest) for digest in await store.blobs(name)}
        keyed = await store.outcomes(name), await store.keys(name)
        told[name] = (row, await whole_log(store, name), blobs, keyed)
    return told


async def tokens_of(url: str) -> dict[str, int]:
    """Return the token that the next lease of each session gets; the leases are given back."""
    tokens = {}
    store = await open_store(url)
    for head in (await store.list(SessionQuery(limit=500))).items:
        lease = await store.claim(head.session_id, owner=this_process_owner("look"), ttl_s=5)
        assert lease is not None
        tokens[head.session_id] = lease.token
        await store.release(lease)
    await store.close()
    return tokens


async def contents(url: str) -> dict[str, Any]:
    """Return what is in the store at the URL."""
    store = await open_store(url)
    try:
        return await told_of(store)
    finally:
        await store.close()


async def encrypt(url: str, *given: bytes, **how: Any) -> Converted:
    """Encrypt a store under these keys."""
    return await encrypt_store(store_place(url), keys(*given), source=None, owner=this_process_owner("e"), **how)


async def decrypt(url: str, **how: Any) -> Converted:
    """Decrypt a store, its key found in the environment."""
    finder = KeyFinder(os.environ, entropy=ENTROPY)
    return await decrypt_store(store_place(url), finder, named=None, owner=this_process_owner("d"), **how)


def _dying(folder: Path, *, at: int, outlet: Outlet) -> None:
    """Kill this process at the n-th rename, removal, opening for writing or making of a folder below `folder`."""
    seen = 0

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        counted = event in {"os.rename", "os.remove", "os.rmdir", "os.mkdir"} or (
            event == "open" and bool(int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR))
        )
        if counted and isinstance(arguments[0], str | os.PathLike) and os.fspath(arguments[0]).startswith(str(folder)):
            seen += 1
            if seen == at:
                outlet.tell(f"{event} {os.fspath(arguments[0])}")
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)


async def convert_dying(
    folder: Path, outlet: Outlet, *, clock: Any, url: str, to: str, at: int, events: int = 0
) -> None:
    """Convert a store and die at the n-th change of its folder, or once so many events were copied."""
    _dying(folder, at=at, outlet=outlet)

    def told(what: str, progress: Any) -> None:
        if events and progress.events_done >= events:
            outlet.tell(f"{what} {progress.events_done}")
            os.kill(os.getpid(), signal.SIGKILL)

    await (encrypt(url, told=told) if to == "encrypted" else decrypt(url, told=told))
    outlet.tell("done")
