"""What a rule is, and how sure of it one may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from kipu.security.redaction.plausible import is_plausible

REACH = 16_384  # bytes that one secret may have


class Tier(IntEnum):
    """Whose word counts where two rules meet: the lower one's."""

    KNOWN = 0
    FORMAT = 1
    CONTEXT = 2
    PLACE = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """A shape of secrets.

    Every match contains one of `anchors` (with `folded` in lower case, and found in any), at most `lead` bytes after its start
    (0: at its start). The secret is the last group of the pattern that took part, or all of it. `check` says whether what was
    found can be one. With `apart`, no letter or digit stands right before it and none right behind. A `gate` is a quick look
    at what follows the literal: where it does not match, the pattern would not either.
    """

    name: str
    anchors: tuple[str, ...]
    pattern: str
    lead: int = 0
    check: Callable[[bytes], bool] = is_plausible
    tier: Tier = Tier.FORMAT
    apart: bool = True
    folded: bool = False
    gate: re.Pattern[bytes] | None = None


def shape(
    name: str,
    anchors: str,
    *,
    pattern: str,
    lead: int = 0,
    check: Callable[[bytes], bool] = is_plausible,
    gate: bytes | None = None,
) -> Rule:
    """Return a rule of a format; `anchors` are separated by spaces."""
    compiled = None if gate is None else re.compile(gate)
    return Rule(name, tuple(anchors.split()), pattern, lead=lead, check=check, gate=compiled)
