"""What happens to the bytes of a line file. Every function takes bytes and returns the damaged ones (numbers: situations)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

BOM = b"\xef\xbb\xbf"

Change = Callable[[bytes], bytes]


def change_file(path: Path, change: Change) -> bytes:
    """Change a file in place, keep its mode, and return what it was."""
    before = path.read_bytes()
    with path.open("r+b") as file:
        file.write(change(before))
        file.truncate()
    return before


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines with their ends; only a newline ends a line, and the last may have none."""
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def tear_tail(data: bytes, *, keep: int = 20) -> bytes:
    """Cut the last line off after `keep` bytes, as a kill in the middle of a write does (1, 2, 3)."""
    lines = lines_of(data)
    return b"".join(lines[:-1]) + lines[-1][:keep]


def fuse_with_retry(data: bytes, *, line: int, keep: int = 20) -> bytes:
    """Put a torn beginning of a line before the whole line, with no newline between (1, 8)."""
    lines = lines_of(data)
    lines[line] = lines[line][:keep] + lines[line]
    return b"".join(lines)


def splice_lines(data: bytes, *, line: int, at: int = 40) -> bytes:
    """Put a whole line into the middle of the one before it, as two writers without a lock do (15)."""
    lines = lines_of(data)
    outer, inner = lines[line], lines[line + 1]
    lines[line : line + 2] = [outer[:at] + inner[:-1] + b"\n", outer[at:]]
    return b"".join(lines)


def malform_line(data: bytes, *, line: int, instead: bytes = b"{oops\n") -> bytes:
    """Put a line between two others that is none (4)."""
    lines = lines_of(data)
    return b"".join([*lines[:line], instead, *lines[line:]])


def drop_line(data: bytes, *, line: int) -> bytes:
    """Remove one line from the middle (35)."""
    lines = lines_of(data)
    return b"".join([*lines[:line], *lines[line + 1 :]])


def repeat_line(data: bytes, *, line: int) -> bytes:
    """Write one line twice, as a retry that was not recognised does (38)."""
    lines = lines_of(data)
    return b"".join([*lines[: line + 1], *lines[line:]])


def swap_lines(data: bytes, *, line: int) -> bytes:
    """Exchange a line with the next one."""
    lines = lines_of(data)
    lines[line], lines[line + 1] = lines[line + 1], lines[line]
    return b"".join(lines)


def add_zeros(data: bytes, *, count: int = 4096) -> bytes:
    """Append zeros, as a power cut leaves them where a block was allocated and not written (6)."""
    return data + bytes(count)


def add_bom(data: bytes) -> bytes:
    """Put a byte order mark at the beginning, as editors do (10)."""
    return BOM + data


def add_blank_lines(data: bytes) -> bytes:
    """Put empty lines between all lines (11)."""
    return b"\n\n".join([b"", *[line.rstrip(b"\n") for line in lines_of(data)], b""])


def empty(_: bytes) -> bytes:
    """Leave nothing (11)."""
    return b""


def flip_bits(data: bytes, *, offset: int, mask: int = 0x10) -> bytes:
    """Change some bits of one byte."""
    damaged = bytearray(data)
    damaged[offset] ^= mask
    return bytes(damaged)


def cut_out(data: bytes, *, offset: int, count: int) -> bytes:
    """Remove bytes from the middle."""
    return data[:offset] + data[offset + count :]


def put_in(data: bytes, *, offset: int, what: bytes) -> bytes:
    """Insert bytes in the middle."""
    return data[:offset] + what + data[offset:]


def overwrite(data: bytes, *, offset: int, what: bytes) -> bytes:
    """Replace bytes in the middle by as many others."""
    return data[:offset] + what[: len(data) - offset] + data[offset + len(what) :]


def deep_nesting(depth: int = 200_000) -> bytes:
    """Return a line that is nothing but opening brackets: too deep for most parsers."""
    return b'{"a":' + b"[" * depth + b"\n"


def long_integer(digits: int = 5000) -> bytes:
    """Return a line whose number has more digits than Python converts."""
    return b'{"seq":' + b"9" * digits + b"}\n"


def touch_randomly(root: Path, *, seed: int = 0) -> None:
    """Give every file below `root` some other time, as backups and copies do (56, 68)."""
    chance = random.Random(seed)
    for path in root.rglob("*"):
        moment = chance.uniform(0, 4_000_000_000)
        os.utime(path, (moment, moment))
