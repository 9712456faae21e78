"""Archives through the manager: where a session's events are makes no difference but of place (A56, B48)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kipu.archive.archive_reader import ArchiveReader
from kipu.archive.place import FolderPlace
from kipu.errors import (
    AccessDeniedError,
    ArchiveDamagedError,
    ArchiveMissingError,
    ArchivePlaceError,
    SessionBusyError,
    SessionNotFoundError,
    StoreCorruptError,
    TransitionError,
)
from kipu.events.conversation import UserMessageEvent
from kipu.manager.lifecycle.archive_backed import archive_backed
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.ports.principal import Principal
from kipu.ports.store import SessionQuery
from kipu.stores.wrapper import innermost
from tests.acceptance.lifecycle.sessions import KEY, KINDS, SEALED, STORES, archive, filled, only_file, opened, whole


@pytest.mark.parametrize("kind", KINDS)
async def test_session_reads_the_same_from_its_archive_and_after_it(tmp_path: Path, kind: str) -> None:
    """Events, blobs, keys, retries, title, tags and counts are the same in the archive, in it again, and back (A56, B48, A67, AR-9)."""
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager)
        before, head = await whole(manager, session_id), await manager.store.head(session_id)
        blobs = await manager.store.blobs(session_id)
        await archive(manager, session_id)
    async with opened(tmp_path, kind) as manager:
        assert await whole(manager, session_id) == [*before, *(await whole(manager, session_id))[len(before) :]]
        away = await manager.store.head(session_id)
        assert head is not None
        assert away is not None
        assert away.status == "archived"
        assert away.offloaded_seq == away.last_seq
        assert (away.title, away.tags, away.metadata) == (head.title, head.tags, head.metadata)
        assert len(await innermost(manager.store).blobs(session_id)) == 0
        assert await manager.store.blobs(session_id) == blobs
        assert await manager.store.get_blob(session_id, blobs[0]) == b"picture " * 1000
        assert [h.session_id async for h in manager.heads(SessionQuery(tags=frozenset({"kept"})))] == [session_id]
        assert (await manager.search("zebra 7")).items[0].session_id == session_id
        assert await manager.resolve(KEY) == session_id
        assert await manager.store.verify() == []
        again = await manager.store.outcomes(session_id)
        assert len(again) == 40
        await SessionArchives(manager).unarchive(session_id)
        assert (await whole(manager, session_id))[: len(before)] == before
        back = await manager.store.head(session_id)
        assert back is not None
        assert (back.status, back.offloaded_seq, back.archive) == ("active", 0, None)
        assert len(await innermost(manager.store).blobs(session_id)) == 1
        assert await manager.store.outcomes(session_id) == again
        assert await manager.store.verify() == []
        assert list((tmp_path / "store.archive").iterdir()) == []


@pytest.mark.parametrize("kind", STORES)
async def test_use_revives_an_archived_session_and_loses_nothing(tmp_path: Path, kind: str) -> None:
    """A message to an archived session wakes it, its window has the old messages, and coming back keeps the new one (A56)."""
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager, events=5)
        held = await manager.open(session_id)
        await archive(manager, session_id)
        await held.add_event(UserMessageEvent(content="from an object that knew nothing of it"))
        assert held.status == "active"
        head = await manager.store.head(session_id)
        assert head is not None
        assert (head.status, head.offloaded_seq) == ("active", 8)
    async with opened(tmp_path, kind) as manager:
        session = await manager.get_or_create(KEY)
        await session.add_event(UserMessageEvent(content="and later"))
        shown = str(await session.get_context_for_llm())
        assert "zebra 0" in shown
        assert "and later" in shown
        await archive(manager, session_id)  # once more, with all of it
        assert (await manager.store.verify()) == []
        await SessionArchives(manager).unarchive(session_id)
        said = [event async for event in session.events() if isinstance(event, UserMessageEvent)]
        assert [event.content for event in said][-2:] == ["from an object that knew nothing of it", "and later"]
        assert len(said) == 7


@pytest.mark.parametrize("kind", STORES)
async def test_what_is_written_after_coming_back_is_read_at_every_place(tmp_path: Path, kind: str) -> None:
    """A session that came back and went on is paged, pinned, forked and rewound anywhere, by who opens it later (A56, B6, C11)."""
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager, events=5)
        await archive(manager, session_id)
        await SessionArchives(manager).unarchive(session_id)
        session = await manager.open(session_id)
        for number in range(40):
            await session.add_event(UserMessageEvent(content=f"later {number}"))
    async with opened(tmp_path, kind) as manager:
        session = await manager.open(session_id)
        last = session.head.last_seq
        for seq in range(1, last + 1):
            assert [event.seq for event in await manager.store.read(session_id, after=seq - 1, limit=1)] == [seq]
            newest = await manager.store.read(session_id, until=seq, limit=1, backwards=True)
            assert [event.seq for event in newest] == [seq]
        await session.pin(last - 20)
        assert (await session.fork(last - 20)).head.base_seq == last - 20
        await session.rewind(last - 20)
        assert (await session.get_context_for_llm())[-1]["content"] == "later 19"


@pytest.mark.parametrize("kind", STORES)
async def test_forks_of_an_archived_parent_still_read_it(tmp_path: Path, kind: str) -> None:
    """A fork reads what it shares from its parent's archive, is archived itself, and comes back (C11, B48)."""
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager, events=6)
        fork = await (await manager.open(session_id)).fork()
        await fork.add_event(UserMessageEvent(content="only here"))
        await archive(manager, session_id)
        await archive(manager, fork.session_id)
    async with opened(tmp_path, kind) as manager:
        again = await manager.open(fork.session_id)
        said = [event.content async for event in again.events() if isinstance(event, UserMessageEvent)]
        assert said == [*(f"zebra {number}" for number in range(6)), "only here"]
        assert (await manager.store.verify()) == []
        await SessionArchives(manager).unarchive(fork.session_id)
        assert (await manager.store.verify()) == []


