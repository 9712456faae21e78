"""All that is a person's as one archive, and back: whole, twice the same, and never what a stranger made of it."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from kipu.errors import AccessDeniedError, PersonArchiveError
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.interop.export_person import export_person
from kipu.interop.import_person import import_person
from kipu.interop.person_archive import FORMAT, PersonArchive
from kipu.manager.manager import SessionManager
from kipu.ports.memory import FactQuery, Space
from kipu.ports.principal import Principal
from kipu.wiring import open_manager, open_memory

ANNA, BEN = Principal("anna"), Principal("ben")
ROOT = Principal("root", roles=frozenset({"admin"}))


@pytest.fixture(params=["sqlite", "jsonl"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store."""
    return {"sqlite": f"sqlite:///{tmp_path}/s.db", "jsonl": f"jsonl:///{tmp_path}/s"}[request.param]


async def live(manager: SessionManager, url: str) -> list[str]:
    """Give Anna a session with a big result, a fork of it, a session in the trash, a fact, and a word in Ben's session."""
    await manager.create_session("first", title="the first", principal=ANNA)
    first = await manager.open("first", principal=ANNA)
    async with first.turn(principal=ANNA) as turn:
        await turn.add_event(UserMessageEvent(content="how big is it? 日本語 \u2028 <b>", sender_id=ANNA.id))
        calls = [AgentMessageEvent(content="looking"), ToolCallEvent(tool_name="t", tool_call_id="c1", tool_input={})]
        await turn.add_events(calls)
        await turn.add_event(ToolResultEvent(tool_call_id="c1", result="very big " * 9000))
        await turn.add_event(AgentMessageEvent(content="very"))
    fork = await first.fork(4, principal=ANNA)
    await fork.add_event(UserMessageEvent(content="otherwise"), principal=ANNA)
    await manager.create_session("thrown-away", principal=ANNA)
    await (await manager.open("thrown-away", principal=ANNA)).set_status("trashed", principal=ANNA)
    await manager.create_session("bens", principal=BEN)
    bens = await manager.open("bens", principal=BEN)
    await bens.share(ANNA.id, role="participant", principal=BEN)
    await bens.add_event(UserMessageEvent(content="from anna", sender_id=ANNA.id), principal=ANNA)
    await bens.add_event(UserMessageEvent(content="from ben", sender_id=BEN.id), principal=BEN)
    memory = open_memory(manager, url)
    await memory.add(Space("", ANNA.id, "user", ANNA.id), "Anna likes tea", accept=True, principal=ANNA)
    await memory.store.close()
    return ["first", fork.session_id, "thrown-away"]


async def exported(manager: SessionManager, url: str, path: Path) -> Path:
    """Export Anna."""
    memory = open_memory(manager, url)
    try:
        await export_person(manager, ANNA, to=path, memory=memory.store, principal=ROOT)
    finally:
        await memory.store.close()
    return path


async def imported(manager: SessionManager, url: str, path: Path, **options: Any) -> Any:
    """Import an archive for Anna."""
    memory = open_memory(manager, url)
    try:
        return await import_person(manager, path, memory=memory.store, principal=ANNA, **options)
    finally:
        await memory.store.close()


async def history(manager: SessionManager, session_id: str) -> list[Any]:
    """Return a session's events without what an import changes of its beginning."""
    session = await manager.open(session_id, principal=ANNA)
    return [
        event.model_copy(update={"session_id": ""})
        async for event in session.events(principal=ANNA)
        if event.event_type != "session_init"
    ]


async def test_a_person_s_archive_holds_everything_of_theirs(url: str, tmp_path: Path) -> None:
    """The archive has every session in three forms, blobs, memory, and what was said elsewhere, with checksums (B58, PA-1, PA-2)."""
    async with await open_manager(url) as manager:
        ids = await live(manager, url)
        path = await exported(manager, url, tmp_path / "anna.zip")
    archive = PersonArchive(path)
    archive.verify()
    assert {str(session["session_id"]) for session in archive.sessions()} == set(ids)
    for session_id in ids:
        for name in ("events.jsonl", "transcript.md", "transcript.html"):
            assert f"sessions/{session_id}/{name}" in archive.files
    [digest] = archive.blobs_of("first")
    data = b"".join(archive.blocks(f"sessions/first/blobs/{digest}"))
    assert data.startswith(b"very big")
    assert hashlib.sha256(data).hexdigest() == digest
    assert b"Anna likes tea" in b"".join(archive.blocks("memory.jsonl"))
    elsewhere = b"".join(archive.blocks("said-elsewhere.jsonl"))
    assert b"from anna" in elsewhere
    assert b"from ben" not in elsewhere
    archive.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert zipfile.ZipFile(path).testzip() is None


