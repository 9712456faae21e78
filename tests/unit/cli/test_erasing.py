"""`kipu erase`, `receipts`, `hold`, `release`, `export --person` and `import` of what it wrote."""

from __future__ import annotations

import asyncio
import zipfile
from pathlib import Path
from typing import Any

from kipu.manager.manager import SessionManager
from kipu.wiring import open_manager
from tests.unit.cli.command_line import CommandLine


def talk(kipu: CommandLine, text: str) -> str:
    """Hold a conversation of one message in a session of its own, and return its id."""
    known = set(kipu.ids()) if kipu.run("ls", "--json").code == 0 else set()
    assert kipu.run("chat", stdin=f"{text}\n").code == 0
    [made] = set(kipu.ids()) - known
    return made


def test_erase_tells_what_it_removed(kipu: CommandLine) -> None:
    """Erasing says place by place what went, proves it, and the receipt is found afterwards, by session too (B46, C20)."""
    session_id = talk(kipu, "a very secret word")
    ran = kipu.run("erase", session_id, "--yes")
    assert (ran.code, f"{session_id} is erased" in ran.stderr) == (0, True)
    assert "proof" in ran.stdout
    assert "events" in ran.stdout
    [receipt] = kipu.run("receipts", "--json").json
    assert receipt["sessions"] == [session_id]
    assert receipt["proof"]["found"] == 0
    assert "secret" not in str(receipt)
    assert kipu.run("receipts", session_id, "--json").json == [receipt]
    assert receipt["erasure_id"] in kipu.run("erase", session_id, "--receipt").stdout
    assert kipu.run("receipts", "sess_unknown").code == 3


def test_erase_lets_forks_go(kipu: CommandLine) -> None:
    """With --detach a fork shows afterwards what it showed before; --cascade and --detach together are refused (C11)."""
    session_id = talk(kipu, "a very secret word")
    fork = kipu.run("fork", session_id).stdout.strip()
    before = [event["event_type"] for event in kipu.events(fork)]
    assert kipu.run("erase", session_id, "--yes", "--detach", "--cascade").code == 2
    erased = kipu.run("erase", session_id, "--yes", "--detach", "--json").json
    assert erased["detached"] == [fork]
    assert [event["event_type"] for event in kipu.events(fork)][: len(before)] == before
    assert kipu.ids() == [fork]


def test_a_hold_stops_erasing_and_the_trash(kipu: CommandLine) -> None:
    """A held session answers erase and trash with session_held and 4; a hold says why; released, it goes (B58)."""
    session_id = talk(kipu, "keep this")
    assert kipu.run("hold", session_id).code == 2
    assert kipu.run("hold", session_id[-8:], "--reason", "case 12", "--json").json["reason"] == "case 12"
    for words in (("erase", session_id, "--yes"), ("trash", session_id)):
        ran = kipu.run(*words)
        assert (ran.code, "[session_held]" in ran.stderr, "case 12" in ran.stderr) == (4, True, True)
    assert kipu.run("release", session_id, "--json").json == {"session_id": session_id, "released": True}
    assert kipu.run("release", session_id, "--json").json["released"] is False
    assert kipu.run("erase", session_id, "--yes").code == 0


def test_erase_ends_what_a_kill_cut_off(kipu: CommandLine) -> None:
    """Run again after a kill, erase shows the receipt of what opening the store has just ended, with 0 (C20)."""
    session_id = talk(kipu, "half gone")

    async def begin_only() -> None:
        async with await open_manager(kipu.store) as manager:
            await begun(manager, session_id)

    asyncio.run(begin_only())
    ran = kipu.run("erase", session_id, "--yes", "--json")
    assert (ran.code, ran.json["resumed"], ran.json["sessions"]) == (0, True, [session_id])
    assert kipu.run("erase", session_id, "--yes").code == 3


async def begun(manager: SessionManager, session_id: str) -> None:
    """Leave the store as a kill does right after an erasure was planned."""
    facts: dict[str, Any] = {
        "kind": "session", "requested_by": "0", "started_at": "2026-01-01T00:00:00.000000Z", "tenant": "", "person": None,
        "detached": [], "held": [], "elsewhere": {}, "prove": False,
    }  # fmt: skip
    ledger = manager._ending._eraser.ledger
    await ledger.begin(manager.mint("erasure"), facts, steps=[{"session_id": session_id, "places": {}}])


def test_a_person_is_erased_and_comes_back_from_an_archive(kipu: CommandLine, tmp_path: Path) -> None:
    """A person's export holds their sessions, erasing takes them all, and the import brings them back (B58, C20)."""
    ids = [talk(kipu, "one"), talk(kipu, "two")]
    archive = tmp_path / "local.zip"
    told = kipu.run("export", "--person", "local", "--to", str(archive), "--json").json
    assert (told["sessions"], told["unreadable"]) == (2, {})
    assert "manifest.json" in zipfile.ZipFile(archive).namelist()
    assert kipu.run("erase", "--person", "local", "--yes", "--json").json["kind"] == "person"
    assert kipu.ids() == []
    assert [receipt["kind"] for receipt in kipu.run("receipts", "--person", "local", "--json").json] == ["person"]
    back = kipu.run("import", str(archive), "--json").json
    assert sorted(back["ids"]) == sorted(ids)
    assert all(new.startswith("imp_") for new in back["ids"].values())
    assert kipu.run("import", str(archive), "--json").json["added"] == 0
    assert sorted(kipu.ids()) == sorted(back["ids"].values())


def test_words_that_do_not_fit_are_refused(kipu: CommandLine, tmp_path: Path) -> None:
    """Erase and export take one session or one person, an archive needs a file, and a spoiled one is refused (B58)."""
    talk(kipu, "one")
    assert kipu.run("erase").code == 2
    assert kipu.run("erase", "x", "--person", "y").code == 2
    assert kipu.run("export", "--person", "local").code == 2
    assert kipu.run("export", "--person", "local", "--to", str(tmp_path / "x"), "--format", "html").code == 2
    spoiled = tmp_path / "spoiled.zip"
    with zipfile.ZipFile(spoiled, "w") as archive:
        archive.writestr("../evil", "x")
    ran = kipu.run("import", str(spoiled))
    assert (ran.code, "[person_archive]" in ran.stderr, "../evil" in ran.stderr) == (2, True, True)
    assert not (tmp_path.parent / "evil").exists()
