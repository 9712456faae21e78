"""Whatever a command starts ends with it, with the session, and with Kipu."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kipu.runtime.sandbox.limits import CommandLimits
from tests.acceptance.runtime.shell_session import (
    KINDS,
    SRC,
    alive,
    appears,
    new_token,
    open_shell,
    output_of,
)

pytestmark = pytest.mark.parametrize("kind", KINDS)
QUICK = CommandLimits(grace_s=0.2)
# What leaves its group, its session, its parent and its terminal, and what does not listen.
ESCAPES = [
    "setsid sleep {token} &",
    "nohup sleep {token} >/dev/null 2>&1 &",
    "(setsid sh -c '(sleep {token} &) ; exec sleep {token}' >/dev/null 2>&1 &)",
    "(trap '' TERM HUP INT; setsid nohup sh -c 'sleep {token} & sleep {token}; true' <&- >&- 2>&- &)",
    """python3 -c 'import os; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); os.closerange(0, 3)
os.execvpe("sleep", ["sleep", "{token}"], {{}})' &""",
]
LIVE = """
import asyncio, sys
from pathlib import Path
from tests.acceptance.runtime.shell_session import open_shell
async def main():
    async with open_shell(Path(sys.argv[1]), sys.argv[2]) as session:
        await session.background(sys.argv[3])
        running = asyncio.create_task(session.shell(sys.argv[3]))
        while "".join(session.live).count("up\\n") < 2:
            await asyncio.sleep(0.01)
        print("ready", flush=True)
        await running
asyncio.run(main())
"""


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("end", ["itself", "timeout", "cancel", "close"])
async def test_command_leaves_no_process_behind(tmp_path: Path, kind: str, escape: str, end: str) -> None:
    """Detached, orphaned and deaf processes end with the command, whichever way it ends (B49)."""
    token = new_token()
    async with open_shell(tmp_path / "w", kind, limits=QUICK) as session:
        command = escape.format(token=token)
        if end == "itself":
            await session.shell(f"{command}\nsleep 0.1; echo done")
        elif end == "timeout":
            assert (await session.shell(f"{command}\nsleep {token}", timeout_s=0.4)).error_info == "timeout"
        elif end == "cancel":
            running = asyncio.create_task(session.shell(f"{command}\nsleep {token}"))
            await appears(lambda: len(alive(token)) >= 2)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            await session.background(f"{command}\nsleep {token}")
            await session.tools.aclose()
        assert not alive(token)


@pytest.mark.parametrize("target", ["0", "-- -$PPID", "-- -$$", "$PPID", "-- -$(ps -o pgid= -p $PPID)"])
async def test_command_that_kills_its_group_harms_nobody(tmp_path: Path, kind: str, target: str) -> None:
    """A command that kills its own or its parent's process group ends itself only, and leaves nothing (B49)."""
    token = new_token()
    async with open_shell(tmp_path / "w", kind, limits=QUICK) as session:
        other = await session.background("echo up; exec sleep 60")
        await session.shell(
            f"(setsid sleep {token} &) ; sleep 0.05; kill -9 {target}; kill -TERM {target}", timeout_s=2
        )
        assert not alive(token)
        assert "runs since" in await session.output(other)
        assert await session.text("echo well") == "well\n"


async def test_cancelled_command_ends_whole_however_often_it_is_cancelled(tmp_path: Path, kind: str) -> None:
    """The caller gets its cancellation only when every process has ended, also when it is cancelled again and again (B49)."""
    token = new_token()
    async with open_shell(tmp_path / "w", kind, limits=CommandLimits(grace_s=0.5)) as session:
        running = asyncio.create_task(session.shell(f"trap '' TERM; sleep {token} & sleep {token}; sleep {token}"))
        await appears(lambda: len(alive(token)) >= 2)
        while not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=0.05)
        assert running.cancelled()
        assert not alive(token)


