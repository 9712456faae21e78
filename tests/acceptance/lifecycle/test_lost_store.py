"""An archive is enough: a session comes back from its file though its store is gone (A56, B48)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kipu.cli.exit_code import ExitCode
from kipu.errors import (
    ArchiveDamagedError,
    ConflictError,
    DataKeyMissingError,
    EncryptionError,
    SessionErasedError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from kipu.events.conversation import UserMessageEvent
from kipu.manager.lifecycle.lone_archive import LoneArchive
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.ports.principal import Principal
from kipu.ports.store import Appended, Record
from kipu.security.key_file import key_line
from kipu.stores.wrapper import WrappedStore
from tests.acceptance.lifecycle.sessions import KEY, KINDS, SEALED, archive, filled, only_file, opened, whole
from tests.unit.cli.command_line import CommandLine


def lose_store(folder: Path) -> None:
    """Remove everything of a store but its archives, and the keys that are kept apart from it."""
    for path in folder.iterdir():
        if path.is_dir() and not path.name.endswith(".archive"):
            shutil.rmtree(path)
        elif path.is_file() and not path.name.endswith(".keys"):
            path.unlink()


async def put_away(folder: Path, kind: str, *, events: int = 40) -> str:
    """Archive a session, then lose the store; return the id."""
    async with opened(folder, kind) as manager:
        session_id = await filled(manager, events=events)
        await archive(manager, session_id)
    lose_store(folder)
    return session_id


@pytest.mark.parametrize("kind", KINDS)
async def test_session_comes_back_whole_from_the_file_of_a_lost_store(tmp_path: Path, kind: str) -> None:
    """Events, title, tags, counts, blobs, keys and retries are as they were; the file goes once all is in the store (A56, B48)."""
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager)
        await archive(manager, session_id)
        before, head = await whole(manager, session_id), await manager.store.head(session_id)
        blobs, again = await manager.store.blobs(session_id), await manager.store.outcomes(session_id)
    lose_store(tmp_path)
    async with opened(tmp_path, kind) as manager:
        assert await manager.store.head(session_id) is None
        done = await SessionArchives(manager).unarchive(session_id)
        assert (done.events, done.blobs, done.changed) == (len(before), 1, True)
        assert (await whole(manager, session_id))[: len(before)] == before
        back = await manager.store.head(session_id)
        assert head is not None
        assert back is not None
        assert (back.status, back.offloaded_seq, back.archive) == ("active", 0, None)
        assert (back.title, back.tags, back.owner, back.created_at) == (
            head.title,
            head.tags,
            head.owner,
            head.created_at,
        )
        assert back.token_count == head.token_count
        assert await manager.store.blobs(session_id) == blobs
        assert await manager.store.get_blob(session_id, blobs[0]) == b"picture " * 1000
        assert await manager.store.outcomes(session_id) == again
        assert await manager.resolve(KEY) == session_id
        session = await manager.open(session_id)
        await session.append(
            [UserMessageEvent(content="zebra 3")], principal=manager.principal, idempotency_key=f"{KEY}-3"
        )
        assert session.head.last_seq == back.last_seq  # it is known that this one came before
        assert await manager.store.verify() == []
        assert list((tmp_path / "store.archive").iterdir()) == []


class BreakingStore(WrappedStore):
    """Lose the medium with one append."""

    def __init__(self, inner: Any, *, after: int) -> None:
        super().__init__(inner)
        self._left = after

    async def append(self, session_id: str, records: Sequence[Record], **how: Any) -> Appended:
        if self._left == 0:
            raise StoreUnavailableError(store="", reason="the medium is gone")
        self._left -= 1
        return await self.inner.append(session_id, records, **how)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [0, 1, 2, 3])
async def test_what_was_broken_off_is_taken_up(tmp_path: Path, kind: str, after: int) -> None:
    """Wherever the taking in breaks off, the same call goes on with it, and the file stays until then (C16, B48)."""
    session_id = await put_away(tmp_path, kind, events=300)
    async with opened(tmp_path, kind) as manager:
        breaking = BreakingStore(manager.store, after=after)
        lone = await LoneArchive.find(breaking, session_id, place=None)
        assert lone is not None
        with pytest.raises(StoreUnavailableError):
            await lone.take_in(owner="somebody.archive")
    async with opened(tmp_path, kind) as manager:
        assert only_file(tmp_path).is_file()
        await SessionArchives(manager).unarchive(session_id)
        found = [m["content"] for m in await (await manager.open(session_id)).get_history(1000)]
        assert found == [f"zebra {number}" for number in range(300)]
        assert await manager.store.verify() == []


def test_command_brings_a_lost_session_back_by_its_id(tmp_path: Path) -> None:
    """`kipu unarchive ID --from PLACE` knows the file by the id, in whatever store it is asked to be (A56)."""
    first = CommandLine(tmp_path, f"sqlite:///{tmp_path}/store")
    first.chat("zebra one")
    (session_id,) = first.ids()
    assert first.run("archive", session_id).code == 0
    new = CommandLine(tmp_path, f"sqlite:///{tmp_path}/new.db")
    new.chat("another session")
    assert new.run("unarchive", session_id).code == ExitCode.NOT_FOUND
    place = str(tmp_path / "store.archive")
    assert new.run("unarchive", session_id[:-1], "--from", place).code == ExitCode.NOT_FOUND
    assert new.run("unarchive", session_id, "--from", place, "--keep", "--json").json["session_id"] == session_id
    assert only_file(tmp_path).is_file()
    assert "zebra one" in new.run("show", session_id).stdout


async def test_newest_of_several_files_is_taken(tmp_path: Path) -> None:
    """Where copies of earlier archives lie beside it, the one that goes furthest is taken (A56)."""
    async with opened(tmp_path, "sqlite") as manager:
        session_id = await filled(manager)
        await archive(manager, session_id)
        first = only_file(tmp_path)
        kept = first.read_bytes()
        await (await manager.open(session_id)).add_event(UserMessageEvent(content="the last word"))
        await archive(manager, session_id)
        first.write_bytes(kept)
    lose_store(tmp_path)
    async with opened(tmp_path, "sqlite") as manager:
        await SessionArchives(manager).unarchive(session_id)
        assert (await (await manager.open(session_id)).get_history())[-1]["content"] == "the last word"


async def test_nothing_comes_back_that_must_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what was erased, nor for somebody else, nor a damaged file, nor a sealed one without its keys (C20, A20, C16)."""
    session_id = await put_away(tmp_path, "sqlite")
    async with opened(tmp_path, "sqlite") as manager:
        archives = SessionArchives(manager)
        with pytest.raises(SessionNotFoundError):
            await archives.unarchive(session_id, principal=Principal("eve"))
        with pytest.raises(SessionNotFoundError):
            await archives.unarchive(session_id, source=str(tmp_path))
        file = only_file(tmp_path)
        good = file.read_bytes()
        file.write_bytes(good[:200] + bytes([good[200] ^ 1]) + good[201:])
        with pytest.raises(ArchiveDamagedError):
            await archives.unarchive(session_id)
        file.write_bytes(good)
        assert await manager.store.head(session_id) is None
        await archives.unarchive(session_id, keep_file=True)
        await manager.erase_session(session_id)
        file.write_bytes(good)
        with pytest.raises(SessionErasedError):
            await archives.unarchive(session_id)


