"""Commands that use too much end with a clear result, and take nothing with them."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from kipu.runtime.sandbox.limits import MIB, CommandLimits
from tests.acceptance.runtime.shell_session import KINDS, alive, new_token, open_shell, output_of

pytestmark = pytest.mark.parametrize("kind", KINDS)
HOG = "python3 -c 'b = bytearray({size}); print(len(b))'"
HOLD = "python3 -c 'import time; b = b\"x\" * {size}; time.sleep({token})'"
UNNAMED = "python3 -c 'import os, time; f = {open}; [os.write(f, b\"x\" * 1000000) for _ in range({count})]; time.sleep({token})'"
TIMES_S = (0.5, 5.0, 50.0)  # a machine on which a command does not even begin in its time gives it more


async def test_command_that_hangs_ends_at_its_time(tmp_path: Path, kind: str) -> None:
    """A command over its time is ended with all it started, keeps its output, and says so (B49)."""
    token = new_token()
    async with open_shell(tmp_path / "w", kind) as session:
        output = ""
        for timeout_s in TIMES_S:
            result = await session.shell(f"echo begun; sleep {token}", timeout_s=timeout_s)
            assert (result.is_error, result.error_info) == (True, "timeout")
            assert f"time limit of {timeout_s:g} s" in str(result.content)
            if output := output_of(result):
                break
        assert output == "begun\n"
        assert not alive(token)


async def test_command_gets_a_grace_time_to_end_by_itself(tmp_path: Path, kind: str) -> None:
    """What is ended is asked first, may clean up, and is killed when it does not listen."""
    limits = CommandLimits(grace_s=60)
    async with open_shell(tmp_path / "w", kind, limits=limits) as session:
        listening = "trap 'echo cleaned > cleaned; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        for timeout_s in TIMES_S:
            result = await session.shell(listening, timeout_s=timeout_s)
            assert result.error_info == "timeout"
            if "ready" in output_of(result):
                break
        assert (session.root / "cleaned").read_text() == "cleaned\n"
    async with open_shell(tmp_path / "w", kind, limits=CommandLimits(grace_s=0.2)) as session:
        token = new_token()
        deaf = f"trap '' TERM INT HUP; (trap '' TERM; sleep {token}) & sleep {token}; sleep {token}"
        assert (await session.shell(deaf, timeout_s=0.3)).error_info == "timeout"
        assert not alive(token)


async def test_memory_of_one_process_is_bounded(tmp_path: Path, kind: str) -> None:
    """A process that wants more memory than a process may have does not get it, and says so itself."""
    limits = CommandLimits(process_memory_bytes=200 * MIB)
    async with open_shell(tmp_path / "w", kind, limits=limits) as session:
        assert await session.text(HOG.format(size=50 * MIB)) == f"{50 * MIB}\n"
        result = await session.shell(HOG.format(size=400 * MIB))
        assert result.is_error
        assert "MemoryError" in str(result.content)


async def test_memory_of_a_command_is_bounded_over_its_processes(tmp_path: Path, kind: str) -> None:
    """Processes that together hold too much memory are ended, and the result names the limit."""
    token = new_token()
    limits = CommandLimits(memory_bytes=120 * MIB)
    async with open_shell(tmp_path / "w", kind, limits=limits) as session:
        one = HOLD.format(size=50 * MIB, token=token)
        result = await session.shell(f"{one} & {one} & {one} & wait", timeout_s=60)
        assert (result.is_error, result.error_info) == (True, "memory")
        assert "more than 120 MiB of memory" in str(result.content)
        assert not alive(token)
        unnamed = UNNAMED.format(open='os.memfd_create("x")', count=200, token=token)
        assert (await session.shell(unnamed, timeout_s=60)).error_info == "memory"


async def test_fork_bomb_ends(tmp_path: Path, kind: str) -> None:
    """A fork bomb gets no more processes than a command may have, ends with its command, and leaves none (B49)."""
    limits = CommandLimits(processes=40, grace_s=0.2)
    async with open_shell(tmp_path / "w", kind, limits=limits) as session:
        report = session.tools.shell._table.sandbox.report
        if kind == "none" and os.geteuid() == 0 and not report.has_dropped_privileges:
            pytest.skip("the kernel bounds no processes of root's")
        token = new_token()
        most = 0
        running = asyncio.create_task(
            session.shell(f": {token}; b() {{ b | b & b | b & sleep 60; }}; b", timeout_s=1.5)
        )
        while not running.done():
            most = max(most, len(await asyncio.to_thread(alive, token)))
            await asyncio.wait([running], timeout=0.05)
        result = running.result()
        assert result.is_error
        assert result.error_info in ("timeout", "processes")
        assert "Resource temporarily unavailable" in str(result.content)
        assert most < 60
        assert not alive(token)
        assert await session.text("echo well") == "well\n"


async def test_processor_time_is_bounded(tmp_path: Path, kind: str) -> None:
    """A process over its processor time is ended, and the result says so."""
    async with open_shell(tmp_path / "w", kind, limits=CommandLimits(cpu_s=1)) as session:
        result = await session.shell("while :; do :; done", timeout_s=60)
        assert result.is_error
        assert "more than 1 s of processor time" in str(result.content)


async def test_size_of_a_file_is_bounded(tmp_path: Path, kind: str) -> None:
    """No file grows over the limit, and who tries is told."""
    async with open_shell(tmp_path / "w", kind, limits=CommandLimits(file_bytes=2 * MIB)) as session:
        result = await session.shell("exec head -c 10000000 /dev/zero > big")
        assert result.is_error
        assert "file of more than 2 MiB" in str(result.content) or "File too large" in str(result.content)
        assert (session.root / "big").stat().st_size == 2 * MIB


async def test_growth_of_the_disk_is_bounded(tmp_path: Path, kind: str) -> None:
    """A command that fills the disk with many files, or with deleted ones, is ended, and the result names the limit."""
    token = new_token()
    limits = CommandLimits(growth_bytes=40 * MIB, grace_s=0.2)
    async with open_shell(tmp_path / "w", kind, limits=limits) as session:
        fill = f": {token}; for i in $(seq 1000); do head -c 4000000 /dev/urandom > f$i || exit 9; done"
        result = await session.shell(fill, timeout_s=120)
        assert (result.is_error, result.error_info) == (True, "disk")
        assert "wrote more than 40 MiB" in str(result.content)
        assert sum(path.stat().st_size for path in session.root.iterdir()) < 2000 * MIB
        assert not alive(token)
        for path in session.root.iterdir():
            path.unlink()
        opened = '(os.open("d", os.O_CREAT | os.O_WRONLY), os.unlink("d"))[0]'
        result = await session.shell(UNNAMED.format(open=opened, count=400, token=token), timeout_s=120)
        assert result.error_info == "disk"
        assert not alive(token)


async def test_number_of_new_files_is_bounded(tmp_path: Path, kind: str) -> None:
    """A command that makes too many files is ended, and files that were there before do not count."""
    async with open_shell(tmp_path / "w", kind, limits=CommandLimits(new_files=3000)) as session:
        result = await session.shell(
            "for d in $(seq 100); do mkdir $d; (cd $d; touch $(seq 500)); done; sleep 60", timeout_s=60
        )
        assert (result.is_error, result.error_info) == (True, "files")
        assert not (await session.shell("find . -type f | head -5000 | xargs cat")).is_error
    shutil.rmtree(session.root)


async def test_background_processes_are_counted(tmp_path: Path, kind: str) -> None:
    """No more background processes run at once than a session may have."""
    token = new_token()
    async with open_shell(tmp_path / "w", kind, limits=CommandLimits(background_processes=2)) as session:
        first = await session.background(f"sleep {token}")
        await session.background(f"sleep {token}")
        result = await session.shell(f"sleep {token}", background=True)
        assert (result.is_error, result.error_info) == (True, "too_many")
        await session.tools.kill.run({"process_id": first}, session.context())
        assert await session.background("true")
