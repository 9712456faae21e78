"""Sessions whose events are in an archive file: erased with it, let go of and exported as if they were in the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.archive.place import FolderPlace
from kipu.errors import SessionHeldError
from kipu.interop.export_person import export_person
from kipu.interop.person_archive import PersonArchive
from kipu.manager.lifecycle.archiver import Archiver
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.wiring import open_manager
from tests.acceptance.erasing.crowded_session import crowd, files_with
from tests.acceptance.erasing.test_detaching import family, seen
from tests.acceptance.erasing.test_erasure import erase_and_die


async def test_an_archived_session_is_erased_with_its_file(url: str, home: Path) -> None:
    """Erasing an archived session takes the archive file, wherever it is, and leaves no byte; a hold keeps both (B48, B58, C20)."""
    places = {"goes": None, "elsewhere": str(home / "archives")}
    async with await open_manager(url) as manager:
        archives = SessionArchives(manager)
        for session_id, place in places.items():
            session = await crowd(manager, url, home, session_id=session_id)
            done = await archives.archive(session_id, to=place)
            assert done.changed
            file = next(home.rglob(done.name))
            await manager.hold_session(session_id, reason="case 12")
            with pytest.raises(SessionHeldError):
                await manager.erase_session(session_id)
            assert file.exists()
            await manager.release_session(session_id)
            receipt = await manager.erase_session(session_id, prove=True)
            assert receipt.removed["store"]["archives"] == 1
            assert not file.exists()
            assert files_with(home, session.marks) == {}
            assert receipt.proof is not None
            assert receipt.proof.found == 0


@pytest.mark.parametrize("at", [6, 8])
async def test_a_killed_erasure_of_an_archived_session_is_finished(url: str, home: Path, at: int) -> None:
    """Killed at a step, the erasure of an archived session is ended by the next opening, its file included (B48, C20)."""
    async with await open_manager(url) as manager:
        session = await crowd(manager, url, home, session_id="goes")
        done = await SessionArchives(manager).archive("goes")
    erase_and_die(url, "goes", at=at, before=False)
    async with await open_manager(url) as manager:
        receipts = await manager.receipts() or [await manager.erase_session("goes")]
        assert [receipt.sessions for receipt in receipts] == [("goes",)]
    assert list(home.rglob(done.name)) == []
    assert files_with(home, session.marks) == {}


@pytest.mark.parametrize("left", ["whole", "part", "kept"])
async def test_files_that_no_head_names_go_with_their_session(
    url: str, home: Path, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed archiving left, and a file that was kept, hold all of a session, and are erased with it (C20, C16)."""

    class KilledError(BaseException):
        """Nothing after this is done."""

    async def killed(*_: object, **__: object) -> None:
        raise KilledError

    def cut(place: FolderPlace, fd: int, temporary: Path, name: str) -> None:
        (temporary.parent / "cut").write_bytes(temporary.read_bytes())
        raise KilledError

    async with await open_manager(url) as manager:
        session = await crowd(manager, url, home, session_id="goes")
        other = await SessionArchives(manager).archive(await manager.create_session("goes2"))
        archives = SessionArchives(manager)
        if left == "kept":
            await archives.archive("goes")
            file = next(home.rglob("goes.*.kipu.zst"))
            kept = file.read_bytes()
            await archives.unarchive("goes")
            file.write_bytes(kept)
        else:
            with monkeypatch.context() as broken:
                broken.setattr(*((Archiver, "_let_go", killed) if left == "whole" else (FolderPlace, "_keep", cut)))
                with pytest.raises(KilledError):
                    await archives.archive("goes")
            for part in home.rglob("cut"):  # as kill -9 leaves it, which nobody cleans up behind
                part.replace(part.with_name(".goes.9.0123456789ab.kipu.zst.part"))
        assert any(home.rglob("*goes.*.kipu.zst*"))
        receipt = await manager.erase_session("goes", prove=True)
        assert receipt.removed["store"]["archives"] == 1
        assert list(home.rglob("*goes.*.kipu.zst*")) == []
        assert files_with(home, session.marks) == {}
        assert next(home.rglob(other.name)).exists()


async def test_forks_of_an_archived_parent_are_let_go(url: str, home: Path) -> None:
    """A fork takes over what it shares with a parent whose events are in an archive, and shows what it showed (B48, C11)."""
    async with await open_manager(url) as manager:
        _, child, grandchild, marks = await family(manager)
        before = {session.session_id: await seen(session) for session in (child, grandchild)}
        await SessionArchives(manager).archive("parent")
        await manager.erase_session("parent", detach=True)
        for session_id, expected in before.items():
            shown = await seen(await manager.open(session_id))
            assert shown["events"][: len(expected["events"])] == expected["events"]
            assert (shown["windows"], shown["blobs"]) == (expected["windows"], expected["blobs"])
    assert files_with(home, [marks["after"]]) == {}


async def test_an_archived_session_is_exported_whole(url: str, home: Path) -> None:
    """A person's archive has the events and blobs of sessions that are archived themselves (B48, B58)."""
    async with await open_manager(url) as manager:
        await family(manager)
        await SessionArchives(manager).archive("parent")
        done = await export_person(manager, manager.principal, to=home / "all.zip")
    assert (done.sessions, done.unreadable) == (3, {})
    archive = PersonArchive(home / "all.zip")
    archive.verify()
    assert len(archive.blobs_of("parent")) == 2
    archive.close()
