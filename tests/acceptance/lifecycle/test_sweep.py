"""Sweeping: what is due by itself, what is left alone and why, and what a wrong clock may not do (A54, A55, B47)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kipu.errors import ConfigurationError
from kipu.events.boundary import MetadataChangedEvent, StatusChangedEvent
from kipu.events.conversation import UserMessageEvent
from kipu.manager.lifecycle.keeper import LifecycleKeeper
from kipu.manager.lifecycle.retention import Retention
from kipu.manager.lifecycle.sweeper import Step, Sweep, Sweeper
from kipu.manager.manager import SessionManager
from kipu.testing.fakes import FakeClock
from tests.acceptance.lifecycle.sessions import DAY_S, STORES, opened

ALL = Retention(expire_after_days=10, archive_after_days=20, trash_after_days=40, erase_after_days=60)


async def talked(manager: SessionManager, name: str) -> str:
    """Make a session with one message, now."""
    session = await manager.get_or_create(f"cli:{name}")
    await session.add_event(UserMessageEvent(content=f"about {name}"))
    return session.session_id


async def swept(
    manager: SessionManager, retention: Retention = ALL, *, dry_run: bool = False, trusts_clock: bool = False
) -> tuple[Sweep, dict[str, Step]]:
    """Sweep once, and return what it told of each session."""
    told: dict[str, Step] = {}
    sweep = await Sweeper(manager, retention, trusts_clock=trusts_clock).sweep(
        dry_run=dry_run, tell=lambda step: told.__setitem__(step.session_id, step)
    )
    return sweep, told


async def status_of(manager: SessionManager, session_id: str) -> str:
    head = await manager.store.head(session_id)
    return head.status if head is not None else "erased"


async def keep_awake(manager: SessionManager) -> None:
    """Let somebody use the store, so that its clock is not doubted."""
    await talked(manager, "awake")


@pytest.mark.parametrize("kind", STORES)
async def test_a_session_takes_every_step_in_its_order_and_each_is_on_record(tmp_path: Path, kind: str) -> None:
    """By its last activity a session expires, is archived, put into the trash and erased, one step a sweep (A54, A55, A67, B47)."""
    clock = FakeClock()
    async with opened(tmp_path, kind, clock=clock) as manager:
        session_id = await talked(manager, "old")
        seen: list[tuple[int, str]] = []
        for day in range(1, 80):
            clock.advance(DAY_S)
            await keep_awake(manager)
            if day in {9, 15, 30, 50, 58}:
                await (await manager.open(session_id)).set_metadata(mood=str(day))  # settings are no activity
            await swept(manager)
            status = await status_of(manager, session_id)
            if not seen or seen[-1][1] != status:
                seen.append((day, status))
            if status == "erased":
                break
        assert seen == [(1, "active"), (11, "expired"), (21, "archived"), (41, "trashed"), (66, "erased")]
        assert list((tmp_path / "store.archive").iterdir()) == []


async def test_each_step_is_an_event_with_its_reason(tmp_path: Path) -> None:
    """Expiry by itself is a `status_changed` event that says since when nothing was said (A54)."""
    clock = FakeClock()
    async with opened(tmp_path, "sqlite", clock=clock) as manager:
        session_id = await talked(manager, "old")
        clock.advance(31 * DAY_S)
        await keep_awake(manager)
        await swept(manager, Retention())
        session = await manager.open(session_id)
        (change,) = [event async for event in session.events() if isinstance(event, StatusChangedEvent)]
        assert (change.status, change.reason) == ("expired", "no activity since 2027-01-15")
        await session.refresh()
        await session.add_event(UserMessageEvent(content="back again"))
        assert session.status == "active"
        assert (await swept(manager, Retention()))[0].done.total() == 0


async def test_nothing_is_archived_trashed_or_erased_by_default(tmp_path: Path) -> None:
    """Without settings, ten years of silence end in expiry and no further (B47)."""
    clock = FakeClock()
    async with opened(tmp_path, "sqlite", clock=clock) as manager:
        session_id = await talked(manager, "old")
        for _ in range(10):
            clock.advance(365 * DAY_S)
            await keep_awake(manager)
            await swept(manager, Retention())
        assert await status_of(manager, session_id) == "expired"
        assert (await manager.search("old")).items


@pytest.mark.parametrize("kind", STORES)
async def test_what_is_in_use_is_left_alone_and_the_reason_is_told(tmp_path: Path, kind: str) -> None:
    """Pinned, leased, waiting, open, parked and held sessions stay as they are, and a dry run says why (A55, B47)."""
    clock = FakeClock()
    async with opened(tmp_path, kind, clock=clock) as manager:
        ids = {
            name: await talked(manager, name)
            for name in ("pinned", "leased", "waiting", "turn", "held", "parent", "due")
        }
        await (await manager.open(ids["pinned"])).set_metadata(pinned=True)
        await manager.receive("cli:waiting", UserMessageEvent(content="and?"))
        await manager.hold_session(ids["held"], reason="a case")
        turn = (await manager.open(ids["turn"])).turn()
        await turn.__aenter__()  # and it is never left: its worker died
        clock.advance(25 * DAY_S)
        fork = await (await manager.open(ids["parent"])).fork()
        await fork.add_event(UserMessageEvent(content="reads its parent"))
        lease = await manager.store.claim(ids["leased"], owner="elsewhere/boot/1/1/worker", ttl_s=900)
        assert lease is not None
        for dry_run in (True, False):
            sweep, told = await swept(manager, dry_run=dry_run)
            kept = {name: told[session_id].kept for name, session_id in ids.items()}
            assert kept.pop("due") is None
            assert kept == {
                "pinned": "pinned", "leased": "in_use", "waiting": "waiting", "turn": "turn", "held": "held", "parent": "forks",
            }  # fmt: skip
            assert sweep.done == {"archived": 1}
            assert sweep.dry_run is dry_run
            for name, session_id in ids.items():
                is_done = name == "due" and not dry_run
                assert await status_of(manager, session_id) == ("archived" if is_done else "active")


async def test_several_sweepers_at_once_do_nothing_twice(tmp_path: Path) -> None:
    """Of four sweepers of two processes' managers each session is expired by one, with one event each (A55)."""
    clock = FakeClock()
    async with opened(tmp_path, "sqlite", clock=clock) as one, opened(tmp_path, "sqlite", clock=clock) as two:
        ids = [await talked(one, f"s{number}") for number in range(30)]
        clock.advance(15 * DAY_S)
        await keep_awake(one)
        sweepers = [Sweeper(manager, ALL) for manager in (one, two, one, two)]
        sweeps = await asyncio.gather(*(sweeper.sweep() for sweeper in sweepers))
        assert sum(sweep.done["expired"] for sweep in sweeps) == 30
        for session_id in ids:
            session = await one.open(session_id)
            changes = [event async for event in session.events() if isinstance(event, StatusChangedEvent)]
            assert len(changes) == 1


