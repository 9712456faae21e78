"""What is on the medium of an encrypted store, and what comes back."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from kipu.errors import (
    DataKeyMissingError,
    InputError,
    KeysMissingError,
    KeyUnavailableError,
    SealBrokenError,
    SessionErasedError,
    StoreSealedError,
    StoreUnavailableError,
)
from kipu.ports.head import HeadPatch
from kipu.ports.store import Binding, ErasureReceipt, IndexEntry, Lease, Phrase, SearchQuery, SessionQuery
from kipu.security.key_vault import VaultFile
from kipu.security.keys import open_keys
from kipu.stores.encrypted import EncryptedStore
from kipu.stores.host import SystemEntropy
from kipu.stores.memory import MemoryStore
from kipu.stores.sealed_head import UNREADABLE
from kipu.stores.wrapper import WrappedStore
from kipu.testing.conformance.erasing import files_with
from kipu.testing.conformance.subject import text_of, whole_log
from kipu.testing.fakes import FakeClock, FakeLiveness
from kipu.wiring import open_store
from tests.unit.stores.encrypted.kit import OTHER_KEY, forge, inside, keys, opened, subject

STORES = ["sqlite:///{}/store.db", "jsonl:///{}/store"]


async def fill(store: EncryptedStore, secrets: dict[str, str], *, session_id: str = "s1") -> str:
    """Put one canary into every place that holds text, and return a blob's digest."""
    say = subject()
    patch = say.first_patch(
        title=secrets["title"],
        first_text=secrets["first"],
        tags=[secrets["tag"]],
        metadata={secrets["name"]: secrets["value"]},
        workspace={"path": secrets["workspace"]},
        origin={"file": secrets["origin"]},
        field_of_tomorrow={"a": secrets["tomorrow"]},
    )
    init = say.record(secrets["init"], event_type="session_init")
    await store.append(session_id, [init], head=patch, idempotency_key=secrets["key"])
    for number in range(3):
        head = HeadPatch(
            previews=[(0, "user_message", secrets["preview"])], merge={"metadata": {"later": secrets["merged"]}}
        )
        await say.say(store, session_id, text=f"{secrets['body']} {number}", head=head)
    await store.index([IndexEntry(session_id, 2, (secrets["term"], "shared"))], indexed={session_id: 2})
    await store.put_blob(session_id, secrets["blob"].encode() * 3000)
    return await store.put_blob(session_id, secrets["blob"].encode())


def canaries() -> dict[str, str]:
    """Return an incompressible text for every place."""
    names = "title first tag name value workspace origin tomorrow init key preview merged body term blob"
    make = subject(7)
    return {name: make.canary() for name in names.split()}


@pytest.mark.parametrize("url", STORES)
async def test_no_file_holds_text_of_a_session(url: str, tmp_path: Path) -> None:
    """No byte of a body, title, preview, tag, metadata, workspace, blob, term or idempotency key is in any file (B55, C20, EN-1, EN-4)."""
    secrets = canaries()
    store = await opened(url.format(tmp_path))
    digest = await fill(store, secrets)
    for mark in (*secrets.values(), digest, hashlib.sha256(secrets["blob"].encode()).hexdigest()):
        assert files_with(tmp_path, mark) == []
    await store.close()
    for mark in (*secrets.values(), digest):
        assert files_with(tmp_path, mark) == []


@pytest.mark.parametrize("url", STORES)
async def test_everything_comes_back_after_reopening(url: str, tmp_path: Path) -> None:
    """With the key, bodies, head, blobs, search and filters give what was written (B55, EN-1, EN-4, EN-5)."""
    secrets = canaries()
    store = await opened(url.format(tmp_path))
    digest = await fill(store, secrets)
    await store.close()
    store = await opened(url.format(tmp_path))
    assert [text_of(event) for event in await whole_log(store, "s1")][1] == f"{secrets['body']} 0"
    head = await store.head("s1")
    assert head is not None
    assert (head.title, head.first_text, head.tags) == (secrets["title"], secrets["first"], (secrets["tag"],))
    assert head.metadata == {secrets["name"]: secrets["value"], "later": secrets["merged"]}
    assert (head.workspace, head.origin) == ({"path": secrets["workspace"]}, {"file": secrets["origin"]})
    assert {preview.text for preview in head.previews} == {secrets["preview"]}
    assert await store.get_blob("s1", digest) == secrets["blob"].encode()
    found = await store.search(SearchQuery((Phrase((secrets["term"][:7],), prefix=True),)))
    assert [hit.seq for hit in found.items] == [2]
    for query in (
        SessionQuery(tags=frozenset({secrets["tag"]})),
        SessionQuery(metadata={secrets["name"]: secrets["value"]}),
    ):
        assert [each.session_id for each in (await store.list(query)).items] == ["s1"]
    assert [outcome.key for outcome in await store.outcomes("s1")] == [secrets["key"]]
    assert await store.verify() == []
    await store.close()