@pytest.mark.parametrize("other", ["sqlite", "sqlite?encrypt=env:KIPU_OTHER_KEY"])
async def test_sealed_file_opens_with_its_keys_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """A store without keys, or with others, takes nothing in (C20, B55)."""
    session_id = await put_away(tmp_path, SEALED)
    monkeypatch.setenv("KIPU_OTHER_KEY", key_line(bytes(range(1, 33))).strip())
    (tmp_path / "elsewhere").mkdir()
    async with opened(tmp_path / "elsewhere", other) as manager:
        with pytest.raises(DataKeyMissingError if "?" in other else EncryptionError):
            await SessionArchives(manager).unarchive(session_id, source=str(tmp_path / "store.archive"))
        assert await manager.store.head(session_id) is None


@pytest.mark.parametrize("other", [kind for kind in KINDS if "encrypt" in kind])
async def test_plain_file_is_sealed_by_the_store_that_takes_it_in(tmp_path: Path, other: str) -> None:
    """What a store without keys archived comes back whole in one with keys, and stands there as sealed as the rest (A56, B55)."""
    session_id = await put_away(tmp_path, "sqlite")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    async with opened(folder, other) as manager:
        await SessionArchives(manager).unarchive(session_id, source=str(tmp_path / "store.archive"))
        session = await manager.open(session_id)
        said = [message["content"] for message in await session.get_history()]
        assert [hit.seq for hit in (await manager.search("zebra", session_id=session_id)).items]
        assert await manager.resolve(KEY) == session_id
        assert await manager.store.verify() == []
    assert "zebra" in str(said)
    stored = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert stored
    assert b"zebra" not in stored
    assert not list((tmp_path / "store.archive").iterdir())


