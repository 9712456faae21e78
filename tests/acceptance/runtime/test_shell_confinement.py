"""What commands in the sandbox cannot reach."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from kipu.runtime.sandbox.limits import MIB, CommandLimits
from tests.acceptance.runtime.shell_session import alive, new_token, open_shell

CONNECT = "exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"


async def test_sandbox_hides_the_files_of_others(tmp_path: Path) -> None:
    """Other workspaces, homes, keys and password hashes are not readable, and nothing outside is writable (A19, B41)."""
    (tmp_path / "other").mkdir(mode=0o755)
    (tmp_path / "other/file").write_text("theirs")
    root = tmp_path / "w"
    async with open_shell(root, "bubblewrap") as session:
        (root / "link").symlink_to(tmp_path / "other/file")
        hidden = [f"{tmp_path}/other/file", "link", "/etc/shadow", "/etc/sudoers", "/root/.bashrc", "/etc/gshadow"]
        hidden += [str(Path.home() / ".profile"), "/proc/1/root/etc/shadow", "/dev/mem", "/dev/vda", "../other/file"]
        for path in hidden:
            result = await session.shell(f"head -c 1 {path}")
            assert result.is_error, path
        for path in [
            "/x",
            "/etc/x",
            "/usr/x",
            "/dev/x",
            "/home/x",
            "/var/x",
            "/proc/sys/kernel/hostname",
            f"{tmp_path}/w2",
        ]:
            await session.shell(f"echo x > {path}; mkdir {path}.d")
            assert not Path(path).exists() or path.startswith("/proc"), path
        assert os.uname().nodename not in await session.text("uname -n")
        assert (await session.shell("mount -t tmpfs none /mnt || unshare -U true || chroot / true")).is_error
        assert "kipu" not in await session.text("ls /home /root /srv /var/lib 2>/dev/null; true")


async def test_sandbox_masks_secrets_inside_a_workspace(tmp_path: Path) -> None:
    """Keys in a home that is a workspace, and Kipu's own data in it, are not readable; a workspace within that data is."""
    root = tmp_path / "home"
    data = root / "data/kipu"
    for path in [root / ".ssh/id_ed25519", root / ".netrc", root / ".aws/credentials", data / "store.db"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    (root / ".bashrc").write_text("plain")
    async with open_shell(root, "bubblewrap", hidden=[data]) as session:
        assert await session.text("cat .bashrc") == "plain"
        assert "secret" not in str(
            (await session.shell("cat .ssh/* .netrc .aws/* data/kipu/*; grep -r secret .")).content
        )
        assert (await session.shell("echo x > data/kipu/new")).is_error
        assert (await session.shell("rm -rf data/kipu .ssh; mv data moved; cat moved/kipu/store.db")).is_error
    assert (root / ".ssh/id_ed25519").read_text() == "secret"
    inner = data / "workspaces/a"
    async with open_shell(inner, "bubblewrap", hidden=[data]) as session:
        assert await session.text("echo mine > f; cat f; ls ..") == "mine\na\n"
        assert (await session.shell("cat ../../store.db")).is_error


async def test_sandbox_closes_the_network_unless_it_is_opened(tmp_path: Path) -> None:
    """Without the network not even this machine's own services answer; with it they do."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=_greet, args=(server,))
        accepting.start()
        command = CONNECT.format(port=server.getsockname()[1])
        async with open_shell(tmp_path / "w", "bubblewrap") as session:
            assert (await session.shell(command)).is_error
            assert not session.tools.shell.spec.is_external
        async with open_shell(tmp_path / "w", "bubblewrap", has_network=True) as session:
            assert await session.text(command) == "connected\n"
            assert session.tools.shell.spec.is_external
        accepting.join()


async def test_sandbox_hides_the_processes_of_others(tmp_path: Path) -> None:
    """A command sees and signals only what its own command line started, not even the session's other commands (B38)."""
    token = new_token()
    async with open_shell(tmp_path / "w", "bubblewrap") as session:
        await session.background(f"sleep {token}")
        seen = await session.text("ls /proc | grep -c '^[0-9]'; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert int(seen.splitlines()[0]) < 8
        assert token not in seen
        await session.shell("kill -9 -1; kill -9 1 0")
        assert alive(token)
        assert os.getpid() in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


async def test_sandbox_keeps_the_environment_from_the_programs_outside(tmp_path: Path) -> None:
    """A library that the session's environment wants loaded is never loaded outside: there it would have Kipu's rights."""
    token = new_token()
    async with open_shell(tmp_path / "w", "bubblewrap") as session:
        session.environment = {"LD_PRELOAD": "/nowhere/evil.so", "PATH": f"{session.root}:/usr/bin", "BASH_ENV": "x"}
        (session.root / "bwrap").write_text("#!/bin/sh\ntouch evil\n")
        (session.root / "bwrap").chmod(0o755)
        await session.background(f"sleep {token}")
        outside = [process for process in alive(token) if Path(f"/proc/{process}/comm").read_text() == "bwrap\n"]
        assert outside
        assert not any(b"LD_PRELOAD" in Path(f"/proc/{process}/environ").read_bytes() for process in outside)
        assert not (session.root / "evil").exists()


async def test_sandbox_counts_memory_of_its_own_file_systems(tmp_path: Path) -> None:
    """What looks like a device directory cannot be filled, and shared memory only up to its limit."""
    limits = CommandLimits(shared_memory_bytes=8 * MIB)
    async with open_shell(tmp_path / "w", "bubblewrap", limits=limits) as session:
        assert (await session.shell("head -c 20000000 /dev/zero > /dev/shm/x")).is_error
        assert int(await session.text("head -c 4000000 /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x")) == 4_000_000
        for place in ["/dev", "/run", "/var", "/"]:
            assert (await session.shell(f"touch {place}/x")).is_error, place


async def test_sandbox_refuses_the_whole_file_system_as_a_workspace(tmp_path: Path) -> None:
    """A workspace that is the root directory cannot be shut in, and that is said."""
    from kipu.errors import SandboxError
    from kipu.runtime.sandbox.opening import open_sandbox
    from kipu.runtime.sandbox.probe import BubblewrapProbe

    del tmp_path
    with pytest.raises(SandboxError, match="whole file system"):
        await open_sandbox(Path("/"), session_id="s", probe=BubblewrapProbe("/usr/bin/bwrap"))


@pytest.mark.parametrize(
    "attempt",
    [
        "chmod u+s x",
        "chmod 2755 x",
        "install -m 4755 /bin/sh x",
        "cp /usr/bin/true x; python3 -c 'import os; os.fchmod(os.open(\"x\", os.O_RDONLY), 0o4755)'",
        "python3 -c 'import os; os.umask(0); os.open(\"y\", os.O_CREAT | os.O_WRONLY, 0o6755)'",
        "python3 -c 'import os, stat; os.mknod(\"y\", 0o4755 | stat.S_IFREG)'",
    ],
)
async def test_sandbox_makes_no_program_with_its_owners_rights(tmp_path: Path, attempt: str) -> None:
    """No file gets a set-user-id or set-group-id bit: it would be the workspace owner's, for whoever runs it outside."""
    root = tmp_path / "w"
    async with open_shell(root, "bubblewrap") as session:
        await session.text("cp /bin/sh x; chmod 755 x; ./x -c true; touch plain; chmod 600 plain; mkdir -m 700 d")
        result = await session.shell(attempt)
        assert result.is_error, result.content
        assert "not permitted" in str(result.content)
    assert not [path for path in root.iterdir() if path.stat().st_mode & 0o6000]


def _greet(server: socket.socket) -> None:
    server.accept()[0].close()