async def test_an_archive_comes_back_whole_in_another_store(url: str, tmp_path: Path) -> None:
    """Imported into an empty store, sessions have their ids, events, forks and blobs, and memory its facts; twice is once (B58, PA-5)."""
    other = f"sqlite:///{tmp_path}/other.db"
    async with await open_manager(url) as manager, await open_manager(other) as target:
        ids = await live(manager, url)
        path = await exported(manager, url, tmp_path / "anna.zip")
        first = await imported(target, other, path)
        again = await imported(target, other, path)
        assert (first.ids, first.facts) == ({session_id: session_id for session_id in ids}, 1)
        assert (again.ids, again.added) == (first.ids, 0)
        for session_id in ids:
            assert await history(target, session_id) == await history(manager, session_id)
        fork = await target.open(ids[1], principal=ANNA)
        assert (fork.head.forked_from, fork.head.base_seq) == ("first", 4)
        [digest] = await target.store.blobs("first")
        assert (await target.store.get_blob("first", digest)).startswith(b"very big")
        memory = open_memory(target, other)
        facts = (await memory.store.facts(FactQuery(owner=ANNA.id))).items
        await memory.store.close()
        assert [fact.text for fact in facts] == ["Anna likes tea"]


async def test_an_archive_goes_beside_what_has_its_ids(url: str, tmp_path: Path) -> None:
    """Where ids are taken by others or were erased, sessions get new ids, always the same; nothing that is there is touched (B58, C20)."""
    other = f"sqlite:///{tmp_path}/other.db"
    async with await open_manager(url) as manager, await open_manager(other) as target:
        await live(manager, url)
        path = await exported(manager, url, tmp_path / "anna.zip")
        await target.create_session("first", title="ben's", principal=BEN)
        before = await target.store.read("first")
        first = await imported(target, other, path)
        again = await imported(target, other, path)
        assert first.ids["first"].startswith("imp_")
        assert (again.ids, again.added) == (first.ids, 0)
        assert await target.store.read("first") == before
        await manager.erase_person(ANNA, cascade=True, principal=ROOT)
        back = await imported(manager, url, path)
        assert all(new.startswith("imp_") for new in back.ids.values())
        assert await history(manager, back.ids["first"]) == await history(target, first.ids["first"])


async def test_only_administrators_and_the_person_may_export_a_person(url: str, tmp_path: Path) -> None:
    """Somebody else is refused, and no file is made (C19)."""
    async with await open_manager(url) as manager:
        await live(manager, url)
        with pytest.raises(AccessDeniedError):
            await export_person(manager, ANNA, to=tmp_path / "anna.zip", principal=BEN)
        assert not (tmp_path / "anna.zip").exists()
        done = await export_person(manager, ANNA, to=tmp_path / "anna.zip", principal=ANNA)
        assert done.sessions == 3


# ---- what strangers make -------------------------------------------------------------------------------------------


def packed(entries: dict[str, bytes], *, change: Callable[[zipfile.ZipInfo], None] | None = None) -> bytes:
    """Return an archive with a manifest that is right about its entries, each changed by `change`."""
    out = io.BytesIO()
    files = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in entries.items()}
    sessions = [{"session_id": "s1"}] if "sessions/s1/events.jsonl" in entries else []
    manifest = {"format": FORMAT, "version": 1, "sessions": sessions, "files": files}
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # twins, which are meant
        for name, data in {**entries, "manifest.json": orjson.dumps(manifest)}.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if change is not None:
                change(info)
            archive.writestr(info, data)
    return out.getvalue()


EVENTS = b'{"session_id":"s1","event_type":"user_message","content":"hello"}\n'
GOOD = {"sessions/s1/events.jsonl": EVENTS}


def as_link(info: zipfile.ZipInfo) -> None:
    """Make an entry a symbolic link."""
    if info.filename.endswith("events.jsonl"):
        info.external_attr = (stat.S_IFLNK | 0o777) << 16


