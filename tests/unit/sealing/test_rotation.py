"""Keys rotated while other processes write, and what each kind of source does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from kipu import UserMessageEvent, open_manager
from kipu.errors import (
    DataKeyMissingError,
    KeyRetiredError,
    KeysBusyError,
    KeyServiceError,
    KeySourceError,
    KeyUnavailableError,
)
from kipu.sealing.converting import ring_of
from kipu.sealing.rotating import Rotated, Rotation
from kipu.security.key_file import add_key, create_key_file, file_keys, key_line
from kipu.security.key_finder import KeyFinder
from kipu.security.key_sources import PassphraseKeys
from kipu.security.key_vault import SqliteVault, VaultFile
from kipu.security.keys import KeyRing, open_keys
from kipu.stores.host import SystemEntropy
from kipu.testing.conformance.second_process import Outlet, ended, start
from kipu.testing.key_service import FakeKeyService
from tests.unit.sealing.kit import ENTROPY


def finder(**environment: str) -> KeyFinder:
    """Return what finds keys in this environment and no other."""
    return KeyFinder(environment, entropy=ENTROPY)


async def filled_vault(path: Path, found: KeyFinder, text: str, *, sessions: int = 8) -> dict[str, bytes]:
    """Make a vault that remembers its key, with the keys of some sessions; return what each sealed."""
    ring = await open_keys(VaultFile(path), found.open(text), entropy=ENTROPY, holds_sessions=False)
    await ring.vault.set_settings({"source": text})
    sealed = {name: (await ring.begin(name)).seal(name.encode(), b"") for name in (f"s{n}" for n in range(sessions))}
    await ring.close()
    return sealed


async def rotated(path: Path, found: KeyFinder, **how: Any) -> Rotated:
    """Rotate a vault's keys."""
    vault = SqliteVault(path)
    try:
        new = how.pop("new", "")
        return await Rotation(vault, found, new_passphrase=(lambda: new) if new else None).run(**how)
    finally:
        await vault.close()


async def opens(path: Path, found: KeyFinder, sealed: dict[str, bytes], *, named: str | None = None) -> bool:
    """Return whether the key that is found opens everything."""
    vault = SqliteVault(path)
    source = found.find(named, await vault.settings())
    assert source is not None
    try:
        ring = await KeyRing.open(vault, source, entropy=ENTROPY)
        for name, data in sealed.items():
            assert (await ring.cipher(name)).open(data, b"") == name.encode()
    except KeyUnavailableError:
        return False
    finally:
        await vault.close()
    return True


async def test_a_key_file_is_rotated_and_a_second_store_shares_it(tmp_path: Path) -> None:
    """A new key stands behind the old one and wraps all; another store under the file opens, and takes it up next (B55, EN-16)."""
    key = f"file:{tmp_path}/key"
    create_key_file(tmp_path / "key", entropy=ENTROPY)
    old = (tmp_path / "key").read_text()
    one = await filled_vault(tmp_path / "one", finder(), key)
    two = await filled_vault(tmp_path / "two", finder(), key)
    done = await rotated(tmp_path / "one", finder())
    assert (done.keys, done.added, done.source) == (9, True, key)
    assert len((tmp_path / "key").read_text().splitlines()) == 2
    assert await opens(tmp_path / "one", finder(), one)
    assert await opens(tmp_path / "two", finder(), two)
    second = await rotated(tmp_path / "two", finder())
    assert (second.keys, second.added, second.current) == (9, False, done.current)
    (tmp_path / "old").write_text(old)
    (tmp_path / "old").chmod(0o600)
    assert not await opens(tmp_path / "one", finder(), one, named=f"file:{tmp_path}/old")
    third = await rotated(tmp_path / "one", finder(), drop_old=True)
    assert third.dropped == 2
    assert await opens(tmp_path / "one", finder(), one)
    assert not await opens(tmp_path / "two", finder(), two)


