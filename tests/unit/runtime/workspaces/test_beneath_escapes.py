"""Nothing leaves the root: a table of ways out that were tried, for each operation, by each way of opening."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kipu.errors import PathOutsideError, WorkspaceError
from kipu.runtime.workspaces.beneath import BeneathFiles
from tests.unit.runtime.workspaces.conftest import SECRET

Operation = Callable[[BeneathFiles, str], object]

RACES, MOST_RACES = 400, 20_000


def _prepare(root: Path) -> None:
    outside = root.parent / "outside"
    (root / "a" / "b").mkdir(parents=True)
    (root / "file").write_bytes(b"inside")
    links = {
        "out": outside,
        "out_file": outside / "secret",
        "out_relative": Path("../outside"),
        "out_deep": Path("a/b/../../../outside"),
        "a/up": Path("../.."),
        "a/b/up3": Path("../../../outside/secret"),
        "chain": Path("chain2"),
        "chain2": Path("a/up"),
        "to_new": outside / "new",
        "to_root": Path("/"),
        "to_proc": Path("/proc/self/root"),
        "to_fd": Path("/proc/self/fd"),
        "to_cwd": Path("/proc/self/cwd"),
        "twin_of_root": root.parent / "root2",
        "loop": Path("loop"),
        "loop_a": Path("loop_b"),
        "loop_b": Path("loop_a/x"),
        "nul_device": Path("/dev/null"),
        "a/absolute_then_up": root / ".." / "outside",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)


# {root} is the root, {outside} the folder beside it.
ESCAPES = [
    "..",
    "../outside/secret",
    "../root2/secret",
    "a/../../outside/secret",
    "a/b/../../../outside/secret",
    "./../outside/secret",
    "missing/../../outside/secret",
    "/",
    "//",
    "/etc/passwd",
    "//etc//passwd",
    "{outside}/secret",
    "{root}2/secret",
    "{root}/../outside/secret",
    "{root}/./../root2/secret",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd",
    "/dev/null",
    "out/secret",
    "out/new_file",
    "out/new_folder/new_file",
    "out_file",
    "out_relative/secret",
    "out_deep/secret",
    "a/up/outside/secret",
    "a/b/up3",
    "chain/outside/secret",
    "to_new",
    "to_new/deeper",
    "to_root/etc/passwd",
    "to_proc/etc/passwd",
    "to_fd/0",
    "to_cwd/pyproject.toml",
    "twin_of_root/secret",
    "loop",
    "loop_a/x",
    "nul_device",
    "a/absolute_then_up/secret",
    "file/../../outside/secret",
    "secret\0/../..",
    "../outside/secret\0",
    "half\ud800character",
]
OPERATIONS: dict[str, Operation] = {
    "read": lambda files, path: files.read(path),
    "write": lambda files, path: files.write(path, b"written by an escape"),
    "list": lambda files, path: files.list(path),
    "resolve": lambda files, path: files.resolve(path),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("escape", ESCAPES)
def test_path_is_refused_when_it_leads_outside(files: BeneathFiles, root: Path, escape: str, name: str) -> None:
    """No operation leaves the root by any of these paths, and what lies beside it is as it was (A19, B41)."""
    _prepare(root)
    before = _everything(root.parent)
    path = escape.replace("{root}", str(root)).replace("{outside}", str(root.parent / "outside"))
    with pytest.raises(WorkspaceError):
        OPERATIONS[name](files, path)
    assert _everything(root.parent) == before


@pytest.mark.parametrize("escape", ["../outside/secret", "out/secret", "a/up/outside/secret", "/etc/passwd"])
def test_path_outside_is_told_as_such(files: BeneathFiles, root: Path, escape: str) -> None:
    """A way out is an error of its own kind, which names the path (A19)."""
    _prepare(root)
    with pytest.raises(PathOutsideError) as caught:
        files.read(escape)
    assert caught.value.path == escape


@pytest.mark.parametrize("escape", ["out/secret", "a/up/outside/secret", "../outside/secret", "chain/outside"])
def test_removal_and_status_stay_inside(files: BeneathFiles, root: Path, escape: str) -> None:
    """Neither removing nor looking goes through a link that leads out (A19, B41)."""
    _prepare(root)
    for operation in (files.remove, files.stat, files.read_link):
        with pytest.raises(PathOutsideError):
            operation(escape)
    assert (root.parent / "outside" / "secret").read_bytes() == SECRET


def test_removal_of_a_link_leaves_what_it_leads_to(files: BeneathFiles, root: Path) -> None:
    """Removing a link that leads out removes the link only (B41)."""
    _prepare(root)
    files.remove("out_file")
    assert not (root / "out_file").is_symlink()
    assert (root.parent / "outside" / "secret").read_bytes() == SECRET


@pytest.mark.parametrize("escape", ["out", "out_file", "to_new"])
def test_exact_path_refuses_links(files: BeneathFiles, root: Path, escape: str) -> None:
    """With `exact` no link is followed, wherever it leads (B41)."""
    _prepare(root)
    (root / "inner").symlink_to("a")
    for path in (escape, "inner/new"):
        with pytest.raises(WorkspaceError):
            files.write(path, b"x", exact=True)
    assert _everything(root.parent / "outside") == {"secret": SECRET}


def test_files_stay_inside_when_a_directory_is_swapped_for_a_link(files: BeneathFiles, root: Path) -> None:
    """While another thread swaps a directory for a link that leads out, writes and reads never reach what it leads to (A19, B41)."""
    outside = root.parent / "outside"
    (root / "d").mkdir()
    (root / "d" / "secret").write_bytes(b"inside")
    stop = threading.Event()
    swapper = threading.Thread(target=_swap, args=(root, outside, stop))
    swapper.start()
    done: set[str] = set()
    refused = 0
    try:
        for number in range(MOST_RACES):
            try:
                if number % 2:
                    files.write(f"d/new{number}", b"x")
                else:
                    assert files.read("d/secret") == b"inside"
                done.add("write" if number % 2 else "read")
            except WorkspaceError:
                refused += 1
            if number > RACES and len(done) == 2 and refused:
                break
    finally:
        stop.set()
        swapper.join()
    assert _everything(outside) == {"secret": SECRET}
    assert done == {"read", "write"}, "the directory was never there: the race was not run"
    assert refused, "the link was never there: the race was not run"


def test_files_stay_inside_when_the_file_is_swapped_for_a_link(files: BeneathFiles, root: Path) -> None:
    """While another thread swaps the file itself for a link that leads out, reading never gives what it leads to (A19, B41)."""
    outside = root.parent / "outside"
    (root / "d").write_bytes(b"inside")
    stop = threading.Event()
    swapper = threading.Thread(target=_swap, args=(root, outside / "secret", stop))
    swapper.start()
    seen: set[bytes] = set()
    try:
        for number in range(RACES):
            with suppress(WorkspaceError):
                seen.add(files.read("d"))
            with suppress(WorkspaceError):
                files.write("d", b"inside" if number % 2 else b"inside 2")
    finally:
        stop.set()
        swapper.join()
    assert SECRET not in seen
    assert seen
    assert _everything(outside) == {"secret": SECRET}


def _swap(root: Path, target: Path, stop: threading.Event) -> None:
    """Let `d` be in turn what it was and a link to `target`."""
    real, link, place = root / "real", root / "link", root / "d"
    link.symlink_to(target)
    while not stop.is_set():
        with suppress(OSError):
            os.rename(place, real)
        with suppress(OSError):
            os.rename(link, place)
        with suppress(OSError):
            if place.is_symlink():
                os.rename(place, link)
        with suppress(OSError):
            os.rename(real, place)


def _everything(folder: Path) -> dict[str, bytes | str]:
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
    return {name: value for name, value in found.items() if not Path(folder, name).is_dir() or value}
