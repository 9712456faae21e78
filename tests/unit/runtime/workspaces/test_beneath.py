"""Files beneath a root: what reading and writing does inside."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kipu.errors import (
    PathDeniedError,
    PathNotFoundError,
    PathTwinError,
    WorkspaceError,
    WorkspaceMissingError,
)
from kipu.runtime.workspaces.beneath import BeneathFiles
from kipu.runtime.workspaces.file_replacement import replace_file
from kipu.runtime.workspaces.opener import DIRECTORY, held
from kipu.runtime.workspaces.path_policy import PathPolicy

NFC, NFD = "caf\u00e9.txt", "cafe\u0301.txt"


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_files_read_back_what_was_written(files: BeneathFiles, root: Path) -> None:
    """What is written is read, missing directories are made, and no temporary file stays (B41)."""
    files.write("a/b/c.txt", b"text")
    assert files.read("a/b/c.txt") == b"text"
    assert files.read("a/b/c.txt", max_bytes=2) == b"te"
    assert [entry.path for entry in files.list("a/b")] == ["a/b/c.txt"]
    assert (root / "a/b/c.txt").read_bytes() == b"text"


def test_files_keep_the_mode_of_what_they_replace(files: BeneathFiles, root: Path) -> None:
    """A replaced file keeps its mode, a new one gets 0644 less the umask, a stated mode is taken (B41)."""
    with umask(0o022):
        files.write("new", b"")
    with umask(0o077):
        files.write("private", b"")
        files.write("script", b"", mode=0o755)
        (root / "kept").write_bytes(b"")
        (root / "kept").chmod(0o751)
        files.write("kept", b"x")
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("new", "private", "script", "kept")}
    assert modes == {"new": 0o644, "private": 0o600, "script": 0o755, "kept": 0o751}


def test_files_follow_links_that_stay_inside(files: BeneathFiles, root: Path) -> None:
    """A link to a place inside is followed, by a relative and by an absolute target, and writing replaces its target (B41)."""
    (root / "real").mkdir()
    (root / "real/f").write_bytes(b"1")
    (root / "relative").symlink_to("real")
    (root / "absolute").symlink_to(root / "real" / "f")
    (root / "real/back").symlink_to("../absolute")
    (root / "dangling").symlink_to("real/made")
    assert files.read("relative/f") == files.read("absolute") == files.read("relative/back") == b"1"
    files.write("relative/back", b"2")
    files.write("dangling", b"3")
    assert (root / "real/f").read_bytes() == b"2"
    assert (root / "real/made").read_bytes() == b"3"
    assert all((root / name).is_symlink() for name in ("relative", "absolute", "real/back", "dangling"))


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("", ""),
        (".", ""),
        ("./a//b/", "a/b"),
        ("a/../b", "b"),
        ("a/b/..", "a"),
        ("missing/../a", "a"),
        ("{root}/a/b", "a/b"),
        ("{root}", ""),
        ("link/x", "a/x"),
        ("link/..", ""),
        ("deep/..", "a"),
        ("~/x", "~/x"),
        ("C:\\x", "C:\\x"),
        ("...", "..."),
    ],
)
def test_resolve_gives_the_place_relative_to_the_root(files: BeneathFiles, root: Path, path: str, wanted: str) -> None:
    """A path is told by where it leads, links and '..' taken as the system takes them (B41)."""
    (root / "a/b").mkdir(parents=True)
    (root / "link").symlink_to("a")
    (root / "deep").symlink_to("a/b")
    assert files.resolve(path.replace("{root}", str(root))) == wanted


def test_absolute_path_works_when_the_root_is_reached_by_a_link(root: Path) -> None:
    """An absolute path beneath the root is taken in both spellings, the one that was given and the real one (B41)."""
    (root / "f").write_bytes(b"1")
    door = root.parent / "door"
    door.symlink_to(root)
    files = BeneathFiles(door)
    assert files.read(f"{door}/f") == files.read(f"{root}/f") == files.read("f") == b"1"


def test_fifo_is_refused_at_once(files: BeneathFiles, root: Path) -> None:
    """A FIFO that nobody writes to does not hang whoever reads it, nor does a socket or a device get opened (B41)."""
    os.mkfifo(root / "pipe")
    for operation in (files.read, lambda path: files.write(path, b"x")):
        with pytest.raises(WorkspaceError, match="is a FIFO, not a file"):
            operation("pipe")
    if os.geteuid() == 0:
        os.mknod(root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        with pytest.raises(WorkspaceError, match="is a device, not a file"):
            files.read("zero")
    assert {entry.path: entry.kind for entry in files.list()}["pipe"] == "other"


def test_hard_link_to_a_file_outside_is_replaced_and_not_written_through(files: BeneathFiles, root: Path) -> None:
    """Writing to a second name of a file outside makes a file of its own; reading shows that file, as documented (B41)."""
    os.link(root.parent / "outside/secret", root / "second")
    assert files.read("second") == (root.parent / "outside/secret").read_bytes()
    files.write("second", b"mine")
    assert (root.parent / "outside/secret").read_bytes() != b"mine"


@pytest.mark.parametrize(("there", "asked"), [(NFC, NFD), (NFD, NFC)])
def test_unicode_twin_is_named_and_no_second_file_is_made(
    files: BeneathFiles, root: Path, there: str, asked: str
) -> None:
    """Writing a name that looks like one that is there is refused with that name; reading it finds the one there is (A21)."""
    (root / there).write_bytes(b"1")
    with pytest.raises(PathTwinError) as caught:
        files.write(asked, b"2")
    assert caught.value.twin == there
    assert os.listdir(root) == [there]
    assert files.read(asked) == b"1"
    assert files.resolve(asked) == there
    files.write(there, b"3")
    assert files.read(there) == b"3"


def test_unicode_twin_of_a_directory_is_named(files: BeneathFiles, root: Path) -> None:
    """A directory's twin is refused as a file's is, before anything is made (A21)."""
    (root / NFD).mkdir()
    with pytest.raises(PathTwinError) as caught:
        files.write(f"{NFC}/new/file", b"2")
    assert caught.value.twin == NFD
    assert os.listdir(root / NFD) == []


def test_case_is_told_apart_where_the_volume_does(files: BeneathFiles, root: Path) -> None:
    """On a volume that tells case apart, README and readme are two files, also as two links to one (A21)."""
    (root / "README").write_bytes(b"1")
    if (root / "readme").exists():
        pytest.skip("this volume does not tell case apart")
    files.write("readme", b"2")
    assert files.read("README") == b"1"
    os.link(root / "README", root / "Readme")
    os.link(root / "README", root / "rEADME")
    files.write("Readme", b"3")
    assert (root / "rEADME").read_bytes() == b"1"


def test_missing_things_are_told_as_missing(files: BeneathFiles, root: Path) -> None:
    """What is not there is PathNotFoundError for reading and None for a look; a root that is gone is its own error (B41)."""
    for operation in (files.read, files.list, files.remove, files.read_link):
        with pytest.raises(PathNotFoundError):
            operation("nothing/there")
    assert files.stat("nothing") is None
    root.rmdir()
    with pytest.raises(WorkspaceMissingError):
        files.write("x", b"")
    assert not root.exists()


def test_file_in_the_way_is_named(files: BeneathFiles, root: Path) -> None:
    """A path through a file, and a file operation on a directory, say so (B41)."""
    (root / "f").write_bytes(b"")
    (root / "d").mkdir()
    cases: dict[str, Callable[[], object]] = {
        "'f' in 'f/x' is not a directory": lambda: files.write("f/x", b""),
        "'d' is a directory": lambda: files.write("d", b""),
        "'' is a directory": lambda: files.read(""),
        "'f' is not a directory": lambda: files.list("f"),
        "'' is its root": lambda: files.remove(""),
    }
    for told, operation in cases.items():
        with pytest.raises(WorkspaceError, match=told):
            operation()


def test_directory_is_removed_only_when_it_is_empty(files: BeneathFiles, root: Path) -> None:
    """Removing a directory with something in it fails and removes nothing (B41)."""
    files.write("d/f", b"")
    with pytest.raises(WorkspaceError, match="not empty"):
        files.remove("d")
    files.remove("d/f")
    files.remove("d")
    assert list(root.iterdir()) == []


def test_failed_write_leaves_the_old_file_and_no_other(root: Path) -> None:
    """A write that the system refuses half-way leaves the file as it was and no temporary one (A52)."""
    (root / "f").write_bytes(b"old")
    (root / "d").mkdir()
    (root / "d" / "in the way").write_bytes(b"")
    with held(os.open(root, DIRECTORY)) as directory, pytest.raises(IsADirectoryError):
        replace_file(directory, "d", data=b"new", mode=None, temporary=".kipu-1.tmp")
    assert sorted(os.listdir(root)) == ["d", "f"]


def test_reader_sees_the_old_file_or_the_new_one(files: BeneathFiles, root: Path) -> None:
    """While a file is replaced over and over, every read gives one whole version (A51)."""
    versions = [bytes([number]) * 50_000 for number in range(4)]
    files.write("f", versions[0])
    stop = threading.Event()

    def replace() -> None:
        while not stop.is_set():
            for version in versions:
                files.write("f", version)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        seen = {files.read("f") for _ in range(200)}
    finally:
        stop.set()
        writer.join()
    assert seen <= set(versions)


def test_policy_judges_where_a_path_leads(root: Path) -> None:
    """A link or a twin spelling opens no way around what the policy excludes (A19)."""
    (root / ".git").mkdir()
    (root / ".git/config").write_bytes(b"[core]")
    (root / "door").symlink_to(".git")
    (root / "secrets").mkdir()
    (root / "secrets/key").write_bytes(b"k")
    (root / "open").symlink_to("secrets/key")
    files = BeneathFiles(root, policy=PathPolicy().narrowed(not_readable=["secrets"]))
    assert files.read("door/config") == b"[core]"
    for path in (
        ".git/config",
        "door/config",
        "door/hooks/post-commit",
        "x/../.git/config",
        "deep/.git/hooks/x",
        ".GIT/x",
    ):
        with pytest.raises(PathDeniedError):
            files.write(path, b"x")
    for path in ("secrets/key", "open", "secrets"):
        with pytest.raises(PathDeniedError):
            files.read(path)
    with pytest.raises(PathDeniedError):
        files.remove("secrets/key")
    assert (root / ".git/config").read_bytes() == b"[core]"
