"""Snapshots, restoring and differences of a workspace's files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kipu.errors import RestoreError, WorkspaceError, WorkspaceMissingError
from kipu.ports.workspace import Workspace
from kipu.runtime.workspaces.git import GitProgram
from kipu.runtime.workspaces.local import LocalWorkspace
from kipu.runtime.workspaces.manifest import Contents, Manifest
from kipu.runtime.workspaces.path_policy import PathPolicy
from kipu.runtime.workspaces.provision import WorkspaceProvision
from kipu.runtime.workspaces.snapshot import SnapshotLimits
from tests.unit.runtime.workspaces.tree import Blobs, git, make_repository, read_tree, write_tree


class LateClock:
    """A clock far ahead: every file was changed long ago, so that times alone tell whether it changed again."""

    def now_us(self) -> int:
        return 4_000_000_000_000_000


@pytest.fixture
def provision(tmp_path: Path) -> WorkspaceProvision:
    return WorkspaceProvision(tmp_path / "workspaces", clock=LateClock())


@pytest.fixture
async def workspace(provision: WorkspaceProvision, tmp_path: Path) -> LocalWorkspace:
    """Return a chosen directory that is a repository."""
    root = make_repository(tmp_path / "project", {"a.txt": "1\n", "src/b.py": "b\n", ".gitignore": "*.log\n/build/\n"})
    return await provision.directory("s1", path=root)


async def test_restore_brings_every_file_back_and_removes_what_came_since(workspace: LocalWorkspace) -> None:
    """Content, mode, links and absence are as they were; ignored files are left alone (A26)."""
    root, blobs = workspace.root, Blobs()
    write_tree(root, {"run.sh": "#!/bin/sh\n", "x.log": "ignored", "bin": b"\0\1"})
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("../outside/any")
    before = read_tree(root)
    manifest = await workspace.snapshot(blobs.put)
    write_tree(root, {"a.txt": "2\n", "new/deep/c.txt": "c", "y.log": "ignored too", "build/out": "o"})
    (root / "src/b.py").unlink()
    (root / "run.sh").chmod(0o644)
    (root / "link").unlink()
    (root / "link").write_text("a file now")
    (root / "new_link").symlink_to("a.txt")
    changed = await workspace.restore(manifest, blobs.get)
    assert read_tree(root) == before | {"y.log": ("ignored too", 0o644), "build/out": ("o", 0o644)}
    assert changed == ["a.txt", "link", "new/deep/c.txt", "new_link", "run.sh", "src/b.py"]
    assert not (root / "new").exists()
    assert await workspace.restore(manifest, blobs.get) == []


async def test_restore_keeps_a_file_that_was_ignored_when_the_rule_went(workspace: LocalWorkspace) -> None:
    """A file that the checkpoint's own ignore rules leave out is not removed, although the rule was deleted since (B41)."""
    root, blobs = workspace.root, Blobs()
    write_tree(root, {".gitignore": ".env\n", ".env": "precious"})
    manifest = await workspace.snapshot(blobs.put)
    write_tree(root, {".gitignore": "", "tmp.txt": "came since"})
    changed = await workspace.restore(manifest, blobs.get)
    assert (root / ".env").read_text() == "precious"
    assert changed == [".gitignore", "tmp.txt"]


async def test_restore_removes_what_came_since_under_a_rule_that_came_since(workspace: LocalWorkspace) -> None:
    """A file hidden by an ignore rule that came after the checkpoint is removed as any that came since (B41)."""
    root, blobs = workspace.root, Blobs()
    manifest = await workspace.snapshot(blobs.put)
    write_tree(root, {".gitignore": "*.log\n/build/\nhidden\n", "hidden": "came since"})
    assert await workspace.restore(manifest, blobs.get) == [".gitignore", "hidden"]
    assert not (root / "hidden").exists()


