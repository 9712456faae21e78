"""Kinds of workspaces: made, opened again, found where they were moved, brought back, removed."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from kipu.errors import ConfigurationError, GitError, InvalidSessionIdError, PathDeniedError, WorkspaceError
from kipu.ports.head import Head
from kipu.runtime.workspaces.git import GitProgram
from kipu.runtime.workspaces.provision import WorkspaceProvision
from kipu.runtime.workspaces.record import WorkspaceRecord, sharing
from tests.unit.runtime.workspaces.tree import git, make_repository, write_tree


@pytest.fixture
def provision(tmp_path: Path) -> WorkspaceProvision:
    return WorkspaceProvision(tmp_path / "base" / "workspaces")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", {"a.txt": "1\n", "sub/b.txt": "2\n"})


async def test_private_workspaces_are_apart_and_closed_to_others(provision: WorkspaceProvision) -> None:
    """Each session has a directory of its own that only its owner reads; made twice it is the same (B41)."""
    first, second = await provision.private("s1"), await provision.private("s2")
    first.files.write("f", b"of s1")
    assert list(second.root.iterdir()) == []
    with pytest.raises(WorkspaceError):
        second.files.read("../s1/f")
    with pytest.raises(WorkspaceError):
        second.files.read(str(first.root / "f"))
    assert (await provision.private("s1")).files.read("f") == b"of s1"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (first.root, provision.base, provision.base.parent)} == {
        0o700
    }
    assert await first.state() == "present"


@pytest.mark.parametrize("session_id", ["../x", "", "a/b", "con", "A"])
async def test_workspace_is_never_named_by_what_is_no_session_id(
    provision: WorkspaceProvision, repository: Path, session_id: str
) -> None:
    """An id that is none makes no directory and no branch (A21)."""
    with pytest.raises(InvalidSessionIdError):
        await provision.private(session_id)
    with pytest.raises(InvalidSessionIdError):
        await provision.worktree(session_id, repository=repository)
    assert not provision.base.exists()


async def test_worktree_is_on_a_branch_named_after_the_session(provision: WorkspaceProvision, repository: Path) -> None:
    """A worktree begins at the repository's HEAD on kipu/<session id>; the repository's own files stay as they were (B41)."""
    workspace = await provision.worktree("s1", repository=repository / "sub")
    assert git("branch", "--show-current", cwd=workspace.root) == "kipu/s1"
    assert git("rev-parse", "HEAD", cwd=workspace.root) == git("rev-parse", "HEAD", cwd=repository)
    workspace.files.write("a.txt", b"changed")
    assert (repository / "a.txt").read_text() == "1\n"
    assert await workspace.state() == "dirty"
    record = workspace.record
    assert (record.branch, record.repository, record.git_dir) == ("kipu/s1", str(repository), str(repository / ".git"))
    with pytest.raises(PathDeniedError):
        workspace.files.write(".git", b"gitdir: /elsewhere")


async def test_worktree_removal_keeps_a_branch_with_commits(provision: WorkspaceProvision, repository: Path) -> None:
    """Removing refuses to lose uncommitted work, keeps what was committed, and leaves no empty branch behind (B46)."""
    kept, empty = (
        await provision.worktree("kept", repository=repository),
        await provision.worktree("empty", repository=repository),
    )
    kept.files.write("new.txt", b"work")
    with pytest.raises(GitError):
        await provision.remove(kept)
    assert kept.files.read("new.txt") == b"work"
    git("add", "-A", cwd=kept.root)
    git("commit", "-q", "-m", "work", cwd=kept.root)
    removed, removed_empty = await provision.remove(kept), await provision.remove(empty)
    assert (removed.is_removed, removed.kept_branch) == (True, "kipu/kept")
    assert (removed_empty.is_removed, removed_empty.kept_branch) == (True, None)
    assert git("branch", "--list", "kipu/*", cwd=repository) == "kipu/kept"
    assert list(provision.base.iterdir()) == []
    again = await provision.worktree("kept", repository=repository)
    assert again.files.read("new.txt") == b"work"


async def test_deleted_worktree_is_missing_and_can_be_brought_back(
    provision: WorkspaceProvision, repository: Path
) -> None:
    """A worktree that somebody deleted is a state, and comes back as its branch was committed (situation 49)."""
    workspace = await provision.worktree("s1", repository=repository)
    workspace.files.write("done.txt", b"done")
    git("add", "-A", cwd=workspace.root)
    git("commit", "-q", "-m", "done", cwd=workspace.root)
    shutil.rmtree(workspace.root)
    opened = await provision.open(workspace.describe())
    assert await opened.state() == "missing"
    back = await provision.bring_back(opened.describe())
    assert await back.state() == "present"
    assert back.files.read("done.txt") == b"done"
    shutil.rmtree(back.root)
    shutil.rmtree(repository)
    with pytest.raises(GitError, match="gone too"):
        await provision.bring_back(back.record)


async def test_moved_worktree_is_found_by_git_and_by_its_identity(
    provision: WorkspaceProvision, repository: Path, tmp_path: Path
) -> None:
    """A worktree moved by git, or renamed by hand, is found where it is, and its new record says so (situation 48)."""
    workspace = await provision.worktree("s1", repository=repository)
    (tmp_path / "far/away").mkdir(parents=True)
    git("worktree", "move", str(workspace.root), str(tmp_path / "far/away/s1"), cwd=repository)
    moved = await provision.open(workspace.describe())
    assert (await moved.state(), moved.root) == ("moved", tmp_path / "far/away/s1")
    settled = await provision.open(moved.describe())
    assert await settled.state() == "present"
    settled.root.rename(tmp_path / "far/away/by-hand")
    assert (await provision.open(settled.describe())).root == tmp_path / "far/away/by-hand"


async def test_moved_directory_is_found_near_and_never_mistaken(provision: WorkspaceProvision, tmp_path: Path) -> None:
    """A renamed directory is known again; another one made in its place or with its old inode is not taken for it (B41)."""
    home = tmp_path / "home"
    (home / "projects/mine").mkdir(parents=True)
    workspace = await provision.directory("s1", path=home / "projects/mine")
    if workspace.record.identity is None or not workspace.record.identity.born_ns:
        pytest.skip("this file system does not say when a directory was made")
    places = [home / "projects/renamed", home / "mine", home / "projects/other/mine"]
    (home / "projects/other").mkdir()
    record = workspace.describe()
    here = home / "projects/mine"
    for place in places:
        here.rename(place)
        found = await provision.open(record)
        assert (await found.state(), found.root) == ("moved", place)
        here = place
    shutil.rmtree(here)
    for number in range(20):  # one of these gets the inode that became free
        (home / f"projects/fresh{number}").mkdir()
    gone = await provision.open(record)
    assert await gone.state() == "missing"
    assert gone.describe() == record
    with pytest.raises(WorkspaceError):
        gone.files.read("x")


async def test_chosen_directory_is_left_as_it_is(provision: WorkspaceProvision, tmp_path: Path) -> None:
    """Nothing is written into a chosen directory, and removing the session's workspace removes nothing of it (B41, B46)."""
    chosen = tmp_path / "mine"
    chosen.mkdir()
    write_tree(chosen, {"f": "1"})
    workspace = await provision.directory("s1", path=chosen)
    assert await workspace.state() == "present"
    assert (await provision.remove(workspace, force=True)).is_removed is False
    assert [path.name for path in chosen.iterdir()] == ["f"]
    for path, told in ((chosen / "f", "not a directory"), (chosen / "none", "no such directory")):
        with pytest.raises(WorkspaceError, match=told):
            await provision.directory("s1", path=path)


