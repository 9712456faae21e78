"""Data keys: made once, rotated, rewrapped while in use, and never replaced by fresh ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from kipu.errors import (
    DataKeyMissingError,
    KeyUnavailableError,
    NewerFormatError,
    SealBrokenError,
    SessionErasedError,
    StoreClosedError,
    StoreCorruptError,
)
from kipu.security.cipher import AesGcmCipher, NameCipher
from kipu.security.key_provider import LocalKeys
from kipu.security.key_sources import PassphraseKeys
from kipu.security.key_vault import SqliteVault, VaultFile
from kipu.security.keys import KeyRing, open_keys
from kipu.stores.host import SystemEntropy
from kipu.testing.conformance.second_process import Outlet, ended, start
from kipu.testing.conformance.subject import text_of, whole_log
from tests.unit.stores.encrypted.kit import KEY, OTHER_KEY, keys, opened, subject

ENTROPY = SystemEntropy()


async def ring_at(path: Path, *given: bytes, holds_sessions: bool = False) -> KeyRing:
    """Return the keys of a vault."""
    return await open_keys(VaultFile(path), keys(*given), entropy=ENTROPY, holds_sessions=holds_sessions)


async def test_all_who_begin_a_session_get_one_key(tmp_path: Path) -> None:
    """Beginning one session at once through several rings makes one data key, and each opens what the others sealed (C20, EN-6)."""
    rings = [await ring_at(tmp_path / "v") for _ in range(3)]
    ciphers = await asyncio.gather(*(ring.begin("s1") for ring in rings for _ in range(3)))
    sealed = [cipher.seal(b"x", b"c") for cipher in ciphers]
    assert len(set(sealed)) == 9
    assert {cipher.open(each, b"c") for cipher in ciphers for each in sealed} == {b"x"}
    assert await rings[0].status() == {keys().current: 2}
    for ring in rings:
        await ring.close()


async def test_the_vault_is_private_and_holds_no_key(tmp_path: Path) -> None:
    """The vault is for its owner only, and neither a key-encryption key nor a data key is in it (C20, EN-6)."""
    ring = await ring_at(tmp_path / "v")
    await ring.begin("s1")
    assert (tmp_path / "v").stat().st_mode & 0o777 == 0o600
    assert KEY not in (tmp_path / "v").read_bytes()
    await ring.close()


async def test_a_shredded_session_gets_no_key_again(tmp_path: Path) -> None:
    """After `shred`, done twice, neither this ring nor another gives or makes a key for the session (C20, EN-8)."""
    one, two = await ring_at(tmp_path / "v"), await ring_at(tmp_path / "v")
    await one.begin("s1")
    await one.shred("s1")
    await one.shred("s1")
    for ring in (one, two):
        with pytest.raises(SessionErasedError):
            await ring.begin("s1")
        with pytest.raises(DataKeyMissingError):
            await ring.cipher("s1")
        await ring.close()


async def test_old_data_opens_after_a_new_epoch(tmp_path: Path) -> None:
    """After `new_epoch` old events still open, new ones are under the new key, and another ring learns of it (C20, EN-9)."""
    url = f"sqlite:///{tmp_path}/store.db"
    one, two = await opened(url), await opened(url)
    say = subject()
    await say.begin(one, "s1")
    await say.say(one, "s1", text="old")
    assert len(await whole_log(two, "s1")) == 2
    ring = one.store_keys
    assert isinstance(ring, KeyRing)
    assert await ring.new_epoch("s1") == 2
    await say.say(one, "s1", text="new")
    await say.say(two, "s1", text="still the old key")
    assert [text_of(event) for event in await whole_log(two, "s1")] == ["begin", "old", "new", "still the old key"]
    with pytest.raises(DataKeyMissingError):
        await ring.new_epoch("ghost")
    assert await two.verify() == []
    await one.close()
    await two.close()


async def test_rewrapping_takes_the_old_key_out(tmp_path: Path) -> None:
    """After a rotation, made while a store writes, the new key alone opens everything and the old one nothing (C20, EN-10, EN-16)."""
    url = f"sqlite:///{tmp_path}/store.db"
    writer = await opened(url)
    say = subject()
    for number in range(12):
        await say.begin(writer, f"s{number}", title=str(number))
    store = await opened(url, keys(KEY, OTHER_KEY))
    ring = store.store_keys
    assert isinstance(ring, KeyRing)
    assert set(await ring.status()) == {keys(KEY).current}
    done, _ = await asyncio.gather(ring.rewrap(batch=5), say.say(writer, "s3", text="meanwhile"))
    assert (done, await ring.status()) == (13, {keys(OTHER_KEY).current: 13})
    assert await ring.rewrap() == 0
    await say.say(writer, "s3", text="with what it has open")
    await store.close()
    await writer.close()
    with pytest.raises(KeyUnavailableError):
        await opened(url)
    store = await opened(url, keys(OTHER_KEY))
    assert [text_of(event) for event in await whole_log(store, "s3")][1:] == ["meanwhile", "with what it has open"]
    assert await store.verify() == []
    await store.close()


class TellingKeys(LocalKeys):
    """Tell of each wrapping."""

    outlet: Outlet

    async def wrap(self, key: bytes, context: bytes) -> bytes:
        """Wrap, and tell; slowly enough to be killed before the last one."""
        await asyncio.sleep(0.01)
        wrapped = await super().wrap(key, context)
        self.outlet.tell(len(key))
        return wrapped


async def rotate(place: Path, outlet: Outlet, *, clock: Any, batch: int) -> None:
    """Rewrap a vault, telling of each key."""
    telling = TellingKeys([KEY, OTHER_KEY], entropy=SystemEntropy())
    telling.outlet = outlet
    ring = await open_keys(VaultFile(place), telling, entropy=SystemEntropy(), holds_sessions=True)
    await ring.rewrap(batch=batch)


@pytest.mark.parametrize(("batch", "after"), [(1, 7), (10, 25), (100, 40)])
async def test_a_rotation_that_was_killed_goes_on(batch: int, after: int, tmp_path: Path) -> None:
    """SIGKILL in the middle of a rotation loses no key: both keys open everything, and rotating again ends it (C16, C20, EN-16)."""
    path = tmp_path / "v"
    ring = await ring_at(path)
    sealed = {name: (await ring.begin(name)).seal(name.encode(), b"") for name in (f"s{n}" for n in range(60))}
    await ring.close()
    process = await start(rotate, path, batch=batch)  # type: ignore[arg-type]
    assert process.stdout is not None
    for _ in range(after):
        assert await process.stdout.readline()
    process.kill()
    assert (await ended(process)).code == -9
    ring = await ring_at(path, KEY, OTHER_KEY, holds_sessions=True)
    before = await ring.status()
    assert before.get(keys(KEY).current), "it was killed too late to prove anything"
    assert sum(before.values()) == 61
    for name, data in sealed.items():
        assert (await ring.cipher(name)).open(data, b"") == name.encode()
    assert await ring.rewrap() == before[keys(KEY).current]
    await ring.close()
    ring = await ring_at(path, OTHER_KEY, holds_sessions=True)
    for name, data in sealed.items():
        assert (await ring.cipher(name)).open(data, b"") == name.encode()
    await ring.close()


async def test_a_passphrase_opens_its_vault_and_another_does_not(tmp_path: Path) -> None:
    """The passphrase opens the vault again, another is KeyUnavailableError and leaves it byte for byte (C20, A50, EN-10, EN-15)."""
    path = tmp_path / "v"

    async def ring(*words: str, holds_sessions: bool = True) -> KeyRing:
        source = PassphraseKeys(words, entropy=ENTROPY, cost=2**4)
        return await open_keys(VaultFile(path), source, entropy=ENTROPY, holds_sessions=holds_sessions)

    first = await ring("one", holds_sessions=False)
    sealed = (await first.begin("s1")).seal(b"x", b"")
    await first.close()
    before = path.read_bytes()
    with pytest.raises(KeyUnavailableError):
        await ring("two")
    assert path.read_bytes() == before
    changing = await ring("one", "two")
    assert await changing.rewrap() == 2
    await changing.close()
    again = await ring("two")
    assert (await again.cipher("s1")).open(sealed, b"") == b"x"
    await again.close()


async def test_a_vault_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """A damaged, foreign, newer or closed vault is an error, and its bytes stay (A50, C16, EN-12)."""
    path = tmp_path / "v"
    path.write_bytes(b"not a database " * 400)
    with pytest.raises(StoreCorruptError):
        await ring_at(path, holds_sessions=True)
    assert path.read_bytes() == b"not a database " * 400
    newer = tmp_path / "newer"
    connection = apsw.Connection(str(newer))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(NewerFormatError):
        SqliteVault(newer)
    ring = await ring_at(tmp_path / "w")
    await ring.begin("s1")
    await ring.close()
    await ring.close()
    with pytest.raises(StoreClosedError):
        await ring.begin("s2")


async def test_a_changed_wrapped_key_is_an_error(tmp_path: Path) -> None:
    """A data key put in another session's place, or altered, is KeyUnavailableError for that session (C20, EN-6)."""
    path = tmp_path / "v"
    ring = await ring_at(path)
    await ring.begin("s1")
    await ring.begin("s2")
    await ring.close()
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE data_keys SET wrapped = (SELECT wrapped FROM data_keys WHERE session_id = 's2') WHERE session_id = 's1'"
    )
    connection.close()
    ring = await ring_at(path, holds_sessions=True)
    with pytest.raises(KeyUnavailableError):
        await ring.cipher("s1")
    await ring.cipher("s2")
    await ring.close()


