"""This machine: who holds a lease, and whether that process still lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kipu.ports.owner import Owner
from kipu.stores import file_system, host
from kipu.stores.host import SystemClock, SystemEntropy, SystemLiveness, this_process_owner

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")


def _owner(**changes: Any) -> str:
    owner = Owner.parse(this_process_owner("worker/1"))
    assert owner is not None
    return str(owner._replace(**changes))


def test_an_owner_names_host_boot_process_start_and_holder() -> None:
    """The owner text of this process parses back to all its parts (C14)."""
    owner = Owner.parse(this_process_owner("worker/1"))
    assert owner is not None
    assert owner.pid == os.getpid()
    assert owner.name == "worker/1"
    assert all(owner)


def test_only_what_is_known_to_be_dead_is_dead() -> None:
    """This process, other hosts, other process namespaces and unknown texts are not dead (C14)."""
    started = Owner.parse(_owner())
    assert started is not None
    liveness = SystemLiveness()
    nobody = {"pid": 2**22 + 1, "started": "1@" + started.started.partition("@")[2]}
    assert liveness.is_dead(_owner(**nobody))
    elsewhere = _owner(host="elsewhere", **nobody)
    for owner in (
        _owner(),
        elsewhere,
        _owner(host="elsewhere"),
        _owner(started="1@other"),
        "",
        "somebody",
        "a/b/c/d/e",
    ):
        assert not liveness.is_dead(owner), owner


def test_another_boot_or_another_start_is_dead() -> None:
    """An owner of an earlier boot, or whose process number was given to a younger process, is dead (C14, situation 43)."""
    owner = Owner.parse(_owner())
    assert owner is not None
    liveness = SystemLiveness()
    assert liveness.is_dead(_owner(boot_id="an-earlier-boot"))
    assert liveness.is_dead(_owner(started="1@" + owner.started.partition("@")[2]))


def test_a_killed_process_is_dead_even_before_it_is_reaped() -> None:
    """A process is alive until it ends, and dead then, reaped or not (C14)."""
    program = (
        "from kipu.stores.host import this_process_owner; import sys;"
        "print(this_process_owner('x'), flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    owner = child.stdout.readline().strip()
    liveness = SystemLiveness()
    assert not liveness.is_dead(owner)
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still in the table
    assert liveness.is_dead(owner)
    child.wait()
    assert liveness.is_dead(owner)
    child.stdin.close()
    child.stdout.close()


def test_without_proc_only_a_missing_process_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing of boots and starts can be seen, a process that answers is alive and one that is gone is dead (C14)."""
    monkeypatch.setattr(host, "_read", lambda _: None)
    monkeypatch.setattr(host, "_process_namespace", lambda: "")
    liveness = SystemLiveness()
    mine = this_process_owner("x")
    owner = Owner.parse(mine)
    assert owner is not None
    assert not liveness.is_dead(mine)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert liveness.is_dead(str(owner._replace(pid=child.pid)))


def test_the_clock_and_chance_are_the_machines() -> None:
    """The clock does not stand still over years, and random bytes differ."""
    assert SystemClock().now_us() > 1_700_000_000_000_000
    assert SystemEntropy().random_bytes(16) != SystemEntropy().random_bytes(16)


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest mount point above a path counts, escapes in it included, and of two on one point the later (B59)."""
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/a / ext4 rw 0 0\nserver:/x /mnt nfs4 rw 0 0\n/dev/b /mnt/my\\040disk xfs rw 0 0\n"
        "/dev/c /over ext4 rw 0 0\nhost /over 9p rw 0 0\n"
    )
    monkeypatch.setattr(file_system, "_MOUNTS", str(table))
    kinds = {
        path: file_system.file_system_kind(path) for path in ("/x", "/mnt/y", "/mnt/my disk/z", "/mntx", "/over/q")
    }
    assert kinds == {"/x": "ext4", "/mnt/y": "nfs4", "/mnt/my disk/z": "xfs", "/mntx": "ext4", "/over/q": "9p"}
    assert [kind for kind in kinds.values() if file_system.is_network(kind)] == ["nfs4", "9p"]
    monkeypatch.setattr(file_system, "_MOUNTS", str(tmp_path / "none"))
    assert file_system.file_system_kind("/x") == ""
