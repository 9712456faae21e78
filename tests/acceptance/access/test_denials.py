"""What was refused is on record in the session, in few events however often somebody tries (A20, C19)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import AccessDeniedError, KipuError, SessionNotFoundError, StoreFullError
from kipu.events.access import AccessDeniedEvent
from kipu.events.conversation import UserMessageEvent
from kipu.manager.denials import EVENTS_AT_ONCE, FREE_EVENTS, KINDS_KEPT, SPACING_S
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.ports.store import Appended, Record
from kipu.runtime.policy.grants import Grants
from kipu.stores.memory import MemoryStore
from kipu.stores.wrapper import WrappedStore
from kipu.testing.fakes import FakeClock, FakeLiveness, SeededEntropy
from kipu.wiring import open_manager

ADA, BOB, EVE = Principal("ada", "acme"), Principal("bob", "acme"), Principal("eve", "acme")


async def refused(session: Session, who: Principal) -> None:
    with pytest.raises((SessionNotFoundError, AccessDeniedError)):
        await session.set_metadata(title="mine", principal=who)


async def denials(session: Session) -> list[AccessDeniedEvent]:
    events = await session.get_full_history(principal=ADA)
    return [event for event in events if isinstance(event, AccessDeniedEvent)]


async def session_of(manager: SessionManager) -> Session:
    return await manager.get_or_create("chat:1", principal=ADA)


async def test_each_refused_write_is_on_record_with_who_what_and_as_what() -> None:
    """Members, strangers and people of other tenants are told apart; a refused look leaves nothing (C19, EV-21)."""
    async with await open_manager("memory://") as manager:
        session = await session_of(manager)
        await session.share("bob", principal=ADA)
        for who in (BOB, EVE, Principal("ada", "other")):
            await refused(session, who)
        assert await manager.get_session(session.session_id, principal=EVE) is None
        with pytest.raises(SessionNotFoundError):
            await session.render(principal=EVE)
        found = [(event.who, event.tenant, event.role, event.verb, event.count) for event in await denials(session)]
        assert found == [
            ("bob", None, "viewer", "configure", 1),
            ("eve", None, None, "configure", 1),
            ("ada", "other", None, "configure", 1),
        ]


async def test_record_moves_nothing_but_counts() -> None:
    """A refusal keeps no session alive: neither activity, nor work, nor window change by its record (C19, EV-21)."""
    async with await open_manager("memory://") as manager:
        session = await session_of(manager)
        await session.add_event(UserMessageEvent(content="q"), principal=ADA)
        before, shown = await manager.store.head(session.session_id), await session.get_context_for_llm(principal=ADA)
        await refused(session, EVE)
        after = await manager.store.head(session.session_id)
        assert before is not None
        assert after is not None
        for name in ("last_activity_at", "due_at", "waiting", "previews", "window_seq", "title", "members", "status"):
            assert getattr(after, name) == getattr(before, name), name
        assert after.denied_count == 1
        assert await session.get_context_for_llm(principal=ADA) == shown


async def test_repetitions_are_told_together() -> None:
    """A thousand tries of one person are one event at once and one after the spacing, which says how many (C19, EV-21)."""
    clock = FakeClock()
    async with await open_manager("memory://", clock=clock) as manager:
        session = await session_of(manager)
        for _ in range(1_000):
            await refused(session, EVE)
        assert [event.count for event in await denials(session)] == [1]
        clock.advance(SPACING_S + 1)
        await refused(session, EVE)
        counts = await denials(session)
        assert [event.count for event in counts] == [1, 1_000]
        assert counts[1].first_at is not None
        assert counts[1].last_at is not None
        assert (counts[1].last_at - counts[1].first_at).total_seconds() >= SPACING_S


async def test_many_people_cannot_flood_a_log() -> None:
    """However many people and processes try, a session gets few events at once, and few more in each spacing (C19)."""
    clock = FakeClock()
    url = "memory://"
    async with await open_manager(url, clock=clock) as manager:
        session = await session_of(manager)
        for number in range(300):
            await refused(session, Principal(f"eve{number}", "acme"))
        assert len(await denials(session)) == FREE_EVENTS
        clock.advance(SPACING_S + 1)
        for _ in range(5):
            await refused(session, EVE)
        found = await denials(session)
        assert len(found) == FREE_EVENTS + EVENTS_AT_ONCE
        told = [entry async for entry in session.audit(principal=ADA)]
        assert sum(entry.count for entry in told if entry.what == "denied") == 305
        assert any(entry.who == "(others)" for entry in told)
        assert len(await denials(session)) <= KINDS_KEPT + 2


async def test_new_processes_share_the_bound(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Starting again and again is no way around the spacing, and what is in no event is said in the process's log (C19)."""
    url, clock = f"sqlite:///{tmp_path}/s.db", FakeClock()
    async with await open_manager(url, clock=clock) as manager:
        session_id = (await session_of(manager)).session_id
    for number in range(FREE_EVENTS + 10):
        async with await open_manager(url, clock=clock) as manager:
            with pytest.raises(SessionNotFoundError):
                await manager.save_event(
                    session_id, UserMessageEvent(content="x"), principal=Principal(f"e{number}", "acme")
                )
    async with await open_manager(url, clock=clock) as manager:
        assert len(await denials(await manager.open(session_id, principal=ADA))) == FREE_EVENTS
    assert [record.levelno for record in caplog.records if "are in no event" in record.message] == [
        logging.WARNING
    ] * 10