async def test_fork_comes_back_after_its_parent(tmp_path: Path) -> None:
    """A fork's file holds its own events: without its parent it is refused by the parent's id, with it it is whole (C11)."""
    async with opened(tmp_path, "sqlite") as manager:
        parent = await filled(manager)
        fork = await (await manager.open(parent)).fork()
        await fork.add_event(UserMessageEvent(content="another way"))
        before = [m["content"] for m in await fork.get_history()]
        await archive(manager, fork.session_id)
        await archive(manager, parent)
    lose_store(tmp_path)
    async with opened(tmp_path, "sqlite") as manager:
        archives = SessionArchives(manager)
        with pytest.raises(SessionNotFoundError, match=parent):
            await archives.unarchive(fork.session_id)
        await archives.unarchive(parent)
        await archives.unarchive(fork.session_id)
        assert [m["content"] for m in await (await manager.open(fork.session_id)).get_history()] == before


async def test_file_gives_nobody_what_is_not_theirs_by_saying_so(tmp_path: Path) -> None:
    """A file that somebody wrote in a store of their own opens no session, makes nobody a member, and takes no key (A20, C19)."""
    ada, eve = Principal("ada", tenant="acme"), Principal("eve", tenant="acme")
    (tmp_path / "own").mkdir()
    async with opened(tmp_path, "sqlite") as manager:
        private = await manager.get_or_create("chat:ada", principal=ada)
        await private.add_event(UserMessageEvent(content="for ada alone"), principal=ada)
    async with opened(tmp_path / "own", "sqlite") as manager:
        await manager.create_session(private.session_id, principal=eve)
        double = await manager.open(private.session_id, principal=eve)
        await double.add_event(UserMessageEvent(content="anything"), principal=eve)
        fork = await double.fork(principal=eve)
        adas = await manager.get_or_create("chat:other", principal=ada)
        await adas.share("eve", role="admin", principal=ada)
        eves = await manager.get_or_create("chat:eve", principal=eve)
        taken = ("kipu:proposals;tenant=acme;member=ada", "chat:bob;tenant=other")
        for key in taken:
            await manager.store.bind(key, eves.session_id)
        for each in (fork, adas, eves):
            await SessionArchives(manager).archive(each.session_id, principal=eve)
    async with opened(tmp_path, "sqlite") as manager:
        archives, place = SessionArchives(manager), str(tmp_path / "own" / "store.archive")
        for each in (fork, adas):
            with pytest.raises(SessionNotFoundError):
                await archives.unarchive(each.session_id, source=place, principal=eve)
            assert await manager.store.head(each.session_id) is None
        await archives.unarchive(eves.session_id, source=place, principal=eve)
        assert await manager.resolve("chat:eve", principal=eve) == eves.session_id
        assert [await manager.store.resolve(key) for key in taken] == [None, None]


