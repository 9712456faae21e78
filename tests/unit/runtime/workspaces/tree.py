"""Trees of files and repositories for tests, and blobs in memory."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kipu.errors import BlobNotFoundError
from kipu.runtime.workspaces.manifest import digest_of


class Blobs:
    """Blobs in memory, and how many were put."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.puts = 0

    async def put(self, data: bytes) -> str:
        self.puts += 1
        digest = digest_of(data)
        self.kept[digest] = data
        return digest

    async def get(self, digest: str) -> bytes:
        if digest not in self.kept:
            raise BlobNotFoundError(store="memory", session_id="s", digest=digest)
        return self.kept[digest]


def write_tree(root: Path, files: Mapping[str, str | bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)


def read_tree(root: Path) -> dict[str, tuple[str, int]]:
    """Return content and mode of every file and link, `.git` apart."""
    found: dict[str, tuple[str, int]] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        for name in [*names, *(name for name in folders if (Path(folder) / name).is_symlink())]:
            path = Path(folder) / name
            status = path.lstat()
            if name == ".git":
                continue
            text = f"-> {os.readlink(path)}" if path.is_symlink() else path.read_bytes().decode("latin-1")
            found[os.path.relpath(path, root)] = (text, stat.S_IMODE(status.st_mode))
    return found


def git(*arguments: str, cwd: Path) -> str:
    """Run git as a user does: with hooks, and with a name to commit under."""
    command = [
        "git",
        "-c",
        "user.name=Ana",
        "-c",
        "user.email=ana@example.org",
        "-c",
        "init.defaultBranch=main",
        *arguments,
    ]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


def make_repository(root: Path, files: Mapping[str, str | bytes] | None = None) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    git("init", "--quiet", cwd=root)
    write_tree(root, files or {"README.md": "hello\n"})
    git("add", "-A", cwd=root)
    git("commit", "--quiet", "-m", "first", cwd=root)
    return root
