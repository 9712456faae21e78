"""Texts that look like chance: told to people who scan, never a reason to replace."""

from __future__ import annotations

import re

from kipu.security.redaction.plausible import classes_in, entropy_bits, is_stand_in

_RUN = re.compile(rb"[A-Za-z0-9+/_=-]{24,512}")


def flags_in(text: str) -> int:
    """Return how many runs of letters and digits are as mixed as chance would have them (hex is not: hashes are everywhere)."""
    return sum(1 for run in _RUN.findall(text.encode("utf-8", "replace")) if _is_chance(run))


def _is_chance(run: bytes) -> bool:
    return classes_in(run) >= 3 and entropy_bits(run) >= 4.2 and not is_stand_in(run) and run.count(b"/") * 8 < len(run)
