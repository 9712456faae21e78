"""A session that cannot be read at all: it is named, and everything is done with the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from kipu.errors import StoreError
from kipu.events.conversation import UserMessageEvent
from kipu.interop.export_person import export_person
from kipu.ports.principal import Principal
from kipu.security.key_file import key_line
from kipu.wiring import open_manager
from tests.unit.cli.command_line import CommandLine

KEY = key_line(bytes(range(32))).strip()
NAMES = ("first", "lost", "third")


@pytest.fixture(params=["file", "key"])
def kipu(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Return a command line over a store of three sessions, one with a log or a data key that is not to be had."""
    monkeypatch.setenv("KIPU_TEST_KEY", KEY)
    of_key = request.param == "key"
    url = f"sqlite:///{tmp_path}/store?encrypt=env:KIPU_TEST_KEY" if of_key else f"jsonl:///{tmp_path}/store"

    async def make() -> None:
        async with await open_manager(url) as manager:
            for name in NAMES:
                await manager.create_session(name, key=f"cli:{name}")
                await manager.save_event(name, UserMessageEvent(content=f"I am {name}"))

    asyncio.run(make())
    if of_key:
        connection = apsw.Connection(str(tmp_path / "store.keys"))
        connection.execute("DELETE FROM data_keys WHERE session_id = 'lost'")
        connection.close()
    else:
        log = tmp_path / "store" / "lost" / "000001.jsonl"
        log.unlink()
        log.symlink_to(log)
    made = CommandLine(tmp_path, url)
    made.environment["KIPU_TEST_KEY"] = KEY
    return made


def test_it_is_listed(kipu: CommandLine) -> None:
    """`kipu ls` has it beside the others, so that nobody takes it for none (A50, row 73)."""
    assert sorted(kipu.ids()) == sorted(NAMES)


@pytest.mark.parametrize("kipu", ["file"], indirect=True)
@pytest.mark.parametrize("command", ["show", "verify", "window", "rename"])
def test_what_cannot_be_read_of_it_is_named(kipu: CommandLine, command: str) -> None:
    """The error says which file of the store it is, and not only that the store cannot be read now (C16)."""
    ran = kipu.run(command, "lost", *(["a title"] if command == "rename" else []))
    assert (ran.code, "lost/000001.jsonl: " in ran.stderr) == (5, True), ran.stderr


def test_the_others_are_copied_and_it_is_named(kipu: CommandLine, tmp_path: Path) -> None:
    """`kipu copy` takes every session that can be read, says which it left out, and ends with 1 (C22, C16)."""
    target = f"sqlite:///{tmp_path}/copy.db" + ("?encrypt=env:KIPU_TEST_KEY" if "encrypt" in kipu.store else "")
    ran = kipu.run("copy", kipu.store, target)
    assert (ran.code, "left out lost" in ran.stderr) == (1, True), ran.stderr
    copied = CommandLine(tmp_path, target)
    copied.environment["KIPU_TEST_KEY"] = KEY
    assert sorted(copied.ids()) == ["first", "third"]
    assert "I am third" in copied.run("show", "third").stdout


def test_the_others_are_scanned_and_it_is_named(kipu: CommandLine) -> None:
    """`kipu scan` looks at all that can be read, and does not say of the rest that there is no secret in it (C21, C16)."""
    ran = kipu.run("scan", "--json")
    assert (ran.code, [*ran.json["unreadable"]]) == (1, ["lost"])
    assert "lost was not looked at" in ran.stderr


def test_its_key_gets_a_fresh_session_and_it_is_named(kipu: CommandLine) -> None:
    """`kipu chat` in the project of such a session goes on in a fresh one, says so, and leaves the old one as it is (A50, C16)."""
    ran = kipu.process("chat", "--project", "lost", stdin="I am fresh\n")
    assert (ran.code, "cli:lost led to session lost, which cannot be read" in ran.stderr) == (0, True), ran.stderr
    (fresh,) = set(kipu.ids()) - set(NAMES)
    assert "I am fresh" in kipu.run("show", "cli:lost").stdout
    assert kipu.head(fresh)["key"] == "cli:lost"
    assert "lost" in kipu.ids()
    assert kipu.run("show", "lost").code == 5


