"""Where keys come from, and what is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kipu.errors import KeySourceError, KeyUnavailableError, MissingExtraError
from kipu.security.key_file import add_key, create_key_file, file_keys, key_line, keys_in
from kipu.security.key_provider import ChangingKeys, KmsKeys, LocalKeys
from kipu.security.key_sources import PassphraseKeys, key_source
from kipu.stores.host import SystemEntropy

ENTROPY = SystemEntropy()
ONE, TWO = bytes(range(32)), bytes(range(32, 64))


async def _salt() -> bytes:
    return b"0123456789abcdef"


def test_a_key_file_is_made_for_its_owner_and_grows(tmp_path: Path) -> None:
    """A new key file has mode 0600 and one key; an added key becomes the current one and the first still unwraps (B55, EN-15)."""
    path = tmp_path / "key"
    create_key_file(path, entropy=ENTROPY)
    assert path.stat().st_mode & 0o777 == 0o600
    first = file_keys(path, entropy=ENTROPY).current
    add_key(path, entropy=ENTROPY)
    both = file_keys(path, entropy=ENTROPY)
    assert both.current != first
    assert first in both._keys
    with pytest.raises(KeySourceError):
        create_key_file(path, entropy=ENTROPY)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_file_of_others_is_refused(mode: int, tmp_path: Path) -> None:
    """A key file that others can read or write is KeySourceError (B55, EN-15)."""
    path = tmp_path / "key"
    create_key_file(path, entropy=ENTROPY)
    path.chmod(mode)
    with pytest.raises(KeySourceError, match="chmod 600"):
        file_keys(path, entropy=ENTROPY)


@pytest.mark.parametrize(
    "text", ["", "# nothing", "short", "kipu-key-1 AAAA", f"other {key_line(ONE).split()[1]}", "é"]
)
def test_a_text_without_a_whole_key_is_refused(text: str) -> None:
    """An empty, cut or foreign key text is KeySourceError, never a shorter key (EN-15)."""
    with pytest.raises(KeySourceError):
        keys_in(text, source="here")


def test_sources_are_found_by_their_names(tmp_path: Path) -> None:
    """`file:`, `env:` and `keyring:` name the same key; what is missing or unknown is an error that says so (B55, EN-14)."""
    path = tmp_path / "key"
    path.write_text(f"# mine\n{key_line(TWO)}{key_line(ONE)}")
    path.chmod(0o600)
    environment = {"KEYS": f"{key_line(TWO).strip()},{key_line(ONE).split()[1]}"}
    expected = LocalKeys([ONE], entropy=ENTROPY).current
    for text in (f"file:{path}", "env:KEYS"):
        source = key_source(text, environment=environment, entropy=ENTROPY)
        assert isinstance(source, LocalKeys)
        assert source.current == expected
    for text in (f"file:{path}x", "env:OTHER", "passphrase:OTHER", "magic:1", "file:", ""):
        with pytest.raises(KeySourceError):
            key_source(text, environment=environment, entropy=ENTROPY)


def test_a_keyring_is_asked_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """`keyring:NAME` reads the entry kipu/NAME, and without the library it is MissingExtraError (B55, EN-14)."""
    entries = {("kipu", "work"): key_line(ONE)}
    fake = SimpleNamespace(get_password=lambda service, name: entries.get((service, name)))
    monkeypatch.setitem(sys.modules, "keyring", fake)
    source = key_source("keyring:work", environment={}, entropy=ENTROPY)
    assert isinstance(source, LocalKeys)
    with pytest.raises(KeySourceError):
        key_source("keyring:home", environment={}, entropy=ENTROPY)
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(MissingExtraError):
        key_source("keyring:work", environment={}, entropy=ENTROPY)


def test_a_service_is_what_a_package_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`service:NAME` loads the entry point of that name in the group kipu.keys; none, and one that fails, say so (B55, EN-14)."""
    (tmp_path / "acme_keys.py").write_text(
        "from kipu.testing.key_service import FakeKeyService\n"
        "def one():\n    return FakeKeyService('arn:1').source('arn:1')\n"
        "def broken():\n    raise OSError('no network')\n"
    )
    info = tmp_path / "acme_keys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-keys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kipu.keys]\nacme = acme_keys:one\nbroken = acme_keys:broken\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = key_source("service:acme", environment={}, entropy=ENTROPY)
    assert isinstance(source, KmsKeys)
    assert source.current == "arn:1"
    for name, why in (("broken", "no network"), ("ghost", "no package")):
        with pytest.raises(KeySourceError, match=why):
            key_source(f"service:{name}", environment={}, entropy=ENTROPY)


