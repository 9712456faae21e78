"""git runs nothing that a repository asks for, asks nobody, and ends in time."""

from __future__ import annotations

import os
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kipu.errors import GitError
from kipu.runtime.workspaces.git import GitProgram
from kipu.runtime.workspaces.opener import held
from kipu.runtime.workspaces.provision import WorkspaceProvision
from tests.unit.runtime.workspaces.tree import Blobs, git, make_repository, write_tree

HOOKS = ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "fsmonitor-watchman")


def _trap(repository: Path, mark: Path) -> None:
    """Let a repository run a program at every occasion that git offers."""
    program = mark.parent / "program"
    program.write_text(f"#!/bin/sh\necho ran >> '{mark}'\ncat\n")
    program.chmod(0o755)
    hooks = repository / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in HOOKS:
        (hooks / name).write_bytes(program.read_bytes())
        (hooks / name).chmod(0o755)
    settings = {
        "core.fsmonitor": str(program),
        "core.pager": str(program),
        "core.editor": str(program),
        "core.sshCommand": str(program),
        "diff.external": str(program),
        "filter.trap.clean": str(program),
        "filter.trap.process": str(program),
        "filter.trap.required": "true",
    }
    for name, value in settings.items():
        git("config", name, value, cwd=repository)
    write_tree(repository, {".gitattributes": "*.txt filter=trap\n"})


async def test_repository_runs_no_program_of_its_own(tmp_path: Path) -> None:
    """Hooks, monitors, pagers and filters that a session wrote into a repository do not run on our account (A19)."""
    repository = make_repository(tmp_path / "p", {"a.txt": "1\n"})
    mark = tmp_path / "ran"
    _trap(repository, mark)
    workspace = await WorkspaceProvision(tmp_path / "w").directory("s1", path=repository)
    write_tree(repository, {"a.txt": "22\n"})
    assert await workspace.state() == "dirty"
    blobs = Blobs()
    manifest = await workspace.snapshot(blobs.put)
    await workspace.diff(manifest, blobs.get)
    await workspace.restore(manifest, blobs.get)
    assert not mark.exists()
    with suppress(subprocess.CalledProcessError):  # the trap is a poor filter
        git("add", "a.txt", cwd=repository)
    assert mark.exists(), "the traps do not work, so this test proves nothing"


async def test_worktree_runs_no_hook(tmp_path: Path) -> None:
    """Making a worktree does not run the repository's checkout hook (A19)."""
    repository = make_repository(tmp_path / "p")
    hook = repository / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
    hook.chmod(0o755)
    await WorkspaceProvision(tmp_path / "w").worktree("s1", repository=repository)
    assert not (tmp_path / "ran").exists()


async def test_worktree_runs_the_users_filters_and_not_the_repositorys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter in the user's own settings works in a worktree; one that the repository's settings name does not run (A19)."""
    monkeypatch.setenv("HOME", str(tmp_path))
    repository = make_repository(tmp_path / "p", {"a.up": "text\n", "b.evil": "text\n"})
    write_tree(repository, {".gitattributes": "*.up filter=up\n*.evil filter=evil\n"})
    git("add", "-A", cwd=repository)
    git("commit", "-qm", "attributes", cwd=repository)
    git("config", "--global", "filter.up.smudge", "tr a-z A-Z", cwd=repository)
    git("config", "--global", "filter.up.clean", "tr A-Z a-z", cwd=repository)
    for name in ("up", "evil"):
        git("config", f"filter.{name}.smudge", f"touch '{tmp_path}/ran'; cat", cwd=repository)
    workspace = await WorkspaceProvision(tmp_path / "w").worktree("s1", repository=repository)
    assert workspace.files.read("a.up") == b"TEXT\n"
    assert workspace.files.read("b.evil") == b"text\n"
    assert await workspace.state() == "present"
    workspace.files.write("a.up", b"other")
    assert await workspace.state() == "dirty"
    await WorkspaceProvision(tmp_path / "w").remove(workspace, force=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_repository_of_another_user_follows_its_own_rules(tmp_path: Path) -> None:
    """Where commands run as another user than Kipu, ignore rules of what they cloned still count (B41)."""
    repository = make_repository(tmp_path / "p", {".gitignore": "out\n", "a": "1"})
    write_tree(repository, {"out": "x"})
    for path in [repository, *repository.rglob("*")]:
        os.chown(path, 12345, 12345)
    workspace = await WorkspaceProvision(tmp_path / "w").directory("s1", path=repository)
    assert sorted((await workspace.snapshot(Blobs().put))["files"]) == [".gitignore", "a"]
    workspace.files.write("a", b"2")
    assert (repository / "a").stat().st_uid == 12345


def _ends(pid: int) -> bool:
    """Return True when the process has ended, or ends while this waits."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with held(process):
        return bool(select.select([process], [], [], 30)[0])


def test_git_is_ended_when_it_takes_too_long(tmp_path: Path) -> None:
    """A git that hangs is ended with all it started, and the error says how long it had (B49)."""
    make_repository(tmp_path)
    mark = tmp_path / "pid"
    began = time.monotonic()
    for timeout_s in (0.5, 5.5, 50.5):  # a machine on which it does not even begin in its time gives it more
        with pytest.raises(GitError, match=f"did not end within {timeout_s} s"):
            GitProgram(timeout_s=timeout_s).run(
                "-c", f"alias.hang=!echo $$ > '{mark}'; sleep 600", "hang", cwd=tmp_path
            )
        if mark.exists() and mark.read_text():
            break
    assert time.monotonic() - began < 300
    assert _ends(int(mark.read_text()))


def test_git_sees_nothing_of_the_environment_that_points_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIT_DIR and its like, set by whoever started Kipu, do not lead to another repository (B41)."""
    first, second = make_repository(tmp_path / "one"), make_repository(tmp_path / "two")
    monkeypatch.setenv("GIT_DIR", str(first / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(first))
    assert GitProgram().text("rev-parse", "--show-toplevel", cwd=second) == str(second)


def test_git_failure_says_what_git_said(tmp_path: Path) -> None:
    """A command that fails is an error with git's own words and the place (B41)."""
    with pytest.raises(GitError, match="not a git repository") as caught:
        GitProgram().text("rev-parse", "HEAD", cwd=tmp_path)
    assert caught.value.root == str(tmp_path)
    with pytest.raises(GitError, match="No such file"):
        GitProgram().text("version", cwd=tmp_path / "missing")