def test_it_is_not_gone_on_without(kipu: CommandLine) -> None:
    """`kipu chat --continue` in its project is its error, and takes no older session for the newest, or says there is none (A50, C16)."""
    told = kipu.process("chat", "--project", "lost", "--continue", stdin="I am fresh\n")
    assert (told.code, "session_not_found" in told.stderr) == (5, False), told.stderr
    assert sorted(kipu.ids()) == sorted(NAMES)


async def test_its_key_is_taken_by_this_machines_own_user_only(
    kipu: CommandLine, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can say whose it is: somebody who is known by a name only gets the error, and the key stays (A20, A50)."""
    ann = Principal("ann")
    async with await open_manager(kipu.store) as manager:
        anns = await manager.create_session(principal=ann)
        for attempt in (
            manager.new_session("cli:lost", principal=ann),
            manager.bind_key("cli:lost", anns, principal=ann),
        ):
            with pytest.raises(StoreError):
                await attempt
        assert await manager.store.resolve("cli:lost") == "lost"
        await manager.bind_key("cli:lost", "first")
        assert "session lost, which cannot be read" in caplog.text
        assert await manager.resolve("cli:lost") == "first"


@pytest.mark.parametrize("person", ["local", "ann"])
def test_a_persons_archive_is_not_said_to_be_whole(kipu: CommandLine, tmp_path: Path, person: str) -> None:
    """Nobody can say whose it is, or what the person said in it: it is named, and the export ends with 1 (B58, C16)."""
    ran = kipu.run("export", "--person", person, "--to", str(tmp_path / "all.zip"), "--json")
    assert (ran.code, [*ran.json["unreadable"]]) == (1, ["lost"])
    assert ran.json["sessions"] == (2 if person == "local" else 0)


@pytest.mark.parametrize("kipu", ["file"], indirect=True)  # the head of the other says whose it is
@pytest.mark.parametrize("person", ["local", "ann"])
def test_a_person_is_not_said_to_be_erased_as_a_whole(kipu: CommandLine, person: str) -> None:
    """What can be read of theirs is gone; it stands, is named, and the erasure ends with 1: it may be theirs (B58, C16)."""
    ran = kipu.run("erase", "--person", person, "--yes", "--json")
    assert (ran.code, ran.json["unreadable"]) == (1, ["lost"])
    assert "lost stands" in ran.stderr
    assert sorted(kipu.ids()) == (["lost"] if person == "local" else sorted(NAMES))


@pytest.mark.parametrize("kipu", ["key"], indirect=True)
def test_a_session_of_others_keeps_no_person_from_being_erased(kipu: CommandLine) -> None:
    """What somebody said in another's session that cannot be read is not counted, which is told; all of theirs goes (A26, B58)."""

    async def begin() -> None:
        async with await open_manager(kipu.store) as manager:
            anns = await manager.create_session("anns", principal=Principal("ann"))
            await manager.save_event(anns, UserMessageEvent(content="I am ann"), principal=Principal("ann"))

    asyncio.run(begin())
    ran = kipu.run("erase", "--person", "ann", "--yes")
    assert (ran.code, "lost is somebody else's and keeps what they said in it" in ran.stderr) == (0, True), ran.stderr
    assert sorted(kipu.ids()) == sorted(NAMES)


async def test_what_cannot_be_read_is_named_to_nobody_else(kipu: CommandLine, tmp_path: Path) -> None:
    """Somebody who exports their own data learns of no session that is not theirs (C19, A20)."""
    async with await open_manager(kipu.store) as manager:
        ann = Principal("ann")
        done = await export_person(manager, ann, to=tmp_path / "all.zip", principal=ann)
        assert done.unreadable == {}


async def test_a_session_whose_owner_is_lost_is_in_the_archive_of_this_machines_user(tmp_path: Path) -> None:
    """Where its first record is damaged, the one user of this machine still has it, in their archive too (B58, C16)."""
    url = f"jsonl:///{tmp_path}/store"
    async with await open_manager(url) as manager:
        await manager.create_session("s")
        await manager.save_event("s", UserMessageEvent(content="kept"))
    log = tmp_path / "store" / "s" / "000001.jsonl"
    log.write_bytes(log.read_bytes().replace(b"session_init", b"session_?nit", 1))
    for index in (tmp_path / "store").glob("index.sqlite*"):
        index.unlink()
    async with await open_manager(url) as manager:
        done = await export_person(manager, Principal.local(), to=tmp_path / "all.zip")
    assert (done.sessions, done.events, done.unreadable) == (1, 1, {})