async def test_private_workspace_is_removed_and_what_links_lead_to_is_not(
    provision: WorkspaceProvision, tmp_path: Path
) -> None:
    """Removing follows no link out of the directory (B46, B41)."""
    write_tree(tmp_path / "outside", {"f": "1"})
    workspace = await provision.private("s1")
    (workspace.root / "link").symlink_to(tmp_path / "outside")
    assert (await provision.remove(workspace)).is_removed
    assert not workspace.root.exists()
    assert (tmp_path / "outside/f").exists()
    assert await workspace.state() == "missing"
    assert (await provision.remove(workspace)).is_removed is False


@pytest.mark.parametrize("prepare", ["no repository", "no commit", "no git"])
async def test_worktree_that_cannot_be_made_says_why(
    provision: WorkspaceProvision, tmp_path: Path, prepare: str
) -> None:
    """Without a repository, a commit or git there is a clear error and no directory left behind (B41)."""
    place = tmp_path / "place"
    place.mkdir()
    if prepare == "no commit":
        git("init", "--quiet", cwd=place)
    if prepare == "no git":
        provision = WorkspaceProvision(provision.base, git=GitProgram({"PATH": "/nowhere"}))
    told = {"no repository": "not a git repository", "no commit": "no commit yet", "no git": "there is no git program"}
    with pytest.raises(GitError, match=told[prepare]):
        await provision.worktree("s1", repository=place)
    assert not provision.base.exists()