def twice() -> bytes:
    """Return an archive that has one name two times."""
    out = io.BytesIO(packed(GOOD))
    with warnings.catch_warnings(), zipfile.ZipFile(out, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("sessions/s1/events.jsonl", EVENTS)
    return out.getvalue()


def patched(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return the archive with bytes exchanged everywhere."""
    assert old in data
    return data.replace(old, new)


def in_directory(offset: int, value: bytes) -> bytes:
    """Return an archive whose directory says something else about its first entry."""
    data = bytearray(packed(GOOD))
    at = data.find(b"PK\x01\x02") + offset
    data[at : at + len(value)] = value
    return bytes(data)


def declaring(size: int) -> bytes:
    """Return an archive whose directory says that an entry unpacks to `size` bytes."""
    return in_directory(24, struct.pack("<I", size))


def overlapping() -> bytes:
    """Return an archive two of whose entries share their bytes."""
    data = bytearray(packed({**GOOD, "memory.jsonl": EVENTS}))
    second = data.find(b"PK\x01\x02", data.find(b"PK\x01\x02") + 4)
    data[second + 42 : second + 46] = struct.pack("<I", 1)
    return bytes(data)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a path upwards": lambda: packed({**GOOD, "../evil": b"x"}),
    "a path upwards inside": lambda: packed({**GOOD, "sessions/../../evil": b"x"}),
    "an absolute path": lambda: packed({**GOOD, "/tmp/evil": b"x"}),
    "a path of another system": lambda: packed({**GOOD, "sessions\\s1\\evil": b"x"}),
    "a drive": lambda: packed({**GOOD, "C:evil": b"x"}),
    "a device": lambda: packed({**GOOD, "sessions/con/events.jsonl": EVENTS}),
    "a device with an ending": lambda: packed({**GOOD, "sessions/com1/events.jsonl": EVENTS}),
    "a name that is none": lambda: packed({**GOOD, "sessions/s1/./events.jsonl": EVENTS}),
    "a NUL": lambda: patched(packed(GOOD), b"sessions/s1/events.jsonl", b"sessions/s1/events.json\0"),
    "a twin in another case": lambda: packed({**GOOD, "sessions/S1/events.jsonl": EVENTS}),
    "the same twice": twice,
    "a link": lambda: packed(GOOD, change=as_link),
    "a nested archive": lambda: packed({**GOOD, "sessions/s1/more.zip": packed(GOOD)}),
    "an entry that is encrypted": lambda: in_directory(8, struct.pack("<H", 1)),
    "an entry packed in another way": lambda: in_directory(10, struct.pack("<H", zipfile.ZIP_LZMA)),
    "zeros that unpack to two gigabytes": lambda: declaring(2 << 30),
    "a size that is a lie": lambda: declaring(len(EVENTS) + 5),
    "entries in one another": overlapping,
    "no manifest": lambda: patched(packed(GOOD), b"manifest.json", b"memory.jsonlx"),
    "a cut file": lambda: packed(GOOD)[:-40],
    "no archive": lambda: b"PK\x03\x04 and nothing",
}


def spoiled_manifest(change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return an archive whose manifest was changed."""
    out = io.BytesIO()
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": 1,
        "sessions": [{"session_id": "s1"}],
        "files": {"sessions/s1/events.jsonl": {"bytes": len(EVENTS), "sha256": hashlib.sha256(EVENTS).hexdigest()}},
    }
    change(manifest)
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("sessions/s1/events.jsonl", EVENTS)
        archive.writestr("manifest.json", orjson.dumps(manifest))
    return out.getvalue()


HOSTILE["a manifest of another version"] = lambda: spoiled_manifest(lambda m: m.update(version=2))
HOSTILE["a manifest of something else"] = lambda: spoiled_manifest(lambda m: m.update(format="tar"))
HOSTILE["a manifest without files"] = lambda: spoiled_manifest(lambda m: m.update(files=[]))
HOSTILE["another checksum"] = lambda: spoiled_manifest(
    lambda m: m["files"]["sessions/s1/events.jsonl"].update(sha256="0" * 64)
)
HOSTILE["a file that is not there"] = lambda: spoiled_manifest(
    lambda m: m["files"].update({"memory.jsonl": {"bytes": 1, "sha256": "0" * 64}})
)


async def test_the_archive_that_strangers_spoil_is_itself_good(tmp_path: Path) -> None:
    """The plain archive of these tests is imported, so that what is refused is refused for what was changed (B58)."""
    path = tmp_path / "good.zip"
    path.write_bytes(packed(GOOD))
    async with await open_manager("memory://") as manager:
        assert (await import_person(manager, path)).added == 2


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_archive_is_refused_and_writes_nothing(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive with tricks in its names, kinds, sizes or checksums is refused with its entry, and nothing is made (B58, PA-3)."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    path = tmp_path / "inside" / "hostile.zip"
    path.parent.mkdir()
    path.write_bytes(HOSTILE[what]())
    async with await open_manager("memory://") as manager:
        with pytest.raises(PersonArchiveError) as refused:
            await import_person(manager, path)
        assert refused.value.code == "person_archive"
        assert [head async for head in manager.heads()] == []
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["hostile.zip"]


async def test_an_archive_is_imported_in_bounded_memory(tmp_path: Path) -> None:
    """A blob of 200 MB, which packs to nearly nothing, is refused by its size or unpacked block by block (B58, PA-4)."""
    data = b"\0" * (200 << 20)
    digest = hashlib.sha256(data).hexdigest()
    path = tmp_path / "big.zip"
    path.write_bytes(packed({**GOOD, f"sessions/s1/blobs/{digest}": data}))
    del data
    assert path.stat().st_size < 1 << 20
    with pytest.raises(PersonArchiveError, match="max-bytes"):
        PersonArchive(path, max_bytes=100 << 20)
    tracemalloc.start()
    try:
        archive = PersonArchive(path)
        archive.verify()
        archive.extract(f"sessions/s1/blobs/{digest}", tmp_path / "out")
        archive.close()
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert os.stat(tmp_path / "out").st_size == 200 << 20
