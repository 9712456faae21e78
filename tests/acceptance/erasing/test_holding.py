"""Legal hold: who may place it, and what it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import AccessDeniedError, InputError, SessionForkedError, SessionHeldError, SessionNotFoundError
from kipu.events.boundary import MetadataChangedEvent
from kipu.events.conversation import UserMessageEvent
from kipu.manager.holding import hold_of
from kipu.ports.principal import Principal
from kipu.wiring import open_manager

OWNER, GUEST, STRANGER = Principal("owner"), Principal("guest"), Principal("stranger")
ADMIN = Principal("root", roles=frozenset({"admin"}))


async def test_a_held_session_is_neither_erased_nor_trashed(url: str, home: Path) -> None:
    """A held session refuses erasure, trash and the erasure of what it was forked from; released, it goes (B58)."""
    async with await open_manager(url) as manager:
        await manager.create_session("s1")
        session = await manager.open("s1")
        await session.add_event(UserMessageEvent(content="q"))
        fork = await session.fork()
        await manager.hold_session(fork.session_id, reason="case 12")
        with pytest.raises(SessionHeldError):
            await manager.delete_session(fork.session_id)
        with pytest.raises(SessionHeldError):
            await fork.set_status("trashed")
        with pytest.raises(SessionHeldError):
            await manager.erase_session("s1", cascade=True)
        with pytest.raises(SessionForkedError):
            await manager.erase_session("s1")
        assert fork.status == "active"
    async with await open_manager(url) as manager:
        kept = await manager.open(fork.session_id)
        hold = hold_of(kept.head)
        assert hold is not None
        assert (hold.by, hold.reason) == ("local", "case 12")
        await kept.add_event(UserMessageEvent(content="a held session goes on"))
        assert await manager.release_session(fork.session_id)
        assert not await manager.release_session(fork.session_id)
        assert await manager.delete_session("s1", cascade=True)


async def test_a_hold_is_what_was_placed_first_wherever_that_was(url: str, home: Path) -> None:
    """Who has the session open in another process holds and releases it as it stands in the store, not as they saw it (B58)."""
    async with await open_manager(url) as one, await open_manager(url) as other:
        await one.create_session("s1")
        for manager in (one, other):
            await manager.open("s1")
        made = await one.hold_session("s1", reason="case 12")
        assert await other.hold_session("s1", reason="case 13") == made
        assert await other.release_session("s1")
        assert not await one.release_session("s1")


@pytest.mark.parametrize("reason", ["", " \n", "x" * 501])
async def test_a_hold_says_why_in_a_few_words(url: str, home: Path, reason: str) -> None:
    """Without a reason, or with one that is no reason but a document, nothing is held (B58)."""
    async with await open_manager(url) as manager:
        await manager.create_session("s1")
        with pytest.raises(InputError):
            await manager.hold_session("s1", reason=reason)
        assert hold_of((await manager.open("s1")).head) is None
        assert (await manager.hold_session("s1", reason="x" * 500)).reason == "x" * 500


async def test_only_owners_and_administrators_hold(url: str, home: Path) -> None:
    """Members and strangers can neither hold nor release; holds and releases are events that say by whom and why (B58, C19)."""
    async with await open_manager(url) as manager:
        await manager.create_session("s1", principal=OWNER)
        session = await manager.open("s1", principal=OWNER)
        await session.share(GUEST.id, role="participant", principal=OWNER)
        with pytest.raises(AccessDeniedError):
            await manager.hold_session("s1", reason="mine", principal=GUEST)
        with pytest.raises(SessionNotFoundError):
            await manager.hold_session("s1", reason="mine", principal=STRANGER)
        with pytest.raises(InputError):
            await manager.hold_session("s1", reason=" ", principal=OWNER)
        made = await manager.hold_session("s1", reason="case 12", principal=ADMIN)
        assert await manager.hold_session("s1", reason="again", principal=OWNER) == made
        with pytest.raises(AccessDeniedError):
            await manager.release_session("s1", principal=GUEST)
        await manager.release_session("s1", principal=OWNER)
        changes = [event async for event in session.events(principal=OWNER) if isinstance(event, MetadataChangedEvent)]
        assert [event.principal for event in changes] == [ADMIN.id, OWNER.id]
        assert changes[0].set["kipu.hold"]["reason"] == "case 12"
