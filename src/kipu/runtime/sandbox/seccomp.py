"""A filter of system calls: no program that others would run with its owner's rights, and no way past the namespaces."""

from __future__ import annotations

import errno
import os
import platform
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LOAD, EQUAL, ANY_BIT, AT_LEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID
# The flags without which a mode means nothing: O_CREAT, and what O_TMPFILE has besides O_DIRECTORY.
CREATING = os.O_CREAT | 0o20000000
X32_CALLS = 0x40000000


@dataclass(frozen=True, slots=True)
class Architecture:
    """The calls that take a mode: by number, which argument it is, and which one holds flags; the keyrings'; `socket`."""

    audit_number: int
    modes: Mapping[int, int]
    opening: Mapping[int, tuple[int, int]]
    keyrings: Sequence[int]
    socket: int


# openat2 and io_uring take their modes from memory, where no filter sees them. The numbers are the same everywhere.
UNSEEN_CALLS = (437, 425)
ARCHITECTURES = {
    "x86_64": Architecture(
        audit_number=0xC000003E,
        # chmod, fchmod, fchmodat, fchmodat2, creat, mknod, mknodat
        modes={90: 1, 91: 1, 268: 2, 452: 2, 85: 1, 133: 1, 259: 2},
        opening={2: (1, 2), 257: (2, 3)},
        keyrings=(248, 249, 250),
        socket=41,
    ),
    "aarch64": Architecture(
        audit_number=0xC00000B7,
        modes={52: 1, 53: 2, 452: 2, 33: 2},
        opening={56: (2, 3)},
        keyrings=(217, 218, 219),
        socket=198,
    ),
}
# Unix, IPv4, IPv6, netlink. Others lead out of a network namespace (to the machine's host) or into rarely used kernel code.
SOCKET_FAMILIES = (1, 2, 10, 16)


def command_filter(machine: str | None = None) -> bytes | None:
    """Return a filter for commands, None for a machine that is not known.

    No file gets a set-user-id or set-group-id bit: what a command makes belongs to the workspace's owner, and such a program
    would run with the owner's rights for everybody who reaches it, outside of the sandbox. The kernel's keyrings, which a
    process inherits, cannot be asked, and sockets are of the families that the namespaces hold.
    """
    architecture = ARCHITECTURES.get(platform.machine() if machine is None else machine)
    if architecture is None:
        return None
    program = [
        _step(LOAD, ARCHITECTURE_AT),
        _step(EQUAL, architecture.audit_number, yes=1),
        _step(RETURN, FAIL | errno.ENOSYS),
        _step(LOAD, NUMBER_AT),
        # The other numbering of the same calls.
        _step(AT_LEAST, X32_CALLS, no=1),
        _step(RETURN, FAIL | errno.ENOSYS),
    ]
    families = [_step(LOAD, _argument(0))]
    families += [_step(EQUAL, family, yes=len(SOCKET_FAMILIES) - place) for place, family in enumerate(SOCKET_FAMILIES)]
    families += [_step(RETURN, FAIL | errno.EAFNOSUPPORT), _step(RETURN, ALLOW)]
    program += [_step(EQUAL, architecture.socket, no=len(families)), *families]
    for number in (*UNSEEN_CALLS, *architecture.keyrings):
        program += [_step(EQUAL, number, no=1), _step(RETURN, FAIL | errno.ENOSYS)]
    for number, mode in architecture.modes.items():
        check = _mode_check(mode)
        program += [_step(EQUAL, number, no=len(check)), *check]
    for number, (flags, mode) in architecture.opening.items():
        check = _mode_check(mode)
        creates = [_step(LOAD, _argument(flags)), _step(ANY_BIT, CREATING, yes=1), _step(RETURN, ALLOW)]
        program += [_step(EQUAL, number, no=len(creates) + len(check)), *creates, *check]
    return b"".join([*program, _step(RETURN, ALLOW)])


def _mode_check(argument: int) -> list[bytes]:
    return [
        _step(LOAD, _argument(argument)),
        _step(ANY_BIT, SPECIAL_BITS, no=1),
        _step(RETURN, FAIL | errno.EPERM),
        _step(RETURN, ALLOW),
    ]


def _argument(index: int) -> int:
    # The lower half, on machines that put it first.
    return ARGUMENTS_AT + 8 * index


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