@pytest.mark.parametrize("kind", [SEALED, "jsonl?encrypt=env:KIPU_TEST_KEY"])
async def test_an_encrypted_sessions_archive_holds_no_plaintext(tmp_path: Path, kind: str) -> None:
    """What is under seal in the store is under seal in its archive, titles and blobs too (B55, AR-6)."""
    mark = "canary-7f3a9b52c1"
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager, text=mark)
        await manager.store.put_blob(session_id, mark.encode() * 50)
        await archive(manager, session_id)
        place = FolderPlace(tmp_path / "store.archive")
        reader = await ArchiveReader.open(place, only_file(tmp_path).name, session_id=session_id)
        raw = [await reader._raw(block) for block in reader.manifest.blocks]
        assert len(raw) > 2
        assert all(mark.encode() not in block for block in raw)
        assert mark not in str(reader.manifest)
        assert "filed thing" not in str(reader.manifest)
        assert mark in str(await whole(manager, session_id))


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("fault", ["missing", "cut", "flipped"])
async def test_a_damaged_or_missing_archive_is_a_typed_error(tmp_path: Path, kind: str, fault: str) -> None:
    """Reading, verifying and coming back say what is wrong, and a good copy of the file mends it (A50, C16, AR-8, AR-9)."""
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager)
        before = await whole(manager, session_id)
        await manager.catch_up_index()
        await archive(manager, session_id)
    file = only_file(tmp_path)
    good = file.read_bytes()
    if fault == "missing":
        file.unlink()
    elif fault == "cut":
        file.write_bytes(good[:-200])
    else:
        file.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    kinds = ArchiveMissingError if fault == "missing" else ArchiveDamagedError
    async with opened(tmp_path, kind) as manager:
        with pytest.raises(kinds):
            await whole(manager, session_id)
        with pytest.raises(kinds):
            await SessionArchives(manager).unarchive(session_id)
        (damage,) = await manager.store.verify(session_id)
        assert damage.where == "archive"
        assert damage.session_id == session_id
        head = await manager.store.head(session_id)
        assert head is not None
        assert head.title == "a filed thing"
        (hit,) = (await manager.search('"zebra 39"')).items
        assert (hit.session_id, hit.title) == (session_id, "a filed thing")
        assert "archive" in hit.snippet
        file.write_bytes(good)
    async with opened(tmp_path, kind) as manager:
        await SessionArchives(manager).unarchive(session_id)
        assert (await whole(manager, session_id))[: len(before)] == before


async def test_a_moved_archive_comes_back_from_where_it_is(tmp_path: Path) -> None:
    """`--to` keeps the file elsewhere, and `--from` finds it where it was moved to (B48)."""
    async with opened(tmp_path, "sqlite") as manager:
        session_id = await filled(manager)
        await archive(manager, session_id, to=str(tmp_path / "far"))
        assert (await manager.store.read(session_id, limit=1))[0].seq == 1
        (tmp_path / "far").rename(tmp_path / "farther")
    async with opened(tmp_path, "sqlite") as manager:
        with pytest.raises(ArchiveMissingError):
            await manager.store.read(session_id, limit=1)
        await SessionArchives(manager).unarchive(session_id, source=str(tmp_path / "farther"), keep_file=True)
        assert len(list((tmp_path / "farther").iterdir())) == 1
        assert (await manager.store.read(session_id, limit=1))[0].seq == 1