async def test_sessions_that_share_a_directory_are_named(provision: WorkspaceProvision, tmp_path: Path) -> None:
    """The same directory, one inside it and one around it are told, by path and by identity; others are not (B41)."""
    (tmp_path / "p/inner").mkdir(parents=True)
    (tmp_path / "p2").mkdir()
    mine = await provision.directory("s1", path=tmp_path / "p")
    others = {"same": tmp_path / "p", "inside": tmp_path / "p/inner", "around": tmp_path, "beside": tmp_path / "p2"}
    heads = [Head("s1", workspace=mine.describe()), Head("none"), Head("odd", workspace={"path": 3})]
    for name, path in others.items():
        heads.append(
            Head(name, title=f"title of {name}", workspace=(await provision.directory(name, path=path)).describe())
        )
    moved = {**mine.describe(), "path": "/somewhere/else", "session_id": "moved"}
    heads.append(Head("moved", workspace=moved))
    shared = {each.session_id: each.relation for each in sharing(mine.record, heads, session_id="s1")}
    assert shared == {"same": "same", "inside": "inside", "around": "around", "moved": "same"}
    assert sharing(mine.record, heads, session_id="s1")[0].title == "title of same"


async def test_record_comes_back_from_its_head(provision: WorkspaceProvision, repository: Path) -> None:
    """A record survives JSON whole, takes names of newer versions, and refuses what it cannot read (B9)."""
    record = (await provision.worktree("s1", repository=repository)).record
    assert WorkspaceRecord.from_json({**record.to_json(), "newer": 1}) == record
    assert WorkspaceRecord.from_json({"path": "/w"}).kind == "directory"
    for odd in ({}, {"path": "relative"}, {"path": "/w", "kind": "cloud"}):
        with pytest.raises(WorkspaceError):
            WorkspaceRecord.from_json(odd)


async def test_own_store_inside_a_workspace_is_closed(tmp_path: Path) -> None:
    """Where Kipu's store lies in a chosen directory, a session neither reads nor writes it there (A20)."""
    project = tmp_path / "p"
    write_tree(project, {"data/sessions.db": "events", "data/sessions.db-wal": "more", "f": "1"})
    provision = WorkspaceProvision(tmp_path / "w", own_places=(project / "data/sessions.db",))
    workspace = await provision.directory("s1", path=project)
    for path in ("data/sessions.db", "data/sessions.db-wal"):
        with pytest.raises(PathDeniedError):
            workspace.files.read(path)
        with pytest.raises(PathDeniedError):
            workspace.files.write(path, b"")
    assert workspace.files.read("f") == b"1"
    with pytest.raises(ConfigurationError):
        await WorkspaceProvision(tmp_path / "w", own_places=(project,)).directory("s1", path=project)


async def test_chosen_directory_around_the_workspaces_does_not_show_them(tmp_path: Path) -> None:
    """A session that works in somebody's home does not see the other sessions' directories in it (B41)."""
    provision = WorkspaceProvision(tmp_path / "home/.kipu/workspaces")
    other = await provision.private("other")
    other.files.write("f", b"of another session")
    chosen = await provision.directory("s1", path=tmp_path / "home")
    with pytest.raises(PathDeniedError):
        chosen.files.read(".kipu/workspaces/other/f")
    with pytest.raises(PathDeniedError):
        chosen.files.list(".kipu/workspaces")
    assert other.files.read("f") == b"of another session"


async def test_fork_of_a_worktree_begins_at_its_parents_last_commit(
    provision: WorkspaceProvision, repository: Path
) -> None:
    """A fork works on a branch and in a directory of its own, made from what its parent committed (B41)."""
    parent = await provision.worktree("parent", repository=repository)
    parent.files.write("a.txt", b"committed")
    git("commit", "-qam", "work", cwd=parent.root)
    parent.files.write("a.txt", b"not committed")
    child = await provision.for_fork(parent.describe(), "child")
    assert child.files.read("a.txt") == b"committed"
    assert (child.record.branch, child.record.session_id) == ("kipu/child", "child")
    child.files.write("a.txt", b"of the child")
    assert parent.files.read("a.txt") == b"not committed"
    assert (await provision.for_fork((await provision.private("p")).record, "c")).root == provision.base / "c"
    shared = await provision.for_fork((await provision.directory("d", path=repository)).record, "e")
    assert (shared.root, shared.record.session_id) == (repository, "e")
