"""Where `kipu export` writes to: files whole or not at all, through links, and into what is no file without replacing it."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tests.unit.cli.command_line import CommandLine

PERSON = ("--person", "local")
ONE = ("cli:default",)


@pytest.fixture
def kipu(tmp_path: Path) -> CommandLine:
    """Return a command line whose store holds a session."""
    made = CommandLine(tmp_path, f"sqlite:///{tmp_path}/s.db")
    made.chat("hello dog")
    return made


@pytest.mark.parametrize("what", [ONE, PERSON], ids=["session", "person"])
def test_a_pipe_is_written_into_and_stays_one(what: tuple[str, ...], kipu: CommandLine, tmp_path: Path) -> None:
    """What is no file takes the bytes, and is not replaced by a file of its name: as `-o /dev/stdout` or /dev/null (A51)."""
    pipe, got = tmp_path / "pipe", bytearray()
    os.mkfifo(pipe)
    holder = os.open(pipe, os.O_RDWR)  # so that nobody waits for the other end, whatever becomes of the command

    def take() -> None:
        with open(pipe, "rb") as file:
            while data := file.read1(65536):
                got.extend(data)

    reader = threading.Thread(target=take, daemon=True)
    reader.start()
    ran = kipu.run("export", *what, "--to", str(pipe))
    is_pipe = stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(holder)
    assert (ran.code, is_pipe) == (0, True), ran.stderr
    reader.join(timeout=60)
    assert not reader.is_alive()
    file = tmp_path / "file"
    kipu.run("export", *what, "--to", str(file))
    assert bytes(got[:2]) == file.read_bytes()[:2]
    assert len(got) > 100


@pytest.mark.parametrize("what", [ONE, PERSON], ids=["session", "person"])
def test_a_link_stays_a_link(what: tuple[str, ...], kipu: CommandLine, tmp_path: Path) -> None:
    """Where the name is a link, what it leads to is written, as every other program does (A51)."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    assert kipu.run("export", *what, "--to", str(link)).code == 0
    assert link.is_symlink()
    assert len(target.read_bytes()) > 100
    assert sorted(path.name for path in tmp_path.glob("*target*")) == ["target"]


def test_a_quarantine_that_is_no_file_is_written_into(kipu: CommandLine, tmp_path: Path) -> None:
    """`import --quarantine` replaces no pipe either, and does not wait for what stands in it (A51)."""
    pipe, broken = tmp_path / "pipe", tmp_path / "broken.jsonl"
    os.mkfifo(pipe)
    broken.write_bytes(b"\xfd\xfc broken\n")
    holder = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        ran = kipu.run("import", str(broken), "--quarantine", str(pipe))
        assert "quarantined" in ran.stderr
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert b'"base64"' in os.read(holder, 65536)
    finally:
        os.close(holder)


def test_exporting_all_names_what_cannot_be_read_and_exports_the_rest(tmp_path: Path) -> None:
    """One session that the medium does not give keeps no other from being exported, and is not left out unsaid (A50, C16)."""
    kipu = CommandLine(tmp_path, f"jsonl:///{tmp_path}/store")
    for project in ("one", "two", "three"):
        kipu.environment["KIPU_PROJECT"] = project
        kipu.chat(f"hello {project}")
    lost, *others = kipu.ids()
    log = tmp_path / "store" / lost / "000001.jsonl"
    log.unlink()
    log.symlink_to(log)
    ran = kipu.run("export", "--all", "--to", str(tmp_path / "all"))
    assert (ran.code, f"{lost} is not among them" in ran.stderr) == (1, True)
    assert sorted(path.stem for path in (tmp_path / "all").iterdir()) == sorted(others)