async def test_what_stays_clear_is_what_the_page_says(tmp_path: Path) -> None:
    """Types, times, counts, ids, owner, tenant and session keys can be read without a key (EN-4)."""
    store = await opened(f"sqlite:///{tmp_path}/store.db")
    say = subject()
    await say.begin(store, "s1", owner="ana", tenant="t", title="secret")
    await say.say(store, "s1", bind=Binding("cli:1"))
    await store.close()
    plain = await inside(tmp_path / "store.db")
    head = await plain.head("s1")
    assert head is not None
    assert (head.owner, head.tenant, head.status, head.last_seq) == ("ana", "t", "active", 2)
    assert await plain.resolve("cli:1") == "s1"
    assert [event.record.event_type for event in await plain.read("s1")] == ["session_init", "user_message"]
    await plain.close()


@pytest.mark.parametrize("url", STORES)
async def test_a_wrong_key_is_an_error_and_changes_nothing(url: str, tmp_path: Path) -> None:
    """Opening with another key is KeyUnavailableError, every file stays as it is, and the right key still opens (C20, A50, EN-10)."""
    store = await opened(url.format(tmp_path))
    await fill(store, canaries())
    await store.close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "index" not in path.name}
    with pytest.raises(KeyUnavailableError):
        await opened(url.format(tmp_path), keys(OTHER_KEY))
    assert {path: path.read_bytes() for path in before} == before
    store = await opened(url.format(tmp_path))
    assert len(await whole_log(store, "s1")) == 4
    await store.close()


@pytest.mark.parametrize("url", STORES)
async def test_an_encrypted_store_without_keys_is_an_error(url: str, tmp_path: Path) -> None:
    """Opening an encrypted store without any key is StoreSealedError, not a store of odd events (C20, EN-11)."""
    store = await opened(url.format(tmp_path))
    await subject().begin(store, "s1")
    await store.close()
    with pytest.raises(StoreSealedError):
        await open_store(url.format(tmp_path))


@pytest.mark.parametrize("settings", ["", "?chain=on", "?fields=text"])
@pytest.mark.parametrize("url", STORES)
async def test_a_sealed_store_without_its_vault_is_no_plain_one(url: str, settings: str, tmp_path: Path) -> None:
    """Opened without keys when its vault is gone, a sealed store is KeysMissingError, never sessions of odd text (A50, C20, EN-11)."""
    store = await opened(url.format(tmp_path) + settings)
    await subject().begin(store, "s1")
    await store.close()
    (vault,) = tmp_path.glob("*.keys")
    vault.rename(tmp_path / "elsewhere")
    with pytest.raises(KeysMissingError, match="vault"):
        await open_store(url.format(tmp_path))
    assert not list(tmp_path.glob("*.keys"))


@pytest.mark.parametrize("url", STORES)
async def test_a_store_without_its_vault_is_an_error(url: str, tmp_path: Path) -> None:
    """Sessions without their vault, or a plain store opened with keys, are KeysMissingError, and no vault is made (C20, EN-11)."""
    place = url.format(tmp_path)
    plain = await open_store(place, clock=FakeClock(), liveness=FakeLiveness())
    await subject().begin(plain, "s1")
    await plain.close()
    with pytest.raises(KeysMissingError):
        await opened(place)
    assert not list(tmp_path.glob("*.keys"))
    again = await open_store(place, clock=FakeClock(), liveness=FakeLiveness())
    assert len(await whole_log(again, "s1")) == 1
    await again.close()