async def test_restore_changes_files_to_folders_and_back(workspace: LocalWorkspace) -> None:
    """A file that became a folder or a link to one, and a folder that became a file, are what they were (B41)."""
    root, blobs = workspace.root, Blobs()
    write_tree(root, {"f": "file", "d/one": "1", "e/two": "2"})
    before = read_tree(root)
    manifest = await workspace.snapshot(blobs.put)
    (root / "f").unlink()
    write_tree(root, {"f/inner/x": "x"})
    shutil.rmtree(root / "d")
    (root / "d").write_text("a file")
    shutil.rmtree(root / "e")
    outside = root.parent / "beside"
    outside.mkdir()
    (root / "e").symlink_to(outside)
    await workspace.restore(manifest, blobs.get)
    assert read_tree(root) == before
    assert list(outside.iterdir()) == []


async def test_restore_says_what_it_could_not_bring_back_and_does_the_rest(workspace: LocalWorkspace) -> None:
    """What stands in the way and may not go is named; the other files are back (B41)."""
    root, blobs = workspace.root, Blobs()
    write_tree(root, {"f": "file"})
    manifest = await workspace.snapshot(blobs.put)
    (root / "f").unlink()
    write_tree(root, {"f/kept.log": "ignored, so not ours to remove", "a.txt": "changed"})
    with pytest.raises(RestoreError) as caught:
        await workspace.restore(manifest, blobs.get)
    assert set(caught.value.failed) == {"f"}
    assert (root / "a.txt").read_text() == "1\n"
    assert (root / "f/kept.log").exists()


async def test_snapshot_leaves_out_and_counts_what_is_too_large_or_closed(
    provision: WorkspaceProvision, tmp_path: Path
) -> None:
    """Files over the limit, closed paths and ignored ones are counted; restoring touches none of them (B41)."""
    root, blobs = make_repository(tmp_path / "p"), Blobs()
    limited = LocalWorkspace(
        (await provision.directory("s", path=root)).record,
        limits=SnapshotLimits(max_file_bytes=100),
        policy=PathPolicy().narrowed(not_readable=["keys"]),
        clock=LateClock(),
    )
    write_tree(root, {"big": b"x" * 101, "keys/k": "secret", ".gitignore": "*.log\n", "a.log": "", "fits": b"x" * 100})
    manifest = await limited.snapshot(blobs.put)
    assert sorted(manifest["files"]) == [".gitignore", "README.md", "fits"]
    assert manifest["left_out"] == {"big": "large", "keys/k": "closed"}
    assert manifest["counts"] == {"large": 1, "closed": 1, "ignored": 1}
    assert not any(b"secret" in data for data in blobs.kept.values())
    write_tree(root, {"big": "small now", "keys/k": "changed", "fits": "changed"})
    assert await limited.restore(manifest, blobs.get) == ["fits"]
    assert (root / "big").read_text() == "small now"


