"""A primary that dies and a standby that takes over: nothing acknowledged is lost, and nobody writes to the wrong one."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from kipu.errors import StoreReadOnlyError, StoreUnavailableError
from kipu.manager.manager import SessionManager
from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, EventStore, Lease
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.wiring import open_manager
from tests.acceptance.postgres.cluster import Server, a_pair, both
from tests.acceptance.postgres.kit import Proxy, ask, begin, log, opened, proxied, record, text_of, until
from tests.acceptance.postgres.test_lost_connections import check_all_stands
from tests.acceptance.runtime.soak_check import SoakLog
from tests.acceptance.workers.test_worker_command import working
from tests.servers import fresh_schema


async def fail_over(primary: Server, standby: Server) -> None:
    """Kill one, have the other take over."""
    await asyncio.to_thread(primary.kill)
    await asyncio.to_thread(standby.promote)


async def until_synchronous(url: str) -> None:
    """Wait until what is acknowledged is on the standby too."""
    await until(url, "SELECT max(sync_state) FROM pg_stat_replication", "sync")


class Writers:
    """Append to sessions, and remember what was acknowledged."""

    def __init__(self, store: EventStore, sessions: list[str]) -> None:
        self._store, self.sessions = store, sessions
        self.done: dict[str, Appended] = {}
        self.is_over = False

    async def run(self, *, count: int) -> None:
        """Append `count` events to each session, and go on until `is_over`; what failed is not tried again."""
        await asyncio.gather(*(self._write(one, count=count) for one in self.sessions))

    async def _write(self, session_id: str, *, count: int) -> None:
        number = 0
        while number < count or not self.is_over:
            text, number = f"{session_id}.{number}", number + 1
            with suppress(StoreUnavailableError):
                self.done[text] = await self._store.append(session_id, [record(text)])

    async def until(self, count: int) -> None:
        """Wait until so many were acknowledged."""
        while len(self.done) < count:  # noqa: ASYNC110 - whoever appends does not know who waits
            await asyncio.sleep(0.01)


async def renewing(store: EventStore, lease: Lease) -> Lease:
    """Renew a lease as its holder does: again where the store is not there for a moment."""
    async with asyncio.timeout(60):
        while True:
            with suppress(StoreUnavailableError):
                return await store.renew(lease)


async def write_through_a_failover(url: str, pair: tuple[Server, Server], *, count: int, proxy: Proxy | None) -> None:
    """Append while the primary dies and the standby takes over, and judge what stands on it."""
    primary, standby = pair
    async with opened(url) as store:
        writers = Writers(store, [f"s{number}" for number in range(4)])
        for session_id in [*writers.sessions, "held"]:
            await begin(store, session_id)
        lease = await store.claim("held", owner="me", ttl_s=300)
        assert lease is not None
        work = asyncio.ensure_future(writers.run(count=count))
        await writers.until(count)
        before = len(writers.done)
        await fail_over(primary, standby)
        if proxy is not None:
            proxy.lead_to(standby.folder)
        await writers.until(before + count)
        writers.is_over = True
        await work
        await check_all_stands(store, writers.sessions, writers.done)
        lease = await renewing(store, lease)
        await store.append("held", [record("under the lease")], token=lease.token)
        assert [text_of(event) for event in await log(store, "held")] == ["begin", "under the lease"]
    assert await ask(standby.url, "SELECT pg_is_in_recovery()") == [(False,)]


@pytest.mark.parametrize("count", [60, pytest.param(1_500, marks=pytest.mark.long)])
async def test_failover_loses_nothing_acknowledged_with_several_hosts_in_the_url(count: int) -> None:
    """Primary killed, standby promoted: writers move by the URL's hosts, each acknowledged event stands once, leases go on (C2, PG-22)."""
    with a_pair() as pair:
        await until_synchronous(pair[0].url)
        url = fresh_schema(both(*pair), statement_timeout_s="5")
        await write_through_a_failover(url, pair, count=count, proxy=None)