async def test_archiving_is_refused_where_it_must_not_be(tmp_path: Path) -> None:
    """A session with work, in use, in the trash, unknown or somebody else's is not archived, and nothing of it changes (C19, B47)."""
    async with opened(tmp_path, "sqlite") as manager:
        session_id = await filled(manager)
        archives = SessionArchives(manager)
        await manager.receive(KEY, UserMessageEvent(content="waits"))
        with pytest.raises(SessionBusyError):
            await archives.archive(session_id)
        other = await filled(manager, key="cli:other")
        session = await manager.open(other)
        async with session.holding():
            with pytest.raises(SessionBusyError):
                await archives._archiver.archive(other, wait_s=0.05)
        with pytest.raises(SessionNotFoundError):
            await archives.archive(other, principal=Principal("eve"))
        await session.share("bob", role="viewer")
        with pytest.raises(AccessDeniedError):
            await archives.archive(other, principal=Principal("bob"))
        with pytest.raises(ArchivePlaceError):
            await archives.archive(other, to="ftp:nowhere")
        await session.set_status("trashed")
        with pytest.raises(TransitionError):
            await archives.archive(other)
        with pytest.raises(SessionNotFoundError):
            await archives.archive("unknown")
        for each in (session_id, other):
            head = await manager.store.head(each)
            assert head is not None
            assert head.offloaded_seq == 0
        assert not (tmp_path / "store.archive").exists()


async def test_a_session_that_cannot_be_read_whole_stays_in_its_store(tmp_path: Path) -> None:
    """What is damaged is not archived, for an archive would lose what cannot be read (C16, JL-29)."""
    async with opened(tmp_path, "jsonl") as manager:
        session_id = await filled(manager)
    log = tmp_path / "store" / session_id / "000001.jsonl"
    lines = log.read_bytes().split(b"\n")
    lines[10] = lines[10].replace(b"zebra", b"Zebra")
    log.write_bytes(b"\n".join(lines))
    before = log.read_bytes()
    async with opened(tmp_path, "jsonl") as manager:
        with pytest.raises(StoreCorruptError):
            await archive(manager, session_id)
        assert before in log.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
async def test_erasing_a_session_removes_its_archive(tmp_path: Path, kind: str) -> None:
    """Erasing takes the archive file with it (C20)."""
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager)
        await archive(manager, session_id)
        assert only_file(tmp_path).exists()
        assert await manager.delete_session(session_id)
        assert list((tmp_path / "store.archive").iterdir()) == []
        assert await manager.store.head(session_id) is None


async def test_a_new_archive_of_a_session_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    """However often a session is archived and used, one file of it is kept, and the idle second call changes nothing (B48)."""
    async with opened(tmp_path, "sqlite") as manager:
        session_id = await filled(manager)
        for number in range(3):
            await archive(manager, session_id)
            await archive(manager, session_id)
            assert only_file(tmp_path).exists()
            session = await manager.open(session_id)
            await session.add_event(UserMessageEvent(content=f"round {number}"))
        assert len([e for e in await whole(manager, session_id) if b"round" in e.record.body]) == 3


@pytest.mark.parametrize("kind", STORES)
async def test_what_does_not_read_back_is_not_let_go_of(tmp_path: Path, kind: str) -> None:
    """Where the medium gives back other bytes than were written, the session stays in its store (AR-11, C16)."""
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager)
        before = await whole(manager, session_id)

        class Forgetful(FolderPlace):
            """A folder on a medium that turns one bit in the middle of a file."""

            async def read(self, name: str, *, start: int, length: int) -> bytes:
                data = await super().read(name, start=start, length=length)
                return data if start else bytes([data[0] ^ 1]) + data[1:]

        backed = archive_backed(manager.store)
        backed.place = lambda url: Forgetful(tmp_path / "bad")  # type: ignore[method-assign]
        with pytest.raises(ArchiveDamagedError):
            await archive(manager, session_id)
        head = await manager.store.head(session_id)
        assert head is not None
        assert head.offloaded_seq == 0
        assert (await whole(manager, session_id))[: len(before)] == before


@pytest.mark.parametrize("kind", STORES)
async def test_readers_notice_nothing_while_a_session_goes_and_comes(tmp_path: Path, kind: str) -> None:
    """Whoever reads a session all the while it is archived and brought back reads the same events (A56)."""
    async with opened(tmp_path, kind) as manager, opened(tmp_path, kind) as other:
        session_id = await filled(manager, events=60)
        before = await whole(manager, session_id)
        done = asyncio.Event()

        async def read() -> int:
            rounds = 0
            while not done.is_set():
                assert (await whole(other, session_id))[: len(before)] == before
                newest = await other.store.read(session_id, limit=5, backwards=True)
                assert newest[0].seq - newest[-1].seq == 4
                rounds += 1
            return rounds

        reading = asyncio.create_task(read())
        archives = SessionArchives(manager)
        try:
            for _ in range(4):
                await archives.archive(session_id)
                await archives.unarchive(session_id)
        finally:
            done.set()
        assert await reading > 1