def test_a_cipher_opens_nothing_of_another_place() -> None:
    """With the same data key, what was sealed in another session, epoch or context, cut, altered or empty, raises (C20, EN-2)."""
    here = AesGcmCipher("s1", {1: KEY, 2: KEY}, entropy=ENTROPY)
    elsewhere = AesGcmCipher("s2", {1: KEY, 2: KEY}, entropy=ENTROPY)
    sealed = here.seal(b"text", b"c")
    assert here.open(sealed, b"c") == b"text"
    for cipher, data, context in [
        (elsewhere, sealed, b"c"),
        (here, sealed, b"d"),
        (here, b"\x00\x00\x00\x01" + sealed[4:], b"c"),
        (here, sealed[:-1], b"c"),
        (here, sealed + b"x", b"c"),
        (here, sealed[:20], b"c"),
        (here, b"", b"c"),
        (here, sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:], b"c"),
    ]:
        with pytest.raises(SealBrokenError):
            cipher.open(data, context)
    with pytest.raises(DataKeyMissingError):
        here.open(b"\x00\x00\x00\x03" + sealed[4:], b"c")
    assert here.tag(b"x") == AesGcmCipher("s1", {1: KEY}, entropy=ENTROPY).tag(b"x")


def test_terms_keep_their_starts_and_nothing_else() -> None:
    """The form of a start is the start of the form; forms of other words differ, also under another key (C20, EN-5)."""
    names, others = NameCipher(KEY), NameCipher(OTHER_KEY)
    assert names.term("restore").startswith(names.term("rest"))
    assert not names.term("restore").startswith(names.term("tore"))
    words = ["a", "b", "悬空", "空悬", "store", "stone", "c0ffee" * 10, "x" * 300, "x" * 301]
    assert len({names.term(word) for word in words}) == len(words)
    assert not {names.term(word) for word in words} & {others.term(word) for word in words}
    assert names.term("") == ""


def test_hidden_names_come_back_or_raise() -> None:
    """A hidden name is equal for equal names and comes back; one that was altered or is another's raises (C20, EN-5)."""
    names = NameCipher(KEY)
    for name in ("", "m\u0000日", "x" * 1000):
        assert names.hide(name) == names.hide(name)
        assert names.reveal(names.hide(name)) == name
    for hidden in (names.hide("a")[:-2] + "00", NameCipher(OTHER_KEY).hide("a"), "zz", ""):
        with pytest.raises(SealBrokenError):
            names.reveal(hidden)
