"""`kipu archive`, `kipu unarchive` and `kipu gc` as a person meets them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kipu.cli.exit_code import ExitCode
from kipu.testing.fakes import FakeClock
from kipu.wiring import open_manager
from tests.unit.cli.command_line import CommandLine


@pytest.fixture
def kipu(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, f"sqlite:///{tmp_path}/s.db")


async def made(store: str, *names: str) -> list[str]:
    """Make sessions that nobody has used since the beginning of 2020."""
    clock = FakeClock(1_577_836_800_000_000)
    async with await open_manager(store, clock=clock) as manager:
        return [await manager.create_session(title=name) for name in names]


def settings(home: Path, text: str) -> None:
    folder = home / ".config" / "kipu"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


def test_archive_and_unarchive_say_what_they_did(kipu: CommandLine, tmp_path: Path) -> None:
    """The file is named, the session stays listed and shown, and coming back says how much there was (B48)."""
    (session_id,) = asyncio.run(made(kipu.store, "papers"))
    first = kipu.run("archive", session_id)
    assert first.code == 0
    assert f"{tmp_path}/s.db.archive/{session_id}" in first.stderr
    assert "already archived" in kipu.run("archive", session_id).stderr
    assert "archived" in kipu.run("ls").stdout
    assert kipu.run("show", session_id).code == 0
    assert kipu.run("verify").code == 0
    back = kipu.run("unarchive", session_id, "--json")
    assert back.json["events"] == 2
    assert back.json["changed"] is True
    assert os.listdir(tmp_path / "s.db.archive") == []


def test_archive_elsewhere_and_a_missing_file_say_how_to_go_on(kipu: CommandLine, tmp_path: Path) -> None:
    """`--to` keeps the file there; where it is gone, reading ends with 5 and says how, and verify with 1 (B48, A50)."""
    (session_id,) = asyncio.run(made(kipu.store, "papers"))
    done = kipu.run("archive", session_id, "--to", str(tmp_path / "far"), "--json")
    assert done.json["place"] == str(tmp_path / "far")
    (tmp_path / "far").rename(tmp_path / "farther")
    shown = kipu.run("show", session_id)
    assert shown.code == ExitCode.UNREADABLE
    assert "kipu unarchive ID --from PLACE" in shown.stderr
    assert kipu.run("verify").code == ExitCode.FAILURE
    assert kipu.run("unarchive", session_id, "--from", str(tmp_path / "farther")).code == 0
    assert kipu.run("verify").code == 0
    assert kipu.run("archive", session_id, "--to", "nowhere:").code == ExitCode.USAGE


def test_the_archive_setting_names_the_place(kipu: CommandLine, tmp_path: Path) -> None:
    """The setting `archive` is where archives go by default (B48)."""
    settings(tmp_path, f'archive = "{tmp_path}/attic"\n')
    (session_id,) = asyncio.run(made(kipu.store, "papers"))
    assert kipu.run("archive", session_id).code == 0
    assert len(os.listdir(tmp_path / "attic")) == 1
    assert kipu.run("show", session_id).code == 0


def test_gc_shows_first_and_then_does(kipu: CommandLine, tmp_path: Path) -> None:
    """A dry run changes nothing and says of each session what is due or why it is kept; the run does just that (A55, B47)."""
    settings(tmp_path, "[retention]\nexpire_after = 10\narchive_after = 100\n")
    old, pinned = asyncio.run(made(kipu.store, "old", "kept"))
    kipu.run("pin", pinned)
    dry = kipu.run("gc", "--dry-run", "--trust-clock", "--json").json
    assert dry["dry_run"] is True
    steps = {step["session_id"]: (step["step"], step["kept"]) for step in dry["steps"]}
    assert steps == {old: ("archived", None), pinned: ("archived", "pinned")}
    told = kipu.run("gc", "--dry-run", "--trust-clock")
    assert "active → archived" in told.stdout
    assert "pinned" in told.stdout
    assert "due: 1 archived; kept: 1" in told.stderr
    assert not (tmp_path / "s.db.archive").exists()
    assert "done: 1 archived" in kipu.run("gc", "--trust-clock").stderr
    assert len(os.listdir(tmp_path / "s.db.archive")) == 1
    assert "done: nothing" in kipu.run("gc", "--trust-clock").stderr


def test_gc_doubts_a_clock_after_long_silence(kipu: CommandLine, tmp_path: Path) -> None:
    """Where nothing was written for very long, only expiry is done, and it says how to go on (B47)."""
    settings(tmp_path, "[retention]\narchive_after = 100\n")
    asyncio.run(made(kipu.store, "old"))
    ran = kipu.run("gc")
    assert "done: 1 expired" in ran.stderr
    assert "--trust-clock" in ran.stderr


def test_gc_asks_before_it_erases(kipu: CommandLine, tmp_path: Path) -> None:
    """Erasing is asked for, unless `--yes` is given; no is no (B47)."""
    settings(tmp_path, "[retention]\nerase_after = 100\n")
    (session_id,) = asyncio.run(made(kipu.store, "old"))

    async def trash() -> None:
        clock = FakeClock(1_577_836_800_000_000)
        async with await open_manager(kipu.store, clock=clock) as manager:
            await (await manager.open(session_id)).set_status("trashed")

    asyncio.run(trash())
    refused = kipu.run("gc", "--trust-clock", stdin="n\n")
    assert "Erase 1 sessions for good?" in refused.stderr
    assert refused.code != 0
    assert kipu.run("show", session_id).code == 0
    assert "1 erased" in kipu.run("gc", "--trust-clock", "--yes").stderr
    assert kipu.run("show", session_id).code == ExitCode.NOT_FOUND


def test_gc_refuses_settings_that_mean_all_of_it(kipu: CommandLine, tmp_path: Path) -> None:
    """`erase_after = 0` has meant "everything, now" to too many: it is refused, and nothing is looked at (B47)."""
    settings(tmp_path, "[retention]\nerase_after = 0\n")
    asyncio.run(made(kipu.store, "old"))
    ran = kipu.run("gc")
    assert ran.code == ExitCode.USAGE
    assert "retention.erase_after" in ran.stderr


@pytest.mark.parametrize("name", ["a\udcffb", "../x", "a" * 300])
def test_what_can_be_no_id_is_brought_back_from_nowhere(kipu: CommandLine, name: str) -> None:
    """Words that no session can be named by are not found, as every other command says (B24)."""
    asyncio.run(made(kipu.store, "papers"))
    ran = kipu.run("unarchive", name)
    assert (ran.code, ran.stdout, "[session_not_found]" in ran.stderr) == (3, "", True)
