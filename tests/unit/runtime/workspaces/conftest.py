"""A root with an outside next to it, and files beneath it by each way of opening."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from kipu.runtime.workspaces.beneath import BeneathFiles
from kipu.runtime.workspaces.opener import KernelOpener, WalkingOpener, best_opener

SECRET = b"outside, and not to be read"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty root; beside it `outside` holds a secret, and `root2` begins with the same letters."""
    for name in ("outside", "root2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret").write_bytes(SECRET)
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture(params=["kernel", "walk"])
def files(request: pytest.FixtureRequest, root: Path) -> BeneathFiles:
    """Return the files of the root, opened by `openat2` and by the walk that stands in for it."""
    if request.param == "walk":
        return BeneathFiles(root, opener=WalkingOpener())
    if not isinstance(best_opener(), KernelOpener):
        pytest.skip(f"this kernel has no openat2 ({sys.platform}, {platform.machine()})")
    return BeneathFiles(root, opener=KernelOpener())
