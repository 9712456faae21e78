"""Say how much a process grew: now and at its highest."""

from __future__ import annotations

import gc
import re
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class Memory:
    """Remember the resident set at creation; later tell what was added since."""

    def __init__(self) -> None:
        gc.collect()
        # Linux: 5 resets the high-water mark, which interpreter start-up has raised.
        with suppress(OSError):
            _CLEAR.write_text("5")
        self._start_mb = _resident_mb("VmRSS")

    def grown(self) -> dict[str, float]:
        """Return the growth in MB: what stays, and the highest on the way."""
        return {
            "rss_mb": _resident_mb("VmRSS") - self._start_mb,
            "rss_peak_mb": _resident_mb("VmHWM") - self._start_mb,
        }


def _resident_mb(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", _STATUS.read_text())
    return int(found.group(1)) / 1024 if found else 0.0