async def test_snapshot_reads_only_what_changed(workspace: LocalWorkspace) -> None:
    """A second snapshot of the same files keeps nothing anew; one changed file is one blob, also with the same size (C2)."""
    blobs = Blobs()
    first = await workspace.snapshot(blobs.put)
    puts = blobs.puts
    assert await workspace.snapshot(blobs.put) == first
    assert blobs.puts == puts
    before = (workspace.root / "a.txt").stat()
    (workspace.root / "a.txt").write_bytes(b"9\n")
    os.utime(workspace.root / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    second = await workspace.snapshot(blobs.put)
    assert blobs.puts == puts + 1
    assert {path for path in second["files"] if second["files"][path] != first["files"][path]} == {"a.txt"}


async def test_snapshot_keeps_many_files_in_few_blobs(workspace: LocalWorkspace) -> None:
    """Small files share a blob, equal ones their place in it, and a damaged one is noticed and not restored (B41, C16)."""
    blobs = Blobs()
    write_tree(workspace.root, {f"f{number}": f"{number % 100}" * 1000 for number in range(1500)} | {"empty": ""})
    before = read_tree(workspace.root)
    manifest = await workspace.snapshot(blobs.put)
    assert blobs.puts <= 5
    for number in range(1500):
        (workspace.root / f"f{number}").unlink()
    await workspace.restore(manifest, blobs.get)
    assert read_tree(workspace.root) == before
    (workspace.root / "f1").unlink()
    for digest in manifest["packs"]:
        blobs.kept[digest] = blobs.kept[digest].replace(b"1" * 1000, b"7" * 1000)
    with pytest.raises(WorkspaceError, match="damaged"):
        await workspace.restore(manifest, blobs.get)
    assert not (workspace.root / "f1").exists()


async def test_snapshot_sees_a_change_within_one_tick_of_the_clock(tmp_path: Path) -> None:
    """Files changed just before a snapshot are read again by the next: times that fresh prove nothing (B41)."""
    provision, blobs = WorkspaceProvision(tmp_path / "w"), Blobs()
    workspace = await provision.private("s1")
    path = workspace.root / "f"
    path.write_bytes(b"1")
    status = path.stat()
    for number in range(2, 30):
        await workspace.snapshot(blobs.put)
        path.write_bytes(bytes([number]))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        manifest = await workspace.snapshot(blobs.put)
        state = Manifest.from_json(manifest).files["f"]
        assert await Contents(Manifest.from_json(manifest), blobs.get).of(state) == bytes([number])


async def test_snapshot_of_a_plain_directory_leaves_out_heavy_folders(provision: WorkspaceProvision) -> None:
    """Without version control everything counts but what programs fill again; a repository inside follows its own rules (B41)."""
    workspace, blobs = await provision.private("s1"), Blobs()
    make_repository(workspace.root / "clone", {".gitignore": "out/\n", "main.py": "m", "node_modules/tracked": "t"})
    write_tree(
        workspace.root,
        {"node_modules/x": "", "a/.venv/y": "", "a/b": "b", "clone/out/o": "", "__pycache__/z": "", ".hidden": "h"},
    )
    (workspace.root / "a/loop").symlink_to("..")
    os.mkfifo(workspace.root / "pipe")
    manifest = await workspace.snapshot(blobs.put)
    assert sorted(manifest["files"]) == [
        ".hidden",
        "a/b",
        "clone/.gitignore",
        "clone/main.py",
        "clone/node_modules/tracked",
    ]
    assert manifest["links"] == {"a/loop": ".."}
    assert manifest["left_out"] == {"pipe": "special"}


async def test_snapshot_of_a_private_workspace_ignores_the_repository_around_it(tmp_path: Path) -> None:
    """Where the workspaces lie in an ignored folder of some repository, their files count all the same (B41)."""
    make_repository(tmp_path / "outer", {".gitignore": "workspaces/\n"})
    workspace = await WorkspaceProvision(tmp_path / "outer/workspaces").private("s1")
    write_tree(workspace.root, {"f": "1"})
    assert sorted((await workspace.snapshot(Blobs().put))["files"]) == ["f"]
    chosen = await WorkspaceProvision(tmp_path / "w").directory("s2", path=workspace.root)
    assert sorted((await chosen.snapshot(Blobs().put))["files"]) == ["f"]


async def test_snapshot_works_without_git(tmp_path: Path) -> None:
    """Where there is no git program, all files but heavy folders are taken (B41)."""
    make_repository(tmp_path / "p", {"a": "1", ".gitignore": "b\n"})
    write_tree(tmp_path / "p", {"b": "2", "node_modules/x": ""})
    workspace = await WorkspaceProvision(tmp_path / "w", git=GitProgram({"PATH": ""})).directory(
        "s", path=tmp_path / "p"
    )
    assert sorted((await workspace.snapshot(Blobs().put))["files"]) == [".gitignore", "a", "b"]
    assert await workspace.state() == "present"


async def test_snapshot_keeps_names_that_are_no_text(workspace: LocalWorkspace) -> None:
    """A name with bytes that are no UTF-8, a line end or a quote comes back as it was (B41)."""
    blobs = Blobs()
    names = [b"caf\xe9", b"line\nend", b'quo"te', "\u65e5\u672c".encode()]
    for name in names:
        (workspace.root / os.fsdecode(name)).write_bytes(name)
    manifest = await workspace.snapshot(blobs.put)
    for name in names:
        (workspace.root / os.fsdecode(name)).unlink()
    await workspace.restore(manifest, blobs.get)
    assert set(os.listdir(os.fsencode(workspace.root))) >= set(names)


async def test_snapshot_takes_only_so_many_files_and_restoring_then_removes_none(tmp_path: Path) -> None:
    """A tree over the limit is cut and says so, and nothing is removed for not being in the manifest (B41)."""
    provision, blobs = WorkspaceProvision(tmp_path / "w", limits=SnapshotLimits(max_files=3)), Blobs()
    workspace = await provision.private("s1")
    write_tree(workspace.root, {f"f{number}": "x" for number in range(5)})
    manifest = await workspace.snapshot(blobs.put)
    assert manifest["is_cut"] is True
    assert len(manifest["files"]) == 3
    assert await workspace.restore(manifest, blobs.get) == []
    assert len(list(workspace.root.iterdir())) == 5


async def test_missing_workspace_is_told_and_not_made(workspace: LocalWorkspace) -> None:
    """A directory that is gone is an error of its own for every operation (B41)."""
    blobs = Blobs()
    manifest = await workspace.snapshot(blobs.put)
    shutil.rmtree(workspace.root)
    for operation in (workspace.snapshot(blobs.put), workspace.restore(manifest, blobs.get)):
        with pytest.raises(WorkspaceMissingError):
            await operation
    assert not workspace.root.exists()


async def test_restore_refuses_a_manifest_that_leads_outside(workspace: LocalWorkspace, tmp_path: Path) -> None:
    """Paths of a manifest are held beneath the root as any other, and git's internals stay closed (A19, B41)."""
    blobs = Blobs()
    digest = await blobs.put(b"evil")
    manifest = await workspace.snapshot(blobs.put)
    (workspace.root / "src2").symlink_to(tmp_path)
    git("add", "src2", cwd=workspace.root)
    evil = ["../evil", "/etc/evil", ".git/hooks/post-checkout", "src2/evil", "a/../../evil"]
    manifest["files"] |= {path: [digest, 0o755, 4] for path in evil}
    manifest["links"]["src2"] = str(tmp_path)
    with pytest.raises(RestoreError) as caught:
        await workspace.restore(manifest, blobs.get)
    assert set(caught.value.failed) == set(evil)
    assert not (tmp_path / "evil").exists()
    assert not (workspace.root / ".git/hooks/post-checkout").exists()
    with pytest.raises(WorkspaceError, match="format 2"):
        await workspace.restore({**manifest, "format": 2}, blobs.get)


async def test_diff_is_one_that_patch_understands(workspace: LocalWorkspace) -> None:
    """Changed, new and deleted files are a unified diff that git applies backwards to what was (A73)."""
    root, blobs = workspace.root, Blobs()
    write_tree(root, {"a.txt": "1\n2\n3\n", "gone.txt": "g\n", "end": "no end", "bin": b"\0a", "s p a c e": "x\n"})
    manifest = await workspace.snapshot(blobs.put)
    assert await workspace.diff(manifest, blobs.get) == ""
    before = read_tree(root)
    write_tree(root, {"a.txt": "1\ntwo\n3\n", "new.txt": "n\n", "end": "no end 2", "s p a c e": "y\n"})
    (root / "gone.txt").unlink()
    (root / "end").chmod(0o755)
    text = await workspace.diff(manifest, blobs.get)
    assert "-2\n+two\n" in text
    (root.parent / "patch").write_text(text)
    git("apply", "-R", str(root.parent / "patch"), cwd=root)
    assert read_tree(root) == before
    write_tree(root, {"bin": b"\0b"})
    assert (await workspace.diff(manifest, blobs.get)).splitlines() == [
        "diff --git a/bin b/bin",
        "Binary files a/bin and b/bin differ",
    ]


async def test_workspace_is_what_the_seam_says(workspace: LocalWorkspace) -> None:
    """A local workspace fits the port, says where it is, and closes twice (B49)."""
    seam: Workspace = workspace
    assert (seam.kind, seam.root, seam.files.root) == ("directory", workspace.root, workspace.root)
    assert seam.describe()["path"] == str(workspace.root)
    await seam.aclose()
    await seam.aclose()
