"""Ways out of the sandbox that somebody may try: none of them works (A19, B41)."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.runtime.shell_session import alive, appears, new_token, open_shell

SYSCALL = "python3 -c 'import ctypes, os, sys; l = ctypes.CDLL(None, use_errno=True); {}'"
DENIED = "sys.exit(0 if l.syscall({}) >= 0 else 1)"
MARK = "kipu-red-team"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A workspace with a repository, an editor's folder and a submodule's and a worktree's administrative files."""
    root = tmp_path / "w"
    root.mkdir()
    for command in (
        "git init -q -b main .",
        "git config user.email a@example.org",
        "git config user.name a",
        "mkdir -p .vscode .git/modules/sub/hooks && echo '{}' > .vscode/tasks.json",
        "echo '[core]' > .git/modules/sub/config; echo x > .envrc; echo one > file",
        "git add file && git commit -q -m one",
    ):
        subprocess.run(command, shell=True, cwd=root, check=True)
    return root


@pytest.mark.parametrize(
    "attempt",
    [
        "echo x > .git/hooks/post-checkout",
        "rm -rf .git/hooks && mkdir .git/hooks",
        "mv .git/hooks .git/old && mkdir .git/hooks",
        "mv .git old && cp -r old .git && echo x > .git/hooks/post-checkout",
        "git config core.fsmonitor ./evil",
        "git config core.hooksPath .",
        "git config --file .git/config alias.status '!./evil'",
        "printf '[core]\\nfsmonitor=./evil\\n' > .git/config.lock && mv .git/config.lock .git/config",
        "ln -sf $PWD/evil .git/config",
        "cp --remove-destination file .git/config",
        "chmod 777 .git/hooks && echo x > .git/hooks/pre-commit",
        "mount --bind /tmp .git/hooks",
        "umount .git/hooks && echo x > .git/hooks/pre-commit",
        "echo x > .git/modules/sub/config",
        "echo x > .git/modules/sub/hooks/post-checkout",
        "echo x > .vscode/tasks.json",
        "rm -rf .vscode && mkdir .vscode",
        "mv .vscode old",
        "echo x >> .envrc",
        "mv .envrc old",
        'python3 -c \'import os; os.rename(".git", "old")\'',
        "ln file .git/hooks/post-checkout",
        "truncate -s 0 .git/config",
    ],
)
async def test_command_leaves_what_makes_programs_outside_run_something(repository: Path, attempt: str) -> None:
    """Hooks, git's settings and editors' folders of a workspace are what they were, and git works on (A19)."""
    places = [".git/hooks", ".git/config", ".git/modules/sub", ".vscode", ".envrc"]
    before = {name: _seen(repository / name) for name in places}
    async with open_shell(repository, "bubblewrap") as session:
        assert ".git/config" in session.tools.shell.spec.description
        assert (await session.shell(attempt)).is_error
        await session.text("echo two > file; git commit -qam two; git checkout -q -b other; git stash list; git gc -q")
    assert {name: _seen(repository / name) for name in places} == before
    assert not (repository / ".git").is_symlink()


async def test_removed_repository_keeps_what_is_protected(repository: Path) -> None:
    """A command may destroy what is the workspace's; nothing of its own takes the protected files' place."""
    async with open_shell(repository, "bubblewrap") as session:
        assert (await session.shell("rm -rf .git; git init -q .; echo x > .git/hooks/post-checkout")).is_error
    assert (repository / ".git/hooks/pre-commit.sample").is_file()
    assert not (repository / ".git/hooks/post-checkout").exists()


async def test_command_cannot_send_git_to_other_settings(repository: Path) -> None:
    """A `commondir`, by which git would take its settings from elsewhere, is gone when the command ends, and that is said."""
    async with open_shell(repository, "bubblewrap") as session:
        result = await session.shell("mkdir -p evil && echo ../evil > .git/commondir")
        assert "commondir" in str(result.content)
        assert not (repository / ".git/commondir").exists()
        await session.background("sleep 1.5; echo ../evil > .git/commondir")
        await appears((repository / ".git/commondir").exists)
    assert not (repository / ".git/commondir").exists()


async def test_command_that_makes_an_editors_folder_says_so(tmp_path: Path) -> None:
    """What an editor, a shell or an agent may run when it opens the directory is named once, for people to look at."""
    async with open_shell(tmp_path / "w", "bubblewrap") as session:
        told = str((await session.shell("mkdir .vscode; echo '{}' > .vscode/tasks.json")).content)
        assert ".vscode is new" in told
        assert ".vscode is new" not in str((await session.shell("echo x > .vscode/tasks.json")).content)


async def test_session_may_change_the_repository_that_it_made(tmp_path: Path) -> None:
    """A repository that the session's own commands made is its own, settings included."""
    async with open_shell(tmp_path / "w", "bubblewrap") as session:
        await session.text("git init -q .")
        await session.text(
            "git config user.name a && git config user.email a@example.org && git commit -q --allow-empty -m x"
        )


