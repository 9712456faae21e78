"""Stores encrypted and decrypted in place: nothing is lost, nothing is left behind, and a kill at any point is taken up."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from kipu import open_manager
from kipu.errors import (
    CopyMismatchError,
    DataKeyMissingError,
    InputError,
    KeysMissingError,
    SessionErasedError,
    StoreConvertingError,
    StoreFullError,
    StoreInUseError,
)
from kipu.events.conversation import AgentMessageEvent
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.ports.store import Record
from kipu.security.key_file import key_line
from kipu.stores.conversion_mark import ConversionMark
from kipu.testing.conformance.erasing import files_with
from kipu.testing.conformance.second_process import ended, start
from kipu.testing.conformance.subject import whole_log
from kipu.wiring import open_store
from tests.unit.sealing.kit import CANARY, KEY, URLS, contents, convert_dying, decrypt, encrypt, fill, tokens_of

KINDS = sorted(URLS)


@pytest.fixture(autouse=True)
def key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIPU_TEST_KEY", key_line(KEY).strip())
    monkeypatch.setenv("KIPU_KEY", "env:KIPU_TEST_KEY")


def names(folder: Path) -> set[str]:
    """Return what is in the folder, but for what SQLite leaves empty beside a vault."""
    return {
        path.name for path in folder.iterdir() if not path.name.endswith((".keys-journal", ".lock", "-wal", "-shm"))
    }


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_is_encrypted_and_decrypted_in_place(kind: str, tmp_path: Path) -> None:
    """Events, heads, blobs, keys, outcomes, erased ids and lease tokens go along; encrypted, no file tells (B55, C20, C22, EN-30)."""
    url = URLS[kind].format(tmp_path)
    await fill(url)
    before, tokens = await contents(url), await tokens_of(url)
    assert files_with(tmp_path, CANARY)
    done = await encrypt(url, chain=True)
    assert (done.sessions, done.kept) == (len(before), None)
    assert files_with(tmp_path, CANARY) == []
    assert await contents(url) == before
    assert files_with(tmp_path, CANARY) == []
    async with await open_manager(url) as manager:
        assert await manager.store.verify() == []
        assert len((await manager.search("hello")).items) == 3
        with pytest.raises(SessionErasedError):
            await manager.create_session("gone")
    assert await tokens_of(url) == {name: token + 1 for name, token in tokens.items()}
    await decrypt(url)
    assert await contents(url) == before
    assert await tokens_of(url) == {name: token + 2 for name, token in tokens.items()}
    store = await open_store(url)
    with pytest.raises(SessionErasedError):
        await store.append("gone", [Record("e", "session_init", "2027-01-15T08:00:00.000000Z", b"{}")])
    await store.close()
    assert names(tmp_path) == {"store.db" if kind == "sqlite" else "store"}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_old_store_is_kept_where_that_is_asked(kind: str, tmp_path: Path) -> None:
    """With `keep` the old store opens beside the new one; while it is there nothing is converted over it (EN-30)."""
    url = URLS[kind].format(tmp_path)
    await fill(url, sessions=1)
    before = await contents(url)
    done = await encrypt(url, keep=True)
    assert done.kept is not None
    assert await contents(f"{kind}:///{done.kept}") == before
    with pytest.raises(InputError, match="kept from before"):
        await decrypt(url)
    shutil.rmtree(done.kept) if kind == "jsonl" else done.kept.unlink()
    done = await decrypt(url, keep=True)
    assert await contents(f"{kind}:///{done.kept}") == before == await contents(url)


async def halfway_of(url: str, before: dict[str, Any]) -> str | None:
    """Return what is said where the store cannot be opened now; otherwise say that it is as before."""
    try:
        assert await contents(url) == before
    except StoreConvertingError as error:
        return str(error)
    return None


QUICK = {"sqlite": (1, 4, 6, 7, 8, 9, 11, 12), "jsonl": (18, 61, 62, 64, 85)}
SLOW = {"sqlite": (2, 3, 5, 10, 13, 14, 15), "jsonl": (1, 3, 7, 16, 45, 60, 63, 65, 66, 77, 101, 102)}
POINTS = [
    *(pytest.param(kind, at, id=f"{kind}-{at}") for kind in KINDS for at in QUICK[kind]),
    *(pytest.param(kind, at, marks=pytest.mark.long, id=f"{kind}-{at}") for kind in KINDS for at in SLOW[kind]),
]


@pytest.mark.parametrize("to", ["encrypted", "plain"])
@pytest.mark.parametrize(("kind", "at"), POINTS)
async def test_a_conversion_that_was_killed_is_taken_up(kind: str, at: int, to: str, tmp_path: Path) -> None:
    """SIGKILL at any rename, removal or writing: the store opens whole, or says what to run, which ends it (A50, C16, C20, EN-31)."""
    url = URLS[kind].format(tmp_path)
    await fill(url, sessions=1)
    before = await contents(url)
    if to == "plain":
        await encrypt(url)
    process = await start(convert_dying, tmp_path, url=url, to=to, at=at)  # type: ignore[arg-type]
    killed = await ended(process)
    assert killed.code in {-9, 0}, killed.errors
    halfway = await halfway_of(url, before)
    assert halfway is None or f"kipu {'encrypt' if to == 'encrypted' else 'decrypt'}" in halfway
    if "done" not in killed.told:
        with suppress(InputError):  # the kill may have come when everything was done
            await (encrypt if to == "encrypted" else decrypt)(url)
    assert await contents(url) == before, killed.told
    if to == "encrypted":
        assert files_with(tmp_path, CANARY) == []
    store = Path(url).name
    assert names(tmp_path) == ({store, f"{store}.keys"} if to == "encrypted" else {store})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_copy_that_was_cut_goes_on_with_what_is_new(kind: str, tmp_path: Path) -> None:
    """Killed while it copied, the store is as before and may be used; encrypting again takes that in too (C22, EN-31)."""
    url = URLS[kind].format(tmp_path)
    await fill(url)
    process = await start(convert_dying, tmp_path, url=url, to="encrypted", at=0, events=12)  # type: ignore[arg-type]
    killed = await ended(process)
    assert killed.code == -9, killed.errors
    assert killed.told[-1].startswith("copying")
    await fill(url, sessions=2, erased=None)
    before = await contents(url)
    assert (tmp_path / f"{Path(url).name}.converted").exists()
    await encrypt(url)
    assert await contents(url) == before
    assert files_with(tmp_path, CANARY) == []


@pytest.mark.parametrize("to", ["encrypted", "plain"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_erased_since_a_copy_was_cut_does_not_come_back(kind: str, to: str, tmp_path: Path) -> None:
    """A session that was copied, and erased before the copy went on, is in no store and no file afterwards (C20, EN-31)."""
    url, convert = URLS[kind].format(tmp_path), encrypt if to == "encrypted" else decrypt
    await fill(url)
    if to == "plain":
        await encrypt(url)
    process = await start(convert_dying, tmp_path, url=url, to=to, at=0, events=12)  # type: ignore[arg-type]
    killed = await ended(process)
    assert killed.code == -9, killed.errors
    async with await open_manager(url) as manager:
        session_id = await manager.resolve("telegram:0")
        assert session_id is not None
        receipt = await manager.erase_session(session_id, cascade=True)
    assert receipt.removed["conversion"] == {"conversions": 1}
    assert list(tmp_path.glob("*.convert*")) == []
    before = await contents(url)
    await convert(url)
    after = await contents(url)
    assert session_id not in after
    assert after == before


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_erasure_ends_what_a_conversion_was_to_destroy(kind: str, is_kept: bool, tmp_path: Path) -> None:
    """Killed before the old store was gone, it is gone with the erasure; what `--keep` keeps is somebody's own (C20, EN-31)."""
    url = URLS[kind].format(tmp_path)
    await fill(url)
    converted = await encrypt(url, keep=True)
    assert converted.kept is not None
    mark = ConversionMark(Path(url.partition("///")[2]), store=url)
    mark.say(encrypt=True, step="clear", kept=is_kept)
    mark.close()
    async with await open_manager(url) as manager:
        session_id = await manager.resolve("telegram:1")
        assert session_id is not None
        await manager.erase_session(session_id)
    assert converted.kept.exists() is is_kept