async def test_a_missing_data_key_is_an_error_for_its_session_only(tmp_path: Path) -> None:
    """A session whose data key is gone is an error to read or write, listed with the reason, and the others are as before (A50, EN-12)."""
    store = await opened(f"sqlite:///{tmp_path}/store.db")
    say = subject()
    await say.begin(store, "lost", title="a")
    await say.begin(store, "kept", title="b")
    await store.store_keys.shred("lost")
    for call in (store.read("lost"), store.head("lost"), say.say(store, "lost")):
        with pytest.raises(DataKeyMissingError):
            await call
    with pytest.raises(DataKeyMissingError):
        await say.begin(store, "lost")
    listed = {head.session_id: head for head in (await store.list(SessionQuery())).items}
    assert (listed["kept"].title, listed["lost"].metadata) == ("b", {UNREADABLE: "data_key_destroyed"})
    assert [damage.session_id for damage in await store.verify()] == ["lost"]
    await store.close()


async def _forged(tmp_path: Path, change: Any, head: Any = None) -> EncryptedStore:
    store = await opened(f"sqlite:///{tmp_path}/store.db")
    say = subject()
    for session_id in ("s1", "s2"):
        await say.begin(store, session_id, title=f"title of {session_id}")
        for number in range(4):
            await say.say(store, session_id, text=f"{session_id} {number}")
        await store.put_blob(session_id, session_id.encode() * 50)
    await store.close()
    await forge(tmp_path / "store.db", tmp_path / "forged.db", change=change, head=head)
    return await opened(f"sqlite:///{tmp_path}/forged.db")


def _bodies_swapped(session_id: str, records: list[Any]) -> list[Any]:
    one, two = records[1].body, records[2].body
    return [records[0], records[1]._replace(body=two), records[2]._replace(body=one), *records[3:]]


def _cut(session_id: str, records: list[Any]) -> list[Any]:
    sealed = orjson.loads(records[1].body)["$sealed"]
    return [records[0], records[1]._replace(body=orjson.dumps({"$sealed": sealed[:-8]})), *records[2:]]


def _emptied(session_id: str, records: list[Any]) -> list[Any]:
    return [records[0], records[1]._replace(body=b'{"$sealed":"~"}'), *records[2:]]


def _written_plain(session_id: str, records: list[Any]) -> list[Any]:
    return [records[0], records[1]._replace(body=b'{"content":"believe me"}'), *records[2:]]


def _flipped(session_id: str, records: list[Any]) -> list[Any]:
    body = bytearray(records[1].body)
    body[60] = body[60] ^ 1 if chr(body[60] ^ 1).isalnum() else ord("A") if body[60] != ord("A") else ord("B")
    return [records[0], records[1]._replace(body=bytes(body)), *records[2:]]


def _of_another_type(session_id: str, records: list[Any]) -> list[Any]:
    return [records[0], records[1]._replace(event_type="instruction"), *records[2:]]


def _by_another_principal(session_id: str, records: list[Any]) -> list[Any]:
    return [records[0], records[1]._replace(principal="admin"), *records[2:]]


@pytest.mark.parametrize(
    "change",
    [_bodies_swapped, _cut, _emptied, _written_plain, _flipped, _of_another_type, _by_another_principal],
    ids=lambda change: change.__name__.strip("_"),
)
async def test_a_changed_ciphertext_is_found(change: Any, tmp_path: Path) -> None:
    """Swapped, cut, emptied, plain, flipped and relabelled bodies are SealBrokenError, and `verify` names their events (C20, EN-2)."""
    store = await _forged(tmp_path, change)
    with pytest.raises(SealBrokenError) as raised:
        await store.read("s1")
    assert raised.value.where == "event 2"
    damage = await store.verify("s1")
    assert {entry.seq for entry in damage} == ({2, 3} if change is _bodies_swapped else {2})
    assert {entry.reason for entry in damage} == {"checksum"}
    await store.close()


