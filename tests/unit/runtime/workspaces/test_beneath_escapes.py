"""Nothing leaves the root: a table of ways out that were tried, for each operation, by each way of opening."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from kipu.errors import PathOutsideError, WorkspaceError
from kipu.runtime.workspaces.beneath import BeneathFiles
from kipu.runtime.workspaces.opener import BeneathOpener, WalkingOpener, best_opener
from tests.unit.runtime.workspaces.conftest import SECRET

Operation = Callable[[BeneathFiles, str], object]

RACES = 400


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


class SwappingOpener:
    """Swap a directory or file for a link at the worst moment: after it was resolved, before it is opened."""

    def __init__(self, opener: BeneathOpener, place: Path, *, target: Path) -> None:
        self._opener = opener
        self._place = place
        self._target = target
        self.swaps = 0

    def open(self, root: int, parts: Sequence[str], *, flags: int) -> int:
        if parts and parts[0] == self._place.name and not self._place.is_symlink():
            self._place.rename(self._place.with_name("was_here"))
            self._place.symlink_to(self._target)
            self.swaps += 1
        return self._opener.open(root, parts, flags=flags)


@pytest.mark.parametrize("opener", [best_opener, WalkingOpener])
@pytest.mark.parametrize("path", ["d/secret", "d/new", "d/new/er", "secret"])
@pytest.mark.parametrize("name", ["read", "write", "list", "remove"])
def test_files_stay_inside_when_a_part_is_swapped_after_it_was_resolved(
    root: Path, opener: Callable[[], BeneathOpener], path: str, name: str
) -> None:
    """A link put in between resolving and opening is refused, in the middle and at the end of a path (A19, B41)."""
    outside = root.parent / "outside"
    (root / "d").mkdir()
    (root / "d" / "secret").write_bytes(b"inside")
    (root / "secret").write_bytes(b"inside")
    place = root / path.split("/", maxsplit=1)[0]
    swapping = SwappingOpener(opener(), place, target=outside if "/" in path else outside / "secret")
    files = BeneathFiles(root, opener=swapping)
    operations = OPERATIONS | {"remove": lambda files, path: files.remove(path)}
    with suppress(WorkspaceError):  # a file itself is replaced, link or not: that stays inside
        assert operations[name](files, "d" if name == "list" else path) != SECRET
    assert _everything(outside) == {"secret": SECRET}


@pytest.mark.parametrize("name", ["d/f", "f"])
def test_files_stay_inside_while_another_process_swaps(files: BeneathFiles, root: Path, name: str) -> None:
    """While another process swaps a directory or a file for a link and back, nothing outside is read or written (A19, B41)."""
    outside = root.parent / "outside"
    (outside / "f").write_bytes(SECRET)
    (root / "d").mkdir()
    (root / name).write_bytes(b"inside")
    target = outside if "/" in name else outside / "f"
    command = [sys.executable, "-c", SWAPPER, str(root), name.split("/", maxsplit=1)[0], str(target)]
    seen: set[bytes] = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout is not None
            swapper.stdout.readline()
            for number in range(RACES):
                with suppress(WorkspaceError):
                    seen.add(files.read(name))
                with suppress(WorkspaceError):
                    files.write(f"d/new{number}" if "/" in name else name, b"inside", durable=False)
            assert swapper.poll() is None
        finally:
            swapper.kill()
    assert seen <= {b"inside"}  # nothing at all where the swapper was always quicker
    assert _everything(outside) == {"f": SECRET, "secret": SECRET}


SWAPPER = """
import os, sys
root, name, target = sys.argv[1:]
place, real, link = (os.path.join(root, each) for each in (name, "real", "link"))
os.symlink(target, link)
print("ready", flush=True)
def attempt(action, *names):
    try:
        action(*names)
    except OSError:
        pass
def move(source, to):
    attempt(os.rename, source, to)
while True:
    attempt(os.symlink, target, link)
    move(place, real)
    move(link, place)
    if os.path.islink(place):
        move(place, link)
    move(real, place)
"""


def _everything(folder: Path) -> dict[str, bytes | str]:
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
    return {name: value for name, value in found.items() if not Path(folder, name).is_dir() or value}