async def test_keys_move_from_one_source_to_another(tmp_path: Path) -> None:
    """File to passphrase to a new passphrase to environment: after each the vault opens by the new one alone (B55, EN-16)."""
    create_key_file(tmp_path / "key", entropy=ENTROPY)
    sealed = await filled_vault(tmp_path / "v", finder(), f"file:{tmp_path}/key", sessions=2)
    done = await rotated(tmp_path / "v", finder(KIPU_PASSPHRASE="one"), to="passphrase")
    assert done.source == "passphrase"
    (tmp_path / "key").unlink()
    assert await opens(tmp_path / "v", finder(KIPU_PASSPHRASE="one"), sealed)
    await rotated(tmp_path / "v", finder(KIPU_PASSPHRASE="one"), new="two")
    assert not await opens(tmp_path / "v", finder(KIPU_PASSPHRASE="one"), sealed)
    assert await opens(tmp_path / "v", finder(KIPU_PASSPHRASE="two"), sealed)
    with pytest.raises(KeySourceError):
        await rotated(tmp_path / "v", finder(KIPU_PASSPHRASE="two"))
    environment = {"KIPU_PASSPHRASE": "two", "K": key_line(bytes(range(32))).strip()}
    await rotated(tmp_path / "v", finder(**environment), to="env:K")
    assert await opens(tmp_path / "v", finder(K=environment["K"]), sealed)
    with pytest.raises(KeySourceError, match="newer key"):
        await rotated(tmp_path / "v", finder(K=environment["K"]))
    both = f"{environment['K']},{key_line(bytes(range(1, 33))).strip()}"
    assert (await rotated(tmp_path / "v", finder(K=both))).keys == 3
    assert not await opens(tmp_path / "v", finder(K=environment["K"]), sealed)


async def test_a_wrong_old_passphrase_rotates_nothing(tmp_path: Path) -> None:
    """Rotating with another old passphrase is KeyUnavailableError, and the vault is as it was (A50, C20)."""
    sealed = await filled_vault(tmp_path / "v", finder(KIPU_PASSPHRASE="one"), "passphrase", sessions=1)
    before = (tmp_path / "v").read_bytes()
    with pytest.raises(KeyUnavailableError):
        await rotated(tmp_path / "v", finder(KIPU_PASSPHRASE="wrong"), new="two")
    assert (tmp_path / "v").read_bytes() == before
    assert await opens(tmp_path / "v", finder(KIPU_PASSPHRASE="one"), sealed)


def _dying(at: int) -> None:
    seen = 0

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in {"os.rename", "open"} and "key" in str(arguments[0]):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)


async def rotate_dying(folder: Path, outlet: Outlet, *, clock: Any, at: int, keys: int, to: str | None) -> None:
    """Rotate, and die at the n-th opening or renaming of a key file, or once so many keys are rewrapped."""
    _dying(at)
    vault = SqliteVault(folder / "v")

    def told(done: int) -> None:
        if keys and done >= keys:
            os.kill(os.getpid(), signal.SIGKILL)

    found = KeyFinder({"KIPU_PASSPHRASE": "new"}, entropy=SystemEntropy())
    await Rotation(vault, found, told=told).run(to=to)
    outlet.tell("done")


@pytest.mark.parametrize("to", [None, "passphrase"])
@pytest.mark.parametrize(
    ("at", "keys"),
    [(3, 0), (0, 100), *(pytest.param(*each, marks=pytest.mark.long) for each in [(5, 0), (7, 0), (9, 0), (0, 200)])],
)
async def test_a_rotation_that_was_killed_is_ended_by_the_same_command(
    at: int, keys: int, to: str | None, tmp_path: Path
) -> None:
    """SIGKILL anywhere: the store opens with what the vault remembers, and rotating again ends it with one new key (C16, C20, EN-16)."""
    create_key_file(tmp_path / "key", entropy=ENTROPY)
    sealed = await filled_vault(tmp_path / "v", finder(), f"file:{tmp_path}/key", sessions=210)
    process = await start(rotate_dying, tmp_path, at=at, keys=keys, to=to)  # type: ignore[arg-type]
    killed = await ended(process)
    assert killed.code in {-9, 0}, killed.errors
    found = finder(KIPU_PASSPHRASE="new")
    assert await opens(tmp_path / "v", found, sealed)
    if killed.code:
        await rotated(tmp_path / "v", found, to=to)
    assert await opens(tmp_path / "v", found, sealed)
    assert len((tmp_path / "key").read_text().splitlines()) <= 2
    vault = SqliteVault(tmp_path / "v")
    assert len(await vault.counts()) == 1
    assert await vault.settings() == {"source": to or f"file:{tmp_path}/key"}
    await vault.close()