@pytest.mark.parametrize("kind", KINDS)
async def test_erased_session_is_told_as_erased(tmp_path: Path, kind: str) -> None:
    """From a copy of its file an erased session does not come back, and is said to be erased, also under seal (C20)."""
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager)
        await archive(manager, session_id)
        file = only_file(tmp_path)
        copy = file.read_bytes()
        await manager.erase_session(session_id)
        file.write_bytes(copy)
        with pytest.raises(SessionErasedError):
            await SessionArchives(manager).unarchive(session_id)
        assert await manager.store.head(session_id) is None


async def test_damaged_copy_tells_a_stranger_of_no_session(tmp_path: Path) -> None:
    """Who may not see a session is told that there is none, whatever is wrong with a file of it (A20, C19)."""
    async with opened(tmp_path, "sqlite") as manager:
        session_id = await filled(manager)
        await archive(manager, session_id)
        file = only_file(tmp_path)
        good = file.read_bytes()
        await SessionArchives(manager).unarchive(session_id)
        file.write_bytes(good[:-1])
        place = str(file.parent)
        with pytest.raises(SessionNotFoundError):
            await SessionArchives(manager).unarchive(session_id, source=place, principal=Principal("eve"))
        with pytest.raises(ArchiveDamagedError):
            await SessionArchives(manager).unarchive(session_id, source=place)


@pytest.mark.parametrize("kind", [SEALED, f"{SEALED}&chain=on"])
async def test_plain_file_is_not_taken_for_a_sealed_one(tmp_path: Path, kind: str) -> None:
    """What somebody writes in the place of a sealed file is refused by the keys that sealed it (C20, B55)."""
    (tmp_path / "forged").mkdir()
    session_id = await put_away(tmp_path, kind)
    only_file(tmp_path).unlink()
    async with opened(tmp_path / "forged", "sqlite") as manager:
        session = await manager.open(await manager.create_session(session_id))
        await session.add_event(UserMessageEvent(content="never said"))
        await archive(manager, session_id)
    async with opened(tmp_path, kind) as manager:
        with pytest.raises(EncryptionError, match="not sealed"):
            await SessionArchives(manager).unarchive(session_id, source=str(tmp_path / "forged" / "store.archive"))
        assert await manager.store.head(session_id) is None


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", f"{SEALED}&chain=on"])
async def test_fork_waits_for_a_parent_that_goes_as_far(tmp_path: Path, kind: str) -> None:
    """Beside an older copy of its parent a fork is refused: what the parent says next would be the fork's past (C11, A26)."""
    async with opened(tmp_path, kind) as manager:
        parent = await filled(manager, events=3)
    shutil.copytree(tmp_path, tmp_path / "older")
    async with opened(tmp_path, kind) as manager:
        await (await manager.open(parent)).add_event(UserMessageEvent(content="before the fork"))
        fork = await (await manager.open(parent)).fork()
        await fork.add_event(UserMessageEvent(content="another way"))
        await archive(manager, fork.session_id)
    for file in tmp_path.glob("store.keys*"):
        shutil.copy(file, tmp_path / "older")
    async with opened(tmp_path / "older", kind) as manager:
        with pytest.raises(ConflictError, match=parent):
            await SessionArchives(manager).unarchive(fork.session_id, source=str(tmp_path / "store.archive"))
        assert await manager.store.head(fork.session_id) is None
    assert only_file(tmp_path).is_file()


async def test_session_that_is_there_is_not_taken_in_again(tmp_path: Path) -> None:
    """A copy of its file that was kept changes nothing of a session that went on (B48)."""
    session_id = await put_away(tmp_path, "sqlite")
    async with opened(tmp_path, "sqlite") as manager:
        archives = SessionArchives(manager)
        await archives.unarchive(session_id, keep_file=True)
        session = await manager.open(session_id)
        await session.add_event(UserMessageEvent(content="newer"))
        assert not (await archives.unarchive(session_id)).changed
        assert (await session.get_history())[-1]["content"] == "newer"
        assert only_file(tmp_path).is_file()