@pytest.mark.parametrize("count", [60, pytest.param(1_500, marks=pytest.mark.long)])
async def test_failover_loses_nothing_acknowledged_behind_an_address_that_moves(count: int) -> None:
    """The same where one address leads to the primary, whichever it is (C2, PG-22)."""
    with a_pair() as pair:
        await until_synchronous(pair[0].url)
        async with proxied(pair[0].url) as proxy:
            url = fresh_schema(proxy.url, statement_timeout_s="5")
            await write_through_a_failover(url, pair, count=count, proxy=proxy)


# ---- turns -----------------------------------------------------------------------------------------------------------


async def publish_surely(bus: MessageBus, message: InboundEvent) -> tuple[str, int]:
    """Hand a message in until it is acknowledged, as a channel does."""
    async with asyncio.timeout(90):
        while True:
            try:
                receipt = await bus.publish(message)
            except StoreUnavailableError:
                continue
            return receipt.session_id, receipt.seq


async def until_quiet(manager: SessionManager) -> None:
    """Wait until no message waits and no turn is open."""
    async with asyncio.timeout(90):
        while True:
            with suppress(StoreUnavailableError):
                heads = [head async for head in manager.heads()]
                if not any(head.waiting or head.open_turn for head in heads):
                    return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(("messages", "chats"), [(30, 5), pytest.param(300, 20, marks=pytest.mark.long)])
async def test_failover_runs_no_turn_twice_and_forgets_no_message(messages: int, chats: int, tmp_path: Path) -> None:
    """Workers go on over the standby: each acknowledged message has one turn, in order, whenever the primary died (A38, C3, C14, PG-22)."""
    with a_pair() as (primary, standby):
        await until_synchronous(primary.url)
        url = fresh_schema(both(primary, standby), statement_timeout_s="5")
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(await open_manager(url))
            workers = [await stack.enter_async_context(working(url, tmp_path)) for _ in range(2)]
            bus, kept = MessageBus(manager), dict[tuple[str, int], str]()

            async def send(chat: int) -> None:
                for number in range(chat, messages, chats):
                    name = f"m{number}"
                    message = InboundEvent(
                        channel="c", chat_id=str(chat), sender_id="ada", content=name, source_message_id=name
                    )
                    kept[await publish_surely(bus, message)] = name

            sending = asyncio.gather(*(send(chat) for chat in range(chats)))
            while len(kept) < messages // 3:  # noqa: ASYNC110 - whoever sends does not know who waits
                await asyncio.sleep(0.01)
            await fail_over(primary, standby)
            await sending
            await until_quiet(manager)
            await judge(manager, kept)
            assert [worker.returncode for worker in workers] == [None, None]


async def judge(manager: SessionManager, kept: dict[tuple[str, int], str]) -> None:
    """Check every log: each message once, each with one turn that was completed."""
    found: Counter[str] = Counter()
    async for head in manager.heads():
        events = await (await manager.open(head.session_id)).get_full_history()
        story = SoakLog(events)
        assert story.problems == []
        assert all(turn.finished is not None and turn.finished.outcome == "completed" for turn in story.turns)
        found.update(kept[head.session_id, seq] for seq in story.messages)
    assert found == Counter(kept.values())
    assert set(found.values()) == {1}


# ---- the wrong server ------------------------------------------------------------------------------------------------


async def test_server_that_was_primary_is_not_written_when_it_comes_back() -> None:
    """An old primary that is started again takes nothing: not from who knew the new one, nor where both can be asked (PG-23)."""
    with a_pair() as (primary, standby):
        await until_synchronous(primary.url)
        several = fresh_schema(both(primary, standby))
        schema = several.partition("schema=")[2]
        async with AsyncExitStack() as stack:
            proxy = await stack.enter_async_context(proxied(primary.url))
            first = await stack.enter_async_context(opened(several))
            moving = f"{proxy.url}&schema={schema}&statement_timeout_s=2"
            behind = await stack.enter_async_context(opened(moving))
            await begin(first, "one")
            await behind.append("one", [record("before")])
            await fail_over(primary, standby)
            proxy.lead_to(standby.folder)
            await appended_at_last(behind, "after")
            primary.set(synchronous_standby_names="")
            await asyncio.to_thread(primary.start)
            proxy.lead_to(primary.folder)
            with pytest.raises(StoreUnavailableError, match="taken over"):
                await behind.append("one", [record("to the wrong one")])
            for _ in range(3):  # which one answers first is a matter of chance
                async with opened(several) as later:  # its first host is the old one
                    await later.append("one", [record("to the right one")])
            await appended_at_last(first, "from before")
            proxy.lead_to(standby.folder)
            await appended_at_last(behind, "back again")
        old = await ask(primary.url, f'SELECT count(*) FROM "{schema}".events')
        assert old == [(2,)]