async def test_command_cancelled_while_it_starts_leaves_nothing(tmp_path: Path, kind: str) -> None:
    """A cancellation at any moment of the start leaves no process and no open descriptor (B49)."""
    async with open_shell(tmp_path / "w", kind, limits=CommandLimits(grace_s=0)) as session:
        await session.text("true")
        before = len(os.listdir("/proc/self/fd"))
        token = new_token()
        for step in range(25):
            running = asyncio.create_task(session.shell(f"sleep {token}"))
            for _ in range(step):
                await asyncio.sleep(0)
            if step % 5 == 4:
                await asyncio.wait([running], timeout=step / 1000)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert not alive(token), step
        await appears(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_background_process_is_read_listed_and_ended(tmp_path: Path, kind: str) -> None:
    """A background process has an id at once, its output is read on from any offset, and it ends by its id (B49)."""
    token = new_token()
    async with open_shell(tmp_path / "w", kind, limits=QUICK) as session:
        started = await session.shell(
            f"echo first; read_it() {{ while [ ! -e go ]; do sleep 0.02; done; }}; read_it; echo second; sleep {token}",
            background=True,
            description="a server",
        )
        assert str(started.content).startswith("process p1 runs in the background")
        assert output_of(started) == "first\n"
        assert "(nothing new)" in await session.output("p1")
        (session.root / "go").touch()
        assert (await session.output("p1", wait_s=20)).endswith("output from 6 to 13\n\nsecond\n")
        assert (await session.output("p1", offset=3)).endswith("from 3 to 13\n\nst\nsecond\n")
        listed = await session.tools.list.run({}, session.context())
        assert "process p1 runs since" in str(listed.content)
        assert "a server: echo first" in str(listed.content)
        killed = await session.tools.kill.run({"process_id": "p1"}, session.context())
        assert "ended by process_kill" in str(killed.content)
        assert not alive(token)
        assert "has ended with exit code" in await session.output("p1")
        unknown = await session.tools.kill.run({"process_id": "p9"}, session.context())
        assert (unknown.is_error, unknown.error_info) == (True, "not_found")


async def test_background_process_that_fails_at_once_says_so(tmp_path: Path, kind: str) -> None:
    """What ends right after its start is an error with its exit code, not a process that seems to run."""
    async with open_shell(tmp_path / "w", kind) as session:
        result = await session.shell("echo no such server >&2; exit 7", background=True)
        assert (result.is_error, result.error_info) == (True, "exit_code")
        assert "has ended with exit code 7" in str(result.content)
        assert output_of(result) == "no such server\n"


async def test_commands_die_with_kipu(tmp_path: Path, kind: str) -> None:
    """When Kipu is killed, commands in the foreground and in the background end, with all that they detached (B49)."""
    token = new_token()
    command = f"echo up; (setsid nohup sleep {token} >/dev/null 2>&1 &); sleep {token}"
    with subprocess.Popen(
        [sys.executable, "-c", LIVE, str(tmp_path / "w"), kind, command],
        stdout=subprocess.PIPE,
        cwd=SRC.parent,
        env={**os.environ, "PYTHONPATH": f"{SRC}:{SRC.parent}"},
    ) as kipu:
        assert kipu.stdout is not None
        line = await asyncio.to_thread(kipu.stdout.readline)
        if line != b"ready\n":
            pytest.skip("it could not start")
        others = {kipu.pid}
        try:
            await appears(lambda: len(set(alive(token)) - others) >= 4)
        finally:
            kipu.send_signal(signal.SIGKILL)
            kipu.wait()
    # The kernel and the supervisors do it, a moment later.
    await appears(lambda: not alive(token))


async def test_temporary_files_are_made_while_others_clear_away(tmp_path: Path, kind: str) -> None:
    """Whoever makes a directory for a session gets one and keeps it, however many look for abandoned ones at that moment (B49)."""
    from kipu.runtime.sandbox.scratch import Scratch

    del kind

    def make_often() -> None:
        for _ in range(40):
            scratch = Scratch(tmp_path)
            assert scratch.path.is_dir()
            scratch.close()

    await asyncio.gather(*(asyncio.to_thread(make_often) for _ in range(8)))
    assert not list(tmp_path.iterdir())


async def test_temporary_files_of_a_killed_kipu_are_removed_by_the_next(tmp_path: Path, kind: str) -> None:
    """What a crash left of a session, files and processes, goes when the next session opens; what is in use stays (B49)."""
    from kipu.runtime.sandbox.scratch import Scratch

    del kind
    script = "import os, sys; from pathlib import Path; from kipu.runtime.sandbox.scratch import Scratch; "
    script += "kept = Scratch(Path(sys.argv[1])); os._exit(0)"
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], check=True, env={**os.environ, "PYTHONPATH": str(SRC)}
    )
    (abandoned,) = tmp_path.iterdir()
    left = subprocess.Popen(["sleep", "1000"], env={"PATH": "/usr/bin:/bin", "KIPU_SCRATCH": str(abandoned)})
    while b"KIPU_SCRATCH" not in Path(f"/proc/{left.pid}/environ").read_bytes():  # noqa: ASYNC110 - it is begun, and not yet told so
        await asyncio.sleep(0.001)
    first = Scratch(tmp_path)
    assert left.wait(60) == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == [first.path]
    second = Scratch(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([first.path, second.path])
    first.close()
    first.close()
    second.close()
    assert not list(tmp_path.iterdir())
