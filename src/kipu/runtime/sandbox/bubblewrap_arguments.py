"""What bubblewrap is told: which parts of the machine a command sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kipu.runtime.sandbox.limits import CommandLimits
from kipu.runtime.sandbox.protected_files import Mount

SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu")
# Readable for nobody in there, whoever runs them: a root without a user of its own to drop to included.
SECRET_SYSTEM_FILES = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh"),
    *("/etc/ssl/private", "/etc/krb5.keytab", "/etc/wireguard", "/etc/NetworkManager", "/etc/letsencrypt"),
)
# What must not be read even where the workspace is somebody's home.
SECRETS_OF_A_HOME = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".netrc", ".pypirc"),
    *(".git-credentials", ".password-store", ".local/share/keyrings", ".mozilla", ".config/google-chrome"),
)
HOME = "/tmp/home"  # noqa: S108


@dataclass(frozen=True, slots=True)
class VisibleFiles:
    """Which directories commands see: the writable ones by where each is taken from, what is read-only or masked in them."""

    writable: Mapping[Path, Path]
    readable: Sequence[Path]
    hidden: Sequence[Path]
    temporary: Path
    protected: Sequence[Mount] = ()


def namespace_arguments(*, has_network: bool) -> list[str]:
    """Return the arguments that part a command from the machine's other processes."""
    arguments = [
        *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--hostname", "kipu", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    ]
    return arguments if has_network else [*arguments, "--unshare-net"]


def file_arguments(files: VisibleFiles, *, limits: CommandLimits, account: tuple[int, int] | None) -> list[str]:
    """Return the arguments that make up a command's files. `account` are descriptors of its passwd and group files."""
    arguments = [*_system_arguments(), "--proc", "/proc", *_device_arguments(limits)]
    if account is not None:
        for descriptor, name in zip(account, ("passwd", "group"), strict=True):
            arguments += ["--perms", "0444", "--ro-bind-data", str(descriptor), f"/etc/{name}"]
    arguments += ["--bind", str(files.temporary), "/tmp", "--dir", "/run", "--dir", "/var"]  # noqa: S108
    arguments += ["--symlink", "../tmp", "/var/tmp"]  # noqa: S108
    return [*arguments, *_session_arguments(files), "--remount-ro", "/"]


def environment_arguments(environment: Mapping[str, str]) -> list[str]:
    """Return the arguments that set the environment; what cannot be a variable is left out."""
    arguments = ["--clearenv"]
    for name, value in environment.items():
        if name and "=" not in name and "\0" not in name + value:
            arguments += ["--setenv", name, value]
    return arguments


def _system_arguments() -> list[str]:
    arguments: list[str] = []
    for name in SYSTEM_DIRECTORIES:
        place = Path(name)
        if place.is_symlink():
            arguments += ["--symlink", str(place.readlink()), name]
        elif place.is_dir():
            arguments += ["--ro-bind", name, name]
    arguments += ["--ro-bind", "/etc", "/etc"]
    resolver = Path("/etc/resolv.conf")
    if resolver.is_symlink() and resolver.exists():
        arguments += ["--ro-bind-try", str(resolver.resolve()), str(resolver.resolve())]
    return arguments


def _device_arguments(limits: CommandLimits) -> list[str]:
    # Whatever could be filled there would be memory that nobody counts.
    size = str(limits.shared_memory_bytes)
    return ["--dev", "/dev", "--perms", "1777", "--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108


def _session_arguments(files: VisibleFiles) -> list[str]:
    """Return the mounts of a session's own files: what lies deeper comes later, so that the nearest rule holds."""
    shown = [*files.writable, *files.readable]
    hidden = [hidden for hidden in files.hidden if any(hidden.is_relative_to(directory) for directory in shown)]
    hidden += [directory / name for directory in shown for name in SECRETS_OF_A_HOME]
    mounts = [(place, ["--ro-bind-try", str(place), str(place)]) for place in files.readable]
    mounts += [(place, ["--bind", str(source), str(place)]) for place, source in files.writable.items()]
    mounts += [mount for protected in files.protected if (mount := _protection(protected, files)) is not None]
    sealed: list[str] = []
    for place in [*map(Path, SECRET_SYSTEM_FILES), *hidden]:
        # A link is no way in: what it leads to is not there.
        if place in files.writable or place.is_symlink() or not place.exists():
            continue
        if place.is_dir():
            mounts.append((place, ["--perms", "0000", "--tmpfs", str(place)]))
            sealed += ["--remount-ro", str(place)]
        else:
            mounts.append((place, ["--ro-bind", "/dev/null", str(place)]))
    mounts.sort(key=lambda mount: len(mount[0].parts))
    return [*(argument for _, arguments in mounts for argument in arguments), *sealed]


def _protection(protected: Mount, files: VisibleFiles) -> tuple[Path, list[str]] | None:
    """Return the mount of a place over itself, taken from where its directory is taken from."""
    if protected.place in files.writable and protected.is_writable:
        return None  # it is a mount already
    for place, source in files.writable.items():
        if protected.place.is_relative_to(place):
            taken_from = source / protected.place.relative_to(place)
            option = "--bind-try" if protected.is_writable else "--ro-bind-try"
            return protected.place, [option, str(taken_from), str(protected.place)]
    return None
