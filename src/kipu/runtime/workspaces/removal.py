"""Remove the directory of a session with all that is in it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def remove_tree(folder: Path) -> None:
    """Remove a folder, also one that a sandboxed command made unwritable. A link in its place is removed, never followed."""
    if folder.is_symlink():
        folder.unlink()
        return

    def allow(function: Any, path: str, _error: Any) -> None:
        Path(path).parent.chmod(0o700)
        function(path)

    if folder.is_dir():
        shutil.rmtree(folder, onerror=allow)