async def test_a_ciphertext_copied_from_another_session_is_found(tmp_path: Path) -> None:
    """An event, with its id, or a title of another session is SealBrokenError here (C20, EN-2)."""
    taken: dict[str, Any] = {}

    def change(session_id: str, records: list[Any]) -> list[Any]:
        taken.setdefault("record", records[2])
        return [*records[:2], taken["record"], *records[3:]]

    def titled(head: Any) -> Any:
        taken.setdefault("title", head.title)
        return replace(head, title=taken["title"])

    store = await _forged(tmp_path, change, titled)
    with pytest.raises(SealBrokenError):
        await store.read("s2")
    with pytest.raises(SealBrokenError):
        await store.head("s2")
    assert {damage.where for damage in await store.verify("s2")} == {"event 3", "head"}
    assert await store.verify("s1") == []
    await store.close()


async def test_a_changed_blob_is_found(tmp_path: Path) -> None:
    """A blob whose place holds another session's sealed bytes is SealBrokenError, never other bytes (C20, EN-7)."""
    store = await opened(f"sqlite:///{tmp_path}/store.db")
    say = subject()
    await say.begin(store, "s1")
    await say.begin(store, "s2")
    digest = await store.put_blob("s1", b"one" * 40)
    theirs = await store.inner.get_blob("s1", (await store.inner.blobs("s1"))[0])
    place = await store.inner.put_blob("s2", theirs)
    await store.store_keys.place_blob("s2", digest, place=place)
    with pytest.raises(SealBrokenError):
        await store.get_blob("s2", digest)
    assert [damage.where for damage in await store.verify("s2")] == [f"blob {place}"]
    await store.close()


async def test_broken_events_can_be_hidden(tmp_path: Path) -> None:
    """With `hide_broken` reads leave out what is broken, go on behind it, and `verify` still reports it (C16, EN-13)."""
    store = await _forged(tmp_path, _bodies_swapped)
    lenient = EncryptedStore(store.inner, store.store_keys, hide_broken=True)
    assert [event.seq for event in await lenient.read("s1")] == [1, 4, 5]
    assert [event.seq for event in await lenient.read("s1", after=1, limit=2)] == [4, 5]
    assert [event.seq for event in await lenient.read("s1", until=3, limit=2, backwards=True)] == [1]
    assert {damage.seq for damage in await lenient.verify("s1")} == {2, 3}
    await store.close()


async def test_chosen_fields_alone_are_sealed(tmp_path: Path) -> None:
    """With `fields` these are sealed, the others are clear and cannot be changed, and whole bodies come back (B55, EN-3)."""
    inner = await MemoryStore.open(clock=FakeClock(), liveness=FakeLiveness())
    ring = await open_keys(VaultFile(None), keys(), entropy=SystemEntropy(), holds_sessions=False)
    store = EncryptedStore(inner, ring, fields=frozenset({"content", "result"}))
    say = subject()
    bodies = [{"content": "secret", "channel": "cli"}, {"tool": "ls", "n": 1}, {"content": "x", "$sealed": "mine"}]
    await say.begin(store, "s1")
    for body in bodies:
        await store.append("s1", [say.record(body=orjson.dumps(body))])
    assert [orjson.loads(event.record.body) for event in await store.read("s1", after=1)] == bodies
    kept = [orjson.loads(event.record.body) for event in await inner.read("s1", after=1)]
    assert [sorted(body) for body in kept] == [["$sealed", "channel"], ["$sealed", "n", "tool"], ["$sealed"]]
    assert await store.verify() == []
    changed = orjson.dumps({**kept[0], "channel": "telegram"})
    event = inner._sessions["s1"].events[1]
    inner._sessions["s1"].events[1] = event._replace(record=event.record._replace(body=changed))
    with pytest.raises(SealBrokenError):
        await store.read("s1")