async def rotate_once(folder: Path, outlet: Outlet, *, clock: Any) -> None:
    """Rotate, and tell how it ended."""
    vault = SqliteVault(folder / "v")
    outlet.tell("ready")
    sys.stdin.readline()
    try:
        done = await Rotation(vault, KeyFinder({}, entropy=SystemEntropy())).run()
        outlet.tell(["done", done.keys])
    except KeysBusyError:
        outlet.tell(["busy", 0])


async def test_two_processes_that_rotate_at_once_make_one_key_each(tmp_path: Path) -> None:
    """Of rotations at once one goes on and the other is refused or comes after; every key opens, under one name (C20, EN-16)."""
    create_key_file(tmp_path / "key", entropy=ENTROPY)
    sealed = await filled_vault(tmp_path / "v", finder(), f"file:{tmp_path}/key", sessions=60)
    processes = [await start(rotate_once, tmp_path) for _ in range(3)]  # type: ignore[arg-type]
    for process in processes:
        assert process.stdout is not None
        assert process.stdin is not None
        await process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
    told = [(await ended(process)).told[-1] for process in processes]
    done = [each for each in told if each[0] == "done"]
    assert done
    assert len(done) + sum(each[0] == "busy" for each in told) == 3
    assert await opens(tmp_path / "v", finder(), sealed)
    vault = SqliteVault(tmp_path / "v")
    assert list(await vault.counts()) == [file_keys(tmp_path / "key", entropy=ENTROPY).current]
    async with vault.rotating():
        with pytest.raises(KeysBusyError):
            await rotated(tmp_path / "v", finder())
    await vault.close()


async def write_on(folder: Path, outlet: Outlet, *, clock: Any, url: str) -> None:
    """Write to old sessions and begin new ones until told to stop."""
    async with await open_manager(url) as manager:
        number = 0
        stopping = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        while not stopping.done():
            session = await manager.get_or_create(f"cli:{number % 5}")
            await session.add_event(UserMessageEvent(content=f"message {number}"))
            fresh = await manager.open(await manager.create_session())
            await fresh.add_event(UserMessageEvent(content=f"new {number}"))
            number += 1
            if number == 3:
                outlet.tell("writing")
            await asyncio.sleep(0)
        outlet.tell(number)


async def test_a_store_is_written_to_while_its_key_is_rotated(tmp_path: Path) -> None:
    """A process that goes on, opened with the old key, begins and writes sessions through rotations and loses none (B55, C20, EN-16)."""
    create_key_file(tmp_path / "key", entropy=ENTROPY)
    url = f"sqlite:///{tmp_path}/store.db?encrypt=file:{tmp_path}/key"
    async with await open_manager(url) as manager:
        await ring_of(manager.store).vault.set_settings({"source": f"file:{tmp_path}/key"})
        await manager.get_or_create("cli:0")
    process = await start(write_on, tmp_path, url=url)  # type: ignore[arg-type]
    assert process.stdout is not None
    assert await process.stdout.readline() == b'"writing"\n'
    names = set()
    for _ in range(3):
        names.add((await rotated(tmp_path / "store.db.keys", finder(), drop_old=True)).current)
    assert process.stdin is not None
    process.stdin.write(b"stop\n")
    end = await ended(process)
    assert end.code == 0, end.errors
    assert len(names) == 3
    (number,) = end.told
    async with await open_manager(url) as manager:
        heads = [head async for head in manager.heads()]
        assert len(heads) == number + min(number, 5)
        assert await manager.store.verify() == []
        assert set(await ring_of(manager.store).status()) == {file_keys(tmp_path / "key", entropy=ENTROPY).current}
        texts = []
        for chat in range(5):
            session = await manager.get_or_create(f"cli:{chat}")
            texts += [
                event.content for event in await session.get_full_history() if isinstance(event, UserMessageEvent)
            ]
        assert sorted(texts) == sorted(f"message {each}" for each in range(number))


async def test_a_key_that_was_rotated_away_begins_nothing(tmp_path: Path) -> None:
    """Who has the old passphrase alone goes on with what is open, begins no session, and is told why (C20, EN-16)."""
    old = PassphraseKeys(["one"], entropy=ENTROPY, cost=2**4)
    running = await open_keys(VaultFile(tmp_path / "v"), old, entropy=ENTROPY, holds_sessions=False)
    sealed = (await running.begin("s1")).seal(b"x", b"")
    both = PassphraseKeys(["one", "two"], entropy=ENTROPY, cost=2**4)
    rotating = await open_keys(VaultFile(tmp_path / "v"), both, entropy=ENTROPY, holds_sessions=True)
    assert await rotating.rewrap() == 2
    assert (await running.cipher("s1")).open(sealed, b"") == b"x"
    with pytest.raises(KeyRetiredError, match="new key"):
        await running.begin("s2")
    await running.close()
    await rotating.close()