async def test_refusals_at_once_are_each_told_once() -> None:
    """Refusals of many tasks at the same time are counted exactly (C19)."""
    async with await open_manager("memory://") as manager:
        session = await session_of(manager)
        people = [Principal(f"eve{number % 5}", "acme") for number in range(50)]
        await asyncio.gather(*(refused(session, who) for who in people))
        told = [entry async for entry in session.audit(principal=ADA) if entry.what == "denied"]
        assert sum(entry.count for entry in told) == 50
        assert {entry.who for entry in told} == {f"eve{number}" for number in range(5)}


async def test_clock_that_was_set_back_does_not_end_the_record() -> None:
    """After the clock went back a day, refusals are still told (C1, C19)."""
    clock = FakeClock()
    async with await open_manager("memory://", clock=clock) as manager:
        session = await session_of(manager)
        for number in range(FREE_EVENTS):
            await refused(session, Principal(f"eve{number}", "acme"))
        clock.advance(-24 * 3600)
        await refused(session, EVE)
        assert (await denials(session))[-1].who == "eve"


class FullStore(WrappedStore):
    """A store without room for a refusal, until it is emptied."""

    is_full = True

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        if self.is_full and any(record.event_type == "access_denied" for record in records):
            raise StoreFullError(store="full", reason="a test")
        return await self.inner.append(session_id, records, **options)


async def test_store_that_cannot_write_refuses_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """Where no record can be made, a refusal is still the refusal, it is said in the process's log, and told later (A50, C19)."""
    clock = FakeClock()
    full = FullStore(MemoryStore(clock=clock, liveness=FakeLiveness()))
    async with SessionManager(full, clock=clock, entropy=SeededEntropy(), owner="test") as manager:
        session = await session_of(manager)
        await refused(session, EVE)
        assert await denials(session) == []
        assert "are not on record yet" in caplog.text
        full.is_full = False
        await refused(session, EVE)
        assert [event.count for event in await denials(session)] == [2]


async def test_audit_shows_who_was_let_in_and_who_was_not() -> None:
    """The audit tells the beginning, every sharing, every tool grant and every refusal, oldest first, to who runs it (C15, C19)."""
    clock = FakeClock()
    async with await open_manager("memory://", clock=clock) as manager:
        session = await session_of(manager)
        await session.share("bob", role="viewer", principal=ADA)
        grants = Grants(manager, clock=clock)
        await grants.add(session, "shell", subject="ls", scope="session", principal=ADA, by="ada", approval_id="appr_1")
        for _ in range(3):
            await refused(session, BOB)
        await session.revoke("bob", principal=ADA)
        told = [(e.what, e.who, e.detail, e.by, e.count) async for e in session.audit(principal=ADA)]
        assert told == [
            ("created", "ada", "owner", "ada", 1),
            ("shared", "bob", "viewer", "ada", 1),
            ("granted", "ada", "shell ls", "ada", 1),
            ("denied", "bob", "configure", None, 1),
            ("revoked", "bob", "", "ada", 1),
            ("denied", "bob", "configure", None, 2),
        ]
        fork = await session.fork(principal=ADA)
        assert [(e.what, e.who) async for e in fork.audit(principal=ADA)] == [("created", "ada")]


async def test_refusal_says_whom_to_ask_for_what() -> None:
    """A viewer who writes is told their role, the role that may, its owner, and the command that gives it (C19)."""
    async with await open_manager("memory://") as manager:
        session = await session_of(manager)
        await session.share("bob", principal=ADA)
        with pytest.raises(KipuError) as caught:
            await session.add_event(UserMessageEvent(content="x"), principal=BOB)
        error = caught.value
        assert isinstance(error, AccessDeniedError)
        assert (error.code, error.principal, error.role, error.needed, error.ask) == (
            "access_denied",
            "bob",
            "viewer",
            "participant",
            "ada",
        )
        assert f"kipu share {session.session_id} bob --role participant" in str(error)
