"""A SIGKILL by the kernel's own timer, in the middle of one of this process's writes."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_CLOCK_MONOTONIC = 1


class _Event(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class _Times(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


def kill_in_write(nth: int, *, size: int, delay_ns: int) -> None:
    """Let this process be killed `delay_ns` after it begins its `nth` `os.write` of at least `size` bytes.

    A signal from another process rarely hits a write of a few microseconds on a busy machine; a timer of the same
    processor does. Linux only.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    timer = ctypes.c_void_p()
    event = _Event(None, signal.SIGKILL, 0, b"")
    if libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) != 0:
        raise OSError(ctypes.get_errno(), "timer_create")
    times = _Times(0, 0, 0, delay_ns)
    arm, real = libc.timer_settime, os.write
    left = nth

    def write(handle: int, data: Buffer, /) -> int:
        nonlocal left
        if memoryview(data).nbytes >= size:
            left -= 1
            if left == 0:
                arm(timer, 0, ctypes.byref(times), None)
        return real(handle, data)

    os.write = write
