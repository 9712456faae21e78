"""Commands of a Kipu that is not root's, tried as nobody where this run is root's."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.runtime.shell_session import KINDS, SRC, alive, new_token

NOBODY = 65534
SYSTEM_PYTHON = Path("/usr/bin/python3")
SCRIPT = """
import asyncio, json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kipu.ports.principal import Principal
from kipu.ports.tool import ToolContext
from kipu.runtime.sandbox.limits import CommandLimits
from kipu.runtime.sandbox.opening import open_sandbox
from kipu.runtime.sandbox.probe import probe_bubblewrap
from kipu.runtime.tools.shell_tools import shell_tools

async def main():
    root, kind, told = Path(sys.argv[2]), sys.argv[3], {}
    probe = await probe_bubblewrap()
    sandbox = await open_sandbox(root, session_id="s", probe=probe, choice="auto" if kind == "bubblewrap" else "off")
    tools = shell_tools(root, sandbox, limits=CommandLimits(processes=40, grace_s=0.2))
    context = ToolContext(session_id="s", turn_id="t", call_id="c", principal=Principal.local())
    told["in_force"], told["reason"] = sandbox.report.is_in_force, probe.reason
    for name, command, timeout_s in json.loads(sys.argv[4]):
        result = await tools.shell.run({"command": command, "timeout_s": timeout_s}, context)
        told[name] = [result.content, result.error_info]
    await tools.aclose()
    print(json.dumps(told))

asyncio.run(main())
"""


@pytest.fixture
def open_workspace() -> Iterator[Path]:
    """Give a directory that nobody owns, on a way that is open to all."""
    with tempfile.TemporaryDirectory(prefix="kipu-open-") as name:
        place = Path(name)
        place.chmod(0o755)
        root = place / "w"
        root.mkdir()
        os.chown(root, NOBODY, NOBODY)
        yield root


@pytest.mark.parametrize("kind", KINDS)
def test_commands_of_an_unprivileged_kipu_are_held_too(open_workspace: Path, kind: str) -> None:
    """Without root's rights the same holds: files are the user's, a bomb and a detached process end, secrets stay (B49)."""
    if os.geteuid() != 0:
        pytest.skip("this run is not root's: all other tests are this one")
    if not SYSTEM_PYTHON.exists() or not os.access(SRC, os.R_OK):
        pytest.skip("no Python that nobody can run")
    token = new_token()
    commands = [
        ("made", "echo made > f; id -u; cat f", 20),
        ("shadow", "cat /etc/shadow", 20),
        ("bomb", "b() { b | b & b | b & sleep 60; }; b", 1),
        ("detached", f"(setsid nohup sleep {token} >/dev/null 2>&1 &); (trap '' TERM; sleep {token}); true", 0.5),
        ("supervisor", f"(setsid sleep {token} &); sleep 0.05; kill -9 $PPID; sleep {token}", 1),
        ("well", "echo well", 20),
    ]
    run = subprocess.run(
        [str(SYSTEM_PYTHON), "-B", "-c", SCRIPT, str(SRC), str(open_workspace), kind, json.dumps(commands)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert not alive(token)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    if kind == "bubblewrap" and not told["in_force"]:
        pytest.skip(told["reason"])
    assert told["made"][0].endswith(f"\n\n{NOBODY}\nmade\n")
    assert (open_workspace / "f").stat().st_uid == NOBODY
    assert told["shadow"][1] == "exit_code"
    assert "Resource temporarily unavailable" in told["bomb"][0] or told["bomb"][1] == "processes"
    assert told["detached"][1] == "timeout"
    assert told["well"][0].endswith("well\n")