class Watch:
    """A clock that only a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_running_process_learns_of_epochs_and_erasures_within_a_second(tmp_path: Path) -> None:
    """A fresh data key and a destroyed one, made elsewhere, count here once a second has gone by (C20, EN-9, EN-17)."""
    key = tmp_path / "key"
    create_key_file(key, entropy=ENTROPY)
    watch = Watch()
    source = file_keys(key, entropy=ENTROPY)
    here = await KeyRing.open(SqliteVault(tmp_path / "v"), source, entropy=ENTROPY, monotonic=watch)
    there = await open_keys(VaultFile(tmp_path / "v"), source, entropy=ENTROPY, holds_sessions=True)
    first = await here.begin("s1")
    await here.begin("s2")
    watch.now_s = 2.0
    assert await here.cipher("s1") is first
    assert await there.new_epochs() == 2
    await there.shred("s2")
    assert await here.cipher("s1") is first
    watch.now_s = 4.0
    second = await here.cipher("s1")
    assert second.seal(b"x", b"")[:4] == b"\x00\x00\x00\x02"
    assert second.open(first.seal(b"old", b""), b"") == b"old"
    with pytest.raises(DataKeyMissingError, match="destroyed"):
        await here.cipher("s2")
    await here.close()
    await there.close()


async def test_a_key_service_is_rotated_and_may_be_down(tmp_path: Path) -> None:
    """A service that does not answer is KeyServiceError, one that refuses KeyUnavailableError; its keys rotate (B55, EN-15)."""
    service = FakeKeyService("arn:1", "arn:2")
    ring = await open_keys(VaultFile(tmp_path / "v"), service.source("arn:1"), entropy=ENTROPY, holds_sessions=False)
    sealed = (await ring.begin("s1")).seal(b"x", b"")
    before = service.calls
    for _ in range(50):
        await ring.cipher("s1")
    assert service.calls == before
    await ring.close()
    troubles: list[tuple[str, type[Exception]]] = [("down", KeyServiceError), ("denied", KeyUnavailableError)]
    for trouble, error in troubles:
        setattr(service, trouble, True)
        with pytest.raises(error):
            await open_keys(VaultFile(tmp_path / "v"), service.source("arn:1"), entropy=ENTROPY, holds_sessions=True)
        setattr(service, trouble, False)
    both = await open_keys(
        VaultFile(tmp_path / "v"), service.source("arn:2", older=["arn:1"]), entropy=ENTROPY, holds_sessions=True
    )
    assert await both.rewrap() == 2
    await both.close()
    alone = await open_keys(VaultFile(tmp_path / "v"), service.source("arn:2"), entropy=ENTROPY, holds_sessions=True)
    assert (await alone.cipher("s1")).open(sealed, b"") == b"x"
    await alone.close()


async def test_a_damaged_row_keeps_no_other_from_being_rotated(tmp_path: Path) -> None:
    """A data key whose wrapping was changed is named, after all others were rewrapped (C16, C20, EN-16)."""
    create_key_file(tmp_path / "key", entropy=ENTROPY)
    await filled_vault(tmp_path / "v", finder(), f"file:{tmp_path}/key", sessions=5)
    vault = SqliteVault(tmp_path / "v")
    vault._open().execute("UPDATE data_keys SET wrapped = zeroblob(60) WHERE session_id = 's3'")
    with pytest.raises(KeyUnavailableError, match="s3"):
        await Rotation(vault, finder()).run()
    assert sorted((await vault.counts()).values()) == [1, 5]
    await vault.close()


def test_a_key_file_is_never_half_written(tmp_path: Path) -> None:
    """A key is added by replacing the file, through links, with comments and mode kept private (B55, EN-15)."""
    create_key_file(tmp_path / "key", entropy=ENTROPY)
    (tmp_path / "key").write_text("# mine\n" + (tmp_path / "key").read_text().rstrip("\n"))
    (tmp_path / "link").symlink_to(tmp_path / "key")
    add_key(tmp_path / "link", entropy=ENTROPY)
    lines = (tmp_path / "key").read_text().splitlines()
    assert (len(lines), lines[0]) == (3, "# mine")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "link"]