async def appended_at_last(store: EventStore, text: str) -> Appended:
    """Append, as often as it takes."""
    async with asyncio.timeout(60):
        while True:
            with suppress(StoreUnavailableError):
                return await store.append("one", [record(text)])


async def test_standby_that_is_not_promoted_yet_is_waited_for() -> None:
    """An address that moved to a standby before it is promoted is StoreUnavailableError, not a store for reading only (PG-23)."""
    with a_pair() as (primary, standby):
        await until_synchronous(primary.url)
        async with AsyncExitStack() as stack:
            proxy = await stack.enter_async_context(proxied(primary.url))
            url = fresh_schema(proxy.url, statement_timeout_s="2")
            store = await stack.enter_async_context(opened(url))
            await begin(store, "one")
            await asyncio.to_thread(primary.kill)
            proxy.lead_to(standby.folder)
            with pytest.raises(StoreUnavailableError):
                await store.append("one", [record("too early")])
            await asyncio.to_thread(standby.promote)
            await appended_at_last(store, "in time")
            assert text_of((await log(store, "one"))[-1]) == "in time"


async def test_head_remembered_from_a_lost_server_is_never_written_over_another() -> None:
    """Where an asynchronous standby lacks the last events, who remembers them writes on what is there, not over it (PG-24)."""
    with a_pair(synchronous=False) as (primary, standby):
        url = fresh_schema(both(primary, standby), statement_timeout_s="5")
        async with opened(url) as remembers:
            await begin(remembers, "one")
            await until_replayed(primary, standby)
            standby.set(primary_conninfo="")
            await asyncio.to_thread(standby.reload)
            await until(primary.url, "SELECT count(*) FROM pg_stat_replication", 0)
            for number in range(3):
                await remembers.append("one", [record(f"lost {number}")])
            await fail_over(primary, standby)
            async with opened(url) as other:
                for number in range(3):
                    patch = HeadPatch(set={"title": f"title {number}"})
                    await other.append("one", [record(f"kept {number}")], head=patch)
                assert (await appended_at_last(remembers, "after")).first_seq == 5
                head = await other.head("one")
                assert head is not None
                assert (head.title, head.last_seq, head.event_count) == ("title 2", 5, 5)
                texts = [text_of(event) for event in await log(other, "one")]
                assert texts == ["begin", "kept 0", "kept 1", "kept 2", "after"]


async def until_replayed(primary: Server, standby: Server) -> None:
    """Wait until the standby has what the primary has."""
    [(there,)] = await ask(primary.url, "SELECT pg_current_wal_lsn()::text")
    await until(standby.url, f"SELECT pg_last_wal_replay_lsn() >= '{there}'", True)


async def test_standby_is_read_by_who_asks_for_nothing_else() -> None:
    """A URL that leads to a standby from the beginning shows its sessions, and every write is StoreReadOnlyError (PG-23)."""
    with a_pair() as (primary, standby):
        await until_synchronous(primary.url)
        url = fresh_schema(primary.url)
        schema = url.partition("schema=")[2]
        async with opened(url) as store:
            await begin(store, "one")
        await until_replayed(primary, standby)
        async with opened(f"{standby.url}&schema={schema}") as reading:
            assert [text_of(event) for event in await log(reading, "one")] == ["begin"]
            with pytest.raises(StoreReadOnlyError):
                await reading.append("one", [record("x")])


async def test_server_says_what_it_promises() -> None:
    """The store says whether a standby is waited for, and that nothing is with synchronous_commit=off (B54, PG-25)."""
    with a_pair() as (primary, _standby):
        await until_synchronous(primary.url)
        url = fresh_schema(primary.url)
        async with opened(url) as store:
            assert "second has it too" in store.describe().loss_window
            await begin(store, "one")