@pytest.mark.parametrize(
    "attempt",
    [
        "cat /proc/self/root/etc/shadow",
        "cat /proc/1/root/etc/gshadow",
        "cat /proc/1/environ | tr '\\0' '\\n' | grep -q {mark}",
        "ls -d /proc/[0-9]*/cwd/../../other && cat /proc/1/cwd/../other/file",
        "grep -rq {mark} /proc/*/environ",
        "exec 3<>/dev/tty",
        "python3 -c 'import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b\"x\")'",
        "python3 -c 'import fcntl, termios; fcntl.ioctl(1, termios.TIOCSTI, b\"x\")'",
        "python3 -c 'import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)'",
        "python3 -c 'import socket; socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)'",
        "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"\\0{mark}\")'",
        "mknod x b 8 0 || mknod x c 1 1",
        "cat /dev/mem /dev/kmem /dev/sda /dev/vda",
        "echo 1 > /sys/fs/cgroup/cgroup.procs",
        "echo $$ > /sys/fs/cgroup/unified/cgroup.procs",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "echo 0 > /proc/self/oom_score_adj && echo -1000 > /proc/self/oom_score_adj",
        "unshare -Ur true",
        "nsenter -t 1 -m true",
        "chroot . /bin/sh",
        "su root -c true",
        "sudo -n true",
        "newuidmap $$ 0 0 1",
        "pkexec true",
        "ls /run/docker.sock /var/run/docker.sock /run/systemd/private",
        "kill -0 {pid}",
        SYSCALL.format(DENIED.format("101, 16, {pid}, 0, 0")),  # ptrace, attach
        SYSCALL.format(DENIED.format("425, 8, 0")),  # io_uring_setup
        SYSCALL.format(DENIED.format("250, 0, -3, 0")),  # keyctl: the session's keyring
        SYSCALL.format(DENIED.format('165, b"none", b".", b"tmpfs", 0, 0')),  # mount
        SYSCALL.format(DENIED.format("308, 0, 0x20000")),  # setns
        SYSCALL.format(DENIED.format("321, 0, 0, 0")),  # bpf
        SYSCALL.format(DENIED.format("304, 0, 0, 0")),  # open_by_handle_at
        SYSCALL.format(DENIED.format("434, {pid}, 0")),  # pidfd_open
        "cat /proc/{pid}/mem /proc/{pid}/maps",
        "ln /etc/passwd stolen",
        "ln -s ../../other out && cat out/file",
        "cat /proc/self/mountinfo | grep -q other",
        "ipcs -m | grep -q 0x",
    ],
)  # fmt: skip
async def test_command_finds_no_way_out(tmp_path: Path, attempt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Namespaces, descriptors, devices, sockets, keyrings and terminals: what is not the workspace's is not to be had."""
    monkeypatch.setenv("SECRET_OF_KIPU", MARK)
    (tmp_path / "other").mkdir(mode=0o755)
    (tmp_path / "other/file").write_text("theirs")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{MARK}")
        server.listen()
        async with open_shell(tmp_path / "w", "bubblewrap") as session:
            result = await session.shell(attempt.replace("{mark}", MARK).replace("{pid}", str(os.getpid())))
            assert result.is_error, result.content
            assert "theirs" not in str(result.content)


@pytest.mark.parametrize("kind", ["bubblewrap", "none"])
async def test_command_is_given_three_descriptors_and_no_others(tmp_path: Path, kind: str) -> None:
    """Nothing that Kipu has open, such as its store or a namespace, is open in a command (B41)."""
    async with open_shell(tmp_path / "w", kind) as session:
        seen = await session.text("for fd in /proc/self/fd/*; do readlink $fd || true; done; echo end")
        kept = [
            line for line in seen.split() if line != "end" and not line.startswith(("/dev/null", "pipe:", "/proc/"))
        ]
        assert kept == []


@pytest.mark.parametrize("kind", ["bubblewrap", "none"])
async def test_kipus_environment_reaches_no_command(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that would make a program run something else do not come from Kipu's own environment (A19)."""
    names = "LD_PRELOAD LD_LIBRARY_PATH PYTHONSTARTUP PYTHONPATH BASH_ENV ENV PAGER GIT_DIR GIT_CONFIG_COUNT GIT_SSH_COMMAND"
    for name in [*names.split(), "PERL5OPT", "NODE_OPTIONS", "PROMPT_COMMAND", "SSH_AUTH_SOCK", "OPENAI_API_KEY"]:
        monkeypatch.setenv(name, f"/{MARK}")
    async with open_shell(tmp_path / "w", kind) as session:
        assert MARK not in await session.text("env; set")


@pytest.mark.parametrize("kind", ["bubblewrap", "none"])
@pytest.mark.parametrize(
    "escape",
    [
        "setsid -f sleep {token}",
        "(trap '' HUP TERM INT; sleep {token} &) ",
        "nohup sleep {token} >/dev/null 2>&1 & disown -a",
        'python3 -c \'import os; os.fork() or (os.setsid(), os.fork() or os.execvp("sleep", ["sleep", "{token}"]))\'',
        "at now <<< 'sleep {token}' 2>/dev/null; (sleep {token} &) & ",
    ],
)
async def test_daemons_end_with_their_command(tmp_path: Path, kind: str, escape: str) -> None:
    """What leaves its session, its parent and its signals behind ends with the command line that started it (B49)."""
    token = new_token()
    async with open_shell(tmp_path / "w", kind) as session:
        await session.shell(escape.replace("{token}", token))
        await appears(lambda: not alive(token))


def _seen(path: Path) -> object:
    if path.is_dir():
        return sorted((str(each.relative_to(path)), each.is_file() and each.read_bytes()) for each in path.rglob("*"))
    return path.read_bytes()