async def test_a_message_during_a_sweep_is_never_lost(tmp_path: Path) -> None:
    """Whoever writes while sweeps go over the same sessions has every message kept, and their sessions awake (A55, A56)."""
    clock = FakeClock()
    async with opened(tmp_path, "sqlite", clock=clock) as one, opened(tmp_path, "sqlite", clock=clock) as two:
        ids = [await talked(one, f"s{number}") for number in range(20)]
        clock.advance(25 * DAY_S)

        async def write(number: int, session_id: str) -> None:
            await asyncio.sleep(0)
            session = await one.open(session_id)
            await session.add_event(UserMessageEvent(content=f"again {number}"))

        async def sweep() -> None:
            await Sweeper(two, ALL).sweep()

        await asyncio.gather(sweep(), *(write(number, each) for number, each in enumerate(ids)), sweep())
        for number, session_id in enumerate(ids):
            session = await two.open(session_id)
            await session.refresh()
            said = [event.content async for event in session.events() if isinstance(event, UserMessageEvent)]
            assert said == [f"about s{number}", f"again {number}"]


async def test_a_clock_set_back_makes_nothing_due(tmp_path: Path) -> None:
    """Under a clock that is years behind no session is old, and none is looked at (B47)."""
    clock = FakeClock()
    async with opened(tmp_path, "sqlite", clock=clock) as manager:
        await talked(manager, "new")
        clock.advance(-4000 * DAY_S)
        sweep, _ = await swept(manager)
        assert (sweep.looked_at, sweep.done.total()) == (0, 0)