class FailsOnce(WrappedStore):
    """Its first erasure fails before anything was removed."""

    failed = False

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Fail, then erase."""
        if not self.failed:
            self.failed = True
            raise StoreUnavailableError(store="x", reason="cut")
        return await super().erase(session_id, lease=lease)


async def test_erasing_shreds_the_key_first_and_goes_on(tmp_path: Path) -> None:
    """Cut after the shredding, nothing of the session can be read, erasing again ends it, and the key is in no file (C20, EN-8)."""
    vault = tmp_path / "vault.keys"
    inner = FailsOnce(await MemoryStore.open(clock=FakeClock(), liveness=FakeLiveness()))
    ring = await open_keys(VaultFile(vault), keys(), entropy=SystemEntropy(), holds_sessions=False)
    store = EncryptedStore(inner, ring)
    say = subject()
    await say.begin(store, "s1")
    await say.begin(store, "s2", title="stays")
    wrapped = (await ring.vault.keys("s1"))[0].wrapped
    assert wrapped in vault.read_bytes()
    lease = await say.claim(store, "s1")
    with pytest.raises(StoreUnavailableError):
        await store.erase("s1", lease=lease)
    assert wrapped not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    with pytest.raises(DataKeyMissingError):
        await store.read("s1")
    receipt = await store.erase("s1", lease=await say.claim(store, "s1"))
    assert receipt.removed["data_keys"] == 1
    assert await store.head("s1") is None
    with pytest.raises(SessionErasedError):
        await say.begin(store, "s1")
    head = await store.head("s2")
    assert head is not None
    assert head.title == "stays"
    await store.close()


async def test_a_copy_of_the_log_alone_opens_nothing_after_shredding(tmp_path: Path) -> None:
    """A backup of the database made before an erasure cannot be read with the vault of after it (C20, EN-8)."""
    store = await opened(f"sqlite:///{tmp_path}/store.db")
    say = subject()
    await say.begin(store, "s1", title="secret")
    await store.close()
    shutil.copy(tmp_path / "store.db", tmp_path / "backup.db")
    store = await opened(f"sqlite:///{tmp_path}/store.db")
    await store.erase("s1", lease=await say.claim(store, "s1"))
    await store.close()
    shutil.copy(tmp_path / "store.db.keys", tmp_path / "backup.db.keys")
    backup = await opened(f"sqlite:///{tmp_path}/backup.db")
    with pytest.raises(DataKeyMissingError):
        await backup.read("s1")
    await backup.close()


async def test_text_in_an_ordered_operation_is_refused() -> None:
    """A patch that would compare text of an unknown field is refused, since it could only be kept clear (EN-4)."""
    store = await opened("memory://")
    say = subject()
    await say.begin(store, "s1")
    with pytest.raises(InputError):
        await say.say(store, "s1", head=HeadPatch(max={"field_of_tomorrow": "text"}))


async def test_names_without_a_value_come_back(tmp_path: Path) -> None:
    """A metadata name set to nothing stays, one merged to nothing goes, and numbers that are equal are found (EN-4)."""
    store = await opened(f"sqlite:///{tmp_path}/store.db")
    say = subject()
    await say.begin(store, "s1", metadata={"none": None, "n": 2.0, "deep": {"b": [1, None], "a": "x"}, "gone": True})
    await say.say(store, "s1", head=HeadPatch(merge={"metadata": {"gone": None}}))
    head = await store.head("s1")
    assert head is not None
    assert head.metadata == {"none": None, "n": 2.0, "deep": {"b": [1, None], "a": "x"}}
    cases: list[tuple[dict[str, Any], int]] = [
        ({"n": 2}, 1),
        ({"n": True}, 0),
        ({"none": None, "ghost": None}, 1),
        ({"gone": True}, 0),
    ]
    for metadata, found in cases:
        assert len((await store.list(SessionQuery(metadata=metadata))).items) == found, metadata
    await store.close()


async def test_a_blob_whose_place_was_forgotten_is_found(tmp_path: Path) -> None:
    """A blob kept just before a kill, its place not yet remembered, is listed and read (C16, EN-7)."""
    store = await opened(f"sqlite:///{tmp_path}/store.db")
    say = subject()
    await say.begin(store, "s1")
    cipher = await store.store_keys.cipher("s1")
    await store.inner.put_blob("s1", cipher.seal(b"kept", b'["blob"]'))
    digest = hashlib.sha256(b"kept").hexdigest()
    assert await store.blobs("s1") == [digest]
    assert await store.get_blob("s1", digest) == b"kept"
    await store.close()
