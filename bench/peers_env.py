"""Make `.venv-bench`, the peers' own environment, from requirements/bench.lock; nothing of it enters Kipu's lock.

python -m bench.peers_env
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "bench.lock"
HOME = ROOT / ".venv-bench"
STAMP = HOME / ".made-from"


def ensure() -> Path:
    """Return the environment's interpreter, building it when the lock changed; say so on stderr."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    python = HOME / "bin" / "python"
    if STAMP.exists() and STAMP.read_text() == digest and python.exists():
        return python
    print("Setting up .venv-bench with the peers (about a minute) ...", file=sys.stderr)
    venv.create(HOME, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True, stdout=sys.stderr)
    STAMP.write_text(digest)
    return python


if __name__ == "__main__":
    print(ensure())