async def test_a_clock_that_jumps_ahead_erases_nothing(tmp_path: Path) -> None:
    """After a jump of years only expiry is done; where people go on writing under it, erasing still waits a week (B47)."""
    clock = FakeClock()
    async with opened(tmp_path, "sqlite", clock=clock) as manager:
        session_id = await talked(manager, "precious")
        clock.advance(3000 * DAY_S)
        for _ in range(5):
            sweep, _ = await swept(manager)
            assert sweep.is_doubtful
        assert await status_of(manager, session_id) == "expired"
        await keep_awake(manager)  # somebody writes under the wrong time, so that the silence is over
        for _ in range(20):
            await swept(manager)
            clock.advance(DAY_S / 4)
        assert await status_of(manager, session_id) in {"archived", "trashed"}
        clock.advance(-3005 * DAY_S)  # the clock is set right
        for _ in range(5):
            await swept(manager)
            clock.advance(DAY_S)
        assert await status_of(manager, session_id) != "erased"
        assert (await (await manager.open(session_id)).get_full_history()) != []


async def test_somebody_can_say_that_the_clock_is_right(tmp_path: Path) -> None:
    """Where a store was silent for long in truth, a sweep that trusts the clock goes on (B47)."""
    clock = FakeClock()
    async with opened(tmp_path, "sqlite", clock=clock) as manager:
        session_id = await talked(manager, "old")
        clock.advance(300 * DAY_S)
        await swept(manager, trusts_clock=True)
        assert await status_of(manager, session_id) == "trashed"


async def test_the_keeper_sweeps_by_itself_and_never_erases(tmp_path: Path) -> None:
    """While a program runs, its sessions expire without anybody asking, and what is due to be erased waits for `kipu gc` (A55)."""
    clock = FakeClock()
    async with opened(tmp_path, "sqlite", clock=clock) as manager:
        session_id = await talked(manager, "old")
        trashed = await manager.open(await talked(manager, "trashed"))
        await trashed.set_status("trashed")
        clock.advance(15 * DAY_S)
        await keep_awake(manager)
        retention = Retention(expire_after_days=10, erase_after_days=10)
        async with LifecycleKeeper(manager, retention, first_after_s=0, every_s=3600) as keeper:
            await asyncio.wait_for(keeper.swept.wait(), timeout=60)
        assert await status_of(manager, session_id) == "expired"
        assert await status_of(manager, trashed.session_id) == "trashed"


async def test_sessions_that_kipu_keeps_for_itself_are_no_ones_to_sweep(tmp_path: Path) -> None:
    """A session under Kipu's own keys is never due (A55)."""
    clock = FakeClock()
    async with opened(tmp_path, "sqlite", clock=clock) as manager:
        session = await manager.get_or_create("kipu:grants")
        await session.add_event(MetadataChangedEvent(set={"a": 1}))
        clock.advance(25 * DAY_S)
        await keep_awake(manager)
        sweep, told = await swept(manager)
        assert told[session.session_id].kept == "own"
        assert sweep.done.total() == 0


@pytest.mark.parametrize(
    "table", [{"erase_after": 0}, {"erase_after": -1}, {"trash_after": True}, {"archive_after": "30"}, {"keep": 3},
              {"archive_after": 30, "trash_after": 20}, {"erase_after": 10**9}],
)  # fmt: skip
def test_retention_that_could_mean_something_else_is_refused(table: dict[str, object]) -> None:
    """Nought, text, unknown names and steps out of order are refused before anything is looked at (B47)."""
    with pytest.raises(ConfigurationError):
        Retention.parse(table, source="config.toml")
    assert Retention.parse({"expire_after": "never"}, source="config.toml").steps == ()