@pytest.mark.parametrize("kind", KINDS)
async def test_archives_beside_the_store_are_converted_with_it(kind: str, tmp_path: Path) -> None:
    """What is archived beside the store comes back into it sealed, its plain files erased; elsewhere it is refused (B48, B55, EN-30)."""
    url = URLS[kind].format(tmp_path)
    async with await open_manager(url) as manager:
        for name in ("one", "two"):
            session = await manager.open(await manager.create_session(name, title=CANARY))
            async with session.turn() as turn:
                await turn.add_event(AgentMessageEvent(content=f"{CANARY} answer"))
        await SessionArchives(manager).archive("one")
    assert list(tmp_path.glob("*.archive/*"))
    before = await contents(url)
    await encrypt(url, chain=True)
    assert files_with(tmp_path, CANARY) == []
    assert not list(tmp_path.glob("*.archive*"))
    assert await contents(url) == before
    async with await open_manager(url) as manager:
        await SessionArchives(manager).archive("one")
        await SessionArchives(manager).archive("two", to=str(tmp_path / "elsewhere"))
        assert await manager.store.verify() == []
    assert files_with(tmp_path, CANARY) == []
    with pytest.raises(InputError, match="kipu unarchive two"):
        await decrypt(url)
    assert len(await contents(url)) == len(before)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_that_is_all_there_is_of_a_session_is_not_converted_away(kind: str, tmp_path: Path) -> None:
    """Beside a store that was lost and begun anew, archives of sessions that it does not know stop a conversion (A56, B48, EN-30)."""
    url = URLS[kind].format(tmp_path)
    async with await open_manager(url) as manager:
        for name in ("lost", "gone"):
            await manager.create_session(name, title=CANARY)
            await SessionArchives(manager).archive(name)
        copies = {path: path.read_bytes() for path in tmp_path.glob("*.archive/gone.*")}
        await manager.erase_session("gone")
    for path in tmp_path.iterdir():  # the store is lost; its archives are not
        if not path.name.endswith(".archive"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    async with await open_manager(url) as manager:
        await manager.create_session("gone")
        await manager.erase_session("gone")
    for path, data in copies.items():  # of what was erased, a copy that somebody has put back
        path.write_bytes(data)
    with pytest.raises(InputError, match="kipu unarchive lost"):
        await encrypt(url)
    async with await open_manager(url) as manager:
        await SessionArchives(manager).unarchive("lost", keep_file=True)
    await encrypt(url)
    assert files_with(tmp_path, CANARY) == []
    assert CANARY in str(await contents(url))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_in_use_is_not_converted(kind: str, tmp_path: Path) -> None:
    """While anybody has the store open, also in this process, it is StoreInUseError, and nothing is changed (C20, EN-32)."""
    url = URLS[kind].format(tmp_path)
    await fill(url, sessions=1)
    before = await contents(url)
    async with await open_manager(url) as manager:
        with pytest.raises(StoreInUseError):
            await encrypt(url)
        await manager.create_session("meanwhile")
    assert len(await contents(url)) == len(before) + 1
    assert names(tmp_path) == {Path(url).name}
    await encrypt(url)
    async with await open_manager(url):
        with pytest.raises(StoreInUseError):
            await decrypt(url)


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_opens_a_store_that_is_being_converted(kind: str, tmp_path: Path) -> None:
    """While a process converts, opening the store, and converting it again, is StoreConvertingError (C20, EN-32)."""
    url = URLS[kind].format(tmp_path)
    await fill(url, sessions=1)
    seen: list[Exception] = []

    def told(what: str, progress: Any) -> None:
        if not seen:
            with pytest.raises(StoreConvertingError) as raised:
                ConversionMark(tmp_path / Path(url).name, store=url)
            seen.append(raised.value)

    await encrypt(url, told=told)
    assert "another process" in str(seen[0])
    mark = ConversionMark(tmp_path / Path(url).name, store=url)
    try:
        with pytest.raises(StoreConvertingError):
            await open_store(url)
    finally:
        mark.remove()
        mark.close()


async def test_the_other_way_is_refused_halfway(tmp_path: Path) -> None:
    """Where the exchange was begun only the same command goes on; a copy that was begun is dropped for the other (EN-31)."""
    url = URLS["sqlite"].format(tmp_path)
    await fill(url, sessions=1)
    await encrypt(url)
    before = await contents(url)
    mark = ConversionMark(tmp_path / "store.db", store=url)
    mark.say(encrypt=False, step="exchange", kept=False)
    mark.close()
    with pytest.raises(StoreConvertingError, match="kipu decrypt"):
        await encrypt(url)
    mark = ConversionMark(tmp_path / "store.db", store=url)
    mark.say(step="copy")
    mark.close()
    with pytest.raises(InputError, match="encrypted already"):
        await encrypt(url)
    assert await contents(url) == before


async def test_a_conversion_to_what_it_is_already_is_refused(tmp_path: Path) -> None:
    """Encrypting what is encrypted, or whose vault is gone, and decrypting what is plain, changes nothing (A50, EN-30)."""
    url = URLS["sqlite"].format(tmp_path)
    await fill(url, sessions=1)
    with pytest.raises(InputError, match="not encrypted"):
        await decrypt(url)
    before = await contents(url)
    await encrypt(url)
    with pytest.raises(InputError, match="encrypted already"):
        await encrypt(url)
    (tmp_path / "store.db.keys").rename(tmp_path / "elsewhere")
    with pytest.raises(KeysMissingError):
        await encrypt(url)
    assert names(tmp_path) == {"store.db", "elsewhere"}
    (tmp_path / "elsewhere").rename(tmp_path / "store.db.keys")
    assert await contents(url) == before


async def test_what_cannot_be_copied_stops_the_conversion(tmp_path: Path) -> None:
    """A session that cannot be read whole stops it with its name, and the store stays what it was (A50, C16, EN-30)."""
    url = URLS["sqlite"].format(tmp_path)
    await fill(url, sessions=1)
    await encrypt(url)
    store = await open_store(url)
    ids = list(await contents(url))
    await store.close()
    connection = apsw.Connection(str(tmp_path / "store.db.keys"))
    connection.execute("DELETE FROM data_keys WHERE session_id = ?", (ids[0],))
    connection.close()
    with pytest.raises((CopyMismatchError, DataKeyMissingError), match=ids[0]):
        await decrypt(url)
    assert (tmp_path / "store.db.keys").exists()
    store = await open_store(url)
    assert await whole_log(store, ids[1])
    await store.close()


async def test_a_file_with_another_name_is_not_overwritten(tmp_path: Path) -> None:
    """Erasing the old store leaves a backup of hard links whole (C16, EN-33)."""
    url = URLS["jsonl"].format(tmp_path)
    await fill(url, sessions=1)
    before = await contents(url)
    shutil.copytree(tmp_path / "store", tmp_path / "backup", copy_function=os.link)
    await encrypt(url)
    assert await contents(f"jsonl:///{tmp_path}/backup") == before


@pytest.fixture
def disk(tmp_path: Path) -> Any:
    """Yield a disk of eight megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if (
        os.geteuid()
        or shutil.which("mount") is None
        or subprocess.run(words, check=False, capture_output=True).returncode
    ):
        pytest.skip("this machine lets nobody mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_disk_leaves_the_store_as_it_was(kind: str, disk: Path) -> None:
    """Without room for the copy it is an error that says so, the room is given back, and the store opens (C16, EN-31)."""
    url = URLS[kind].format(disk)
    await fill(url)
    before = await contents(url)
    free = shutil.disk_usage(disk).free
    (disk / "rest").write_bytes(b"x" * (free - 220_000))
    with pytest.raises((StoreFullError, OSError)):
        await encrypt(url)
    assert await contents(url) == before
    assert not list(disk.glob("*.converted*"))
    (disk / "rest").unlink()
    await encrypt(url)
    assert await contents(url) == before


async def test_a_mark_that_was_taken_away_is_made_anew(tmp_path: Path) -> None:
    """Who waits for another's mark and gets it when that one has ended holds one that everybody sees (C20, EN-32)."""
    first = ConversionMark(tmp_path / "store.db", store="x")
    waiting = asyncio.create_task(asyncio.to_thread(ConversionMark, tmp_path / "store.db", store="x"))
    await asyncio.to_thread(_until_waiting, tmp_path / "store.db.converting")
    first.remove()
    first.close()
    second = await waiting
    second.say(encrypt=True, step="copy")
    assert (tmp_path / "store.db.converting").exists()
    with pytest.raises(StoreConvertingError):
        await open_store(f"sqlite:///{tmp_path}/store.db")
    second.remove()
    second.close()


def _until_waiting(path: Path) -> None:
    """Return when this process has the file open twice: once who holds it, once who waits."""
    while [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")].count(str(path)) < 2:
        pass