async def test_a_passphrase_gives_the_same_key_with_the_same_salt() -> None:
    """One passphrase and salt give one key, another salt or passphrase another (B55, EN-15)."""

    async def other_salt() -> bytes:
        return os.urandom(16)

    one = PassphraseKeys(["correct horse"], entropy=ENTROPY, cost=2**4)
    two = PassphraseKeys(["correct house"], entropy=ENTROPY, cost=2**4)
    first = (await one.open(_salt)).current
    assert (await one.open(_salt)).current == first
    assert (await one.open(other_salt)).current != first
    assert (await two.open(_salt)).current != first
    with pytest.raises(KeySourceError):
        PassphraseKeys([""], entropy=ENTROPY)


async def test_a_wrapped_key_opens_only_as_it_was_wrapped() -> None:
    """Another key, context or name, and a changed or cut wrapping, is KeyUnavailableError (C20, EN-6)."""
    one, two = LocalKeys([ONE], entropy=ENTROPY), LocalKeys([TWO], entropy=ENTROPY)
    wrapped = await one.wrap(b"k" * 32, b"s1")
    assert await one.unwrap(one.current, wrapped, context=b"s1") == b"k" * 32
    for provider, kek, data, context in [
        (two, one.current, wrapped, b"s1"),
        (two, two.current, wrapped, b"s1"),
        (one, one.current, wrapped, b"s2"),
        (one, one.current, wrapped[:-1], b"s1"),
        (one, one.current, wrapped[:5], b"s1"),
        (one, one.current, b"", b"s1"),
        (one, one.current, bytes([wrapped[0] ^ 1]) + wrapped[1:], b"s1"),
    ]:
        with pytest.raises(KeyUnavailableError):
            await provider.unwrap(kek, data, context=context)


async def test_a_key_service_wraps_and_unwraps() -> None:
    """Two functions stand for a service; what it refuses, gives short or does not know is KeyUnavailableError (B55, EN-15)."""
    local = LocalKeys([ONE], entropy=ENTROPY)
    kept: dict[bytes, tuple[bytes, bytes]] = {}

    def wrap(key: bytes, context: bytes) -> bytes:
        kept[b"ticket"] = (key, context)
        return b"ticket"

    def unwrap(wrapped: bytes, context: bytes) -> bytes:
        key, bound = kept[wrapped]
        if bound != context:
            raise PermissionError
        return key

    service = KmsKeys("arn:key/1", wrap=wrap, unwrap=unwrap, older={"short": lambda wrapped, context: b"short"})
    ticket = await service.wrap(b"k" * 32, b"s1")
    assert await service.unwrap("arn:key/1", ticket, context=b"s1") == b"k" * 32
    for kek, wrapped, context in [("arn:key/1", ticket, b"s2"), ("short", b"", b""), (local.current, ticket, b"s1")]:
        with pytest.raises(KeyUnavailableError):
            await service.unwrap(kek, wrapped, context=context)
    both = await ChangingKeys(service, local).open(_salt)
    assert both.current == "arn:key/1"
    assert await both.unwrap(local.current, await local.wrap(b"x" * 32, b"c"), context=b"c") == b"x" * 32
    with pytest.raises(KeyUnavailableError):
        await both.unwrap("ghost", b"", context=b"")
