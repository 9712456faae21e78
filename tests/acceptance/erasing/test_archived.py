"""Sessions whose events are in an archive file: erased with it, let go of and exported as if they were in the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import SessionHeldError
from kipu.interop.export_person import export_person
from kipu.interop.person_archive import PersonArchive
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
